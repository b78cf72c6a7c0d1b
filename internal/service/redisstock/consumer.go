package redisstock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

// group is the consumer group of every stream: all replicas are in it.
const group = "ledger"

const (
	// readBlock is how long a read waits for an order.
	readBlock = 2 * time.Second
	// minBatch is the least time for the writing of one batch.
	minBatch = 2 * time.Second
	// finishWithin bounds what a consumer still begins for the batch that it has in
	// hand when its replica stops. An answer of Redis may take answerWithin more.
	finishWithin = 500 * time.Millisecond
	// backOff is the first pause after a failure, and maxBackOff the longest.
	backOff, maxBackOff = 50 * time.Millisecond, 2 * time.Second
)

// consumer writes the orders of one partition into the ledger.
type consumer struct {
	*Stock
	part    *partition
	claimed time.Time // when it last looked for what others left
	claimAt string    // where in the list of what is pending it goes on
	forgot  time.Time // when it last looked for consumers that are gone
	// claimedLast: it has not read what is new since. What it cannot write would be claimed for ever.
	claimedLast bool
}

// run reads and writes until ctx ends. What was in this replica's hands before it
// was started comes first.
func (c *consumer) run(ctx context.Context) {
	own, wait := "0", backOff
	for ctx.Err() == nil {
		err := background.Guard(ctx, c.options.Log, "write orders of "+c.part.orders(), func() error { return c.round(ctx, &own) })
		if err == nil {
			wait = backOff
			continue
		}
		if ctx.Err() != nil {
			return
		}
		c.options.Log.WarnContext(ctx, "orders wait for the ledger", "stream", c.part.orders(), "error", err)
		own = "0"                // what was read and not written is pending
		_ = pause.For(ctx, wait) // the loop sees for itself whether ctx has ended
		wait = min(2*wait, maxBackOff)
	}
}

func (c *consumer) round(ctx context.Context, own *string) error {
	entries, err := c.next(ctx, own)
	if err != nil {
		return err
	}
	return c.finish(ctx, entries)
}

// next is a batch of orders: its own that it did not finish, those that others
// have left, or new ones. Each of its own is read once: what cannot be written yet is
// claimed later, and keeps no others waiting.
func (c *consumer) next(ctx context.Context, own *string) ([]redis.XMessage, error) {
	if *own != ">" {
		entries, err := c.read(ctx, *own)
		if err != nil {
			return nil, err
		}
		if n := len(entries); n > 0 {
			*own = entries[n-1].ID
			return entries, nil
		}
		*own = ">"
	}
	if !c.claimedLast && time.Since(c.claimed) > c.options.ClaimAfter/2 {
		entries, err := c.claim(ctx)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
	}
	c.claimedLast = false
	return c.read(ctx, ">")
}

func (c *consumer) read(ctx context.Context, from string) ([]redis.XMessage, error) {
	bounded, cancel := context.WithTimeout(ctx, 2*readBlock)
	defer cancel()
	streams, err := c.reading.XReadGroup(bounded, &redis.XReadGroupArgs{
		Group: group, Consumer: c.options.Replica, Streams: []string{c.part.orders(), from},
		Count: int64(c.options.Batch), Block: min(readBlock, c.options.ClaimAfter/2),
	}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case redis.HasErrorPrefix(err, "NOGROUP"):
		return nil, c.begin(ctx)
	case err != nil:
		return nil, fmt.Errorf("read orders: %w", err)
	case len(streams) == 0:
		return nil, nil
	}
	return streams[0].Messages, nil
}

// begin makes the group on a stream that is new or was lost.
func (c *consumer) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err := c.redis.XGroupCreateMkStream(ctx, c.part.orders(), group, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("make group of consumers: %w", err)
	}
	return nil
}

// claim takes over what another consumer has had for too long: it is dead, or cannot reach
// the database, or is so slow that two may do the same. The ledger takes each order once.
func (c *consumer) claim(ctx context.Context) ([]redis.XMessage, error) {
	if c.claimAt == "" {
		c.claimAt = "0-0"
	}
	bounded, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	entries, next, err := c.redis.XAutoClaim(bounded, &redis.XAutoClaimArgs{
		Stream: c.part.orders(), Group: group, Consumer: c.options.Replica, MinIdle: c.options.ClaimAfter,
		Start: c.claimAt, Count: int64(c.options.Batch),
	}).Result()
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return nil, c.begin(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("claim orders: %w", err)
	}
	if c.claimAt = next; next == "0-0" {
		c.claimed = time.Now() // once round
		c.claimedLast = true
		c.forgetGone(ctx)
	}
	return entries, nil
}

// forgetGone deletes the consumers of replicas that are gone. A failure is for the next time.
func (c *consumer) forgetGone(ctx context.Context) {
	if time.Since(c.forgot) < c.options.GoneAfter/2 {
		return
	}
	c.forgot = time.Now()
	if _, err := c.ask(ctx, "leave", []string{c.part.orders()}, group, c.options.GoneAfter.Milliseconds()); err != nil {
		c.options.Log.WarnContext(ctx, "consumers that are gone are not forgotten", "stream", c.part.orders(), "error", err)
	}
}

// finish writes a batch, and gives up long after another consumer may have claimed it: a
// database that does not answer must not hold the consumer for ever. It goes on for
// finishWithin when ctx ends.
func (c *consumer) finish(ctx context.Context, messages []redis.XMessage) error {
	if len(messages) == 0 {
		return nil
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(minBatch, 2*c.options.ClaimAfter))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(finishWithin, cancel) })
	defer stop()
	entries := make([]entry, 0, len(messages))
	for _, m := range messages {
		e, err := c.readEntry(m)
		if err != nil {
			if err := c.discard(own, m, err); err != nil {
				return err
			}
			continue
		}
		entries = append(entries, e)
	}
	err := c.keep(own, entries)
	if errors.Is(err, stock.ErrBusy) {
		err = c.keepOthers(own, entries, err)
	}
	if err != nil {
		return err
	}
	if len(messages) < c.options.Batch {
		_ = pause.For(ctx, c.options.Linger) // the orders are written, whether ctx has ended or not
	}
	return nil
}

// discard dead-letters what is no order: an entry that was deleted while it was pending
// has no fields, and is only acknowledged. No counter has it (ordered in
// lua/3_rebuild.lua), so that none gives it back.
func (c *consumer) discard(ctx context.Context, m redis.XMessage, reason error) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_, err := c.redis.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		if len(m.Values) > 0 {
			values := map[string]any{"reason": reason.Error()}
			maps.Copy(values, m.Values)
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: c.part.dead(), Values: values})
		}
		pipe.XAck(ctx, c.part.orders(), group, m.ID)
		pipe.XDel(ctx, c.part.orders(), m.ID)
		return nil
	})
	if err == nil && len(m.Values) > 0 {
		c.options.Observer.DeadLettered()
		c.options.Log.ErrorContext(ctx, "invalid order dead-lettered", "stream", c.part.dead(), "reason", reason)
	}
	return err
}
