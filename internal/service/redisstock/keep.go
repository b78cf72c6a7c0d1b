package redisstock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// keepRounds bounds how often a batch is sorted anew: each round, something of it
// is settled, offered again, or dead-lettered.
const keepRounds = 50

// keepOthers writes what it can of a batch that was busy: where the allocations of some items are locked for
// long, as by their first limit, the orders of these stay pending, and are claimed later.
func (c *consumer) keepOthers(ctx context.Context, entries []entry, busy error) error {
	ids := make([]int64, len(entries))
	for i, e := range entries {
		ids[i] = e.GoodsID
	}
	locked, err := c.store.LockedAllocations(ctx, Allocation, ids...)
	if err != nil || len(locked) == 0 {
		return errors.Join(busy, err)
	}
	others := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return locked[e.GoodsID] })
	c.options.Log.WarnContext(ctx, "orders of items that are locked wait for the ledger", "items", len(locked),
		"orders", len(entries)-len(others), "error", busy)
	return c.keep(ctx, others)
}

// keep writes the orders into the ledger, each once, and only then takes them off the
// stream. An error leaves what is not settled pending.
func (c *consumer) keep(ctx context.Context, entries []entry) (err error) {
	if !c.store.Sharded() {
		return c.keepTogether(ctx, entries)
	}
	failed := 0
	for _, of := range groupBy(entries, func(e entry) int64 { return e.GoodsID }) { // which may be on several shards
		n, one := c.keepItem(ctx, of)
		failed, err = failed+n, errors.Join(err, one)
	}
	if !errors.Is(err, stock.ErrBackendUnavailable) {
		return err
	}
	c.options.Log.WarnContext(ctx, "orders wait for a shard, and are claimed later", "stream", c.part.orders(), "orders", failed, "error", err)
	if failed == len(entries) {
		_ = pause.For(ctx, backOff) // it may be all shards
	}
	return nil
}

// keepItem is keep of orders of one item, and returns how many were not kept. Those whose request ids Vitess notes on a shard that
// does not answer fail no others.
func (c *consumer) keepItem(ctx context.Context, entries []entry) (failed int, err error) {
	err = c.keepTogether(ctx, entries)
	if err == nil {
		return 0, nil
	}
	byShard := groupBy(entries, func(e entry) int { return c.store.ShardOf(e.RequestID) })
	if len(byShard) == 1 || !errors.Is(err, stock.ErrBackendUnavailable) {
		return len(entries), err
	}
	err = nil
	for _, of := range byShard {
		if one := c.keepTogether(ctx, of); one != nil {
			failed, err = failed+len(of), one
		}
	}
	return failed, err
}

func groupBy[K comparable](entries []entry, key func(entry) K) map[K][]entry {
	groups := make(map[K][]entry)
	for _, e := range entries {
		groups[key(e)] = append(groups[key(e)], e)
	}
	return groups
}

// keepTogether is keep in one transaction.
func (c *consumer) keepTogether(ctx context.Context, entries []entry) error {
	ctx, step := c.follow(ctx, entries)
	defer step.End()
	for range keepRounds {
		if len(entries) == 0 {
			return nil
		}
		err := c.store.Keep(ctx, Allocation, pendingOrders(entries))
		var rest []entry
		stale, isStale := errors.AsType[*repo.StaleError](err)
		switch {
		case err == nil:
			c.options.Observer.Written(len(entries))
			return c.settle(ctx, c.part, entries)
		case errors.Is(err, stock.ErrDuplicateRequest):
			rest, err = c.settleKnown(ctx, entries)
		case isStale:
			rest, err = c.offerAgain(ctx, entries, stale)
		}
		if err != nil {
			return err
		}
		entries = rest
	}
	return errors.New("orders are neither kept nor rejected")
}

// follow has what is done for a batch be a part of the purchases' traces.
func (c *consumer) follow(ctx context.Context, entries []entry) (context.Context, trace.Span) {
	places := make([]string, len(entries))
	for i, e := range entries {
		places[i] = e.text("trace")
	}
	return telemetry.StartLinkedSpan(ctx, c.options.Tracer, "write orders", places)
}

func pendingOrders(entries []entry) []repo.PendingOrder {
	list := make([]repo.PendingOrder, len(entries))
	for i, e := range entries {
		list[i] = e.PendingOrder
	}
	return list
}

// settleKnown settles those orders that the ledger has already, dead-letters those whose
// request id belongs to another order there, and returns the others.
func (c *consumer) settleKnown(ctx context.Context, entries []entry) (rest []entry, err error) {
	known, err := c.store.Orders(ctx, requestIDs(entries)...)
	if err != nil {
		return nil, err
	}
	var settled []entry
	ours := make(map[string]bool, len(entries)) // request ids of this batch
	for _, e := range entries {
		first, found := known[e.RequestID]
		switch {
		case found && e.is(first):
			settled = append(settled, e)
		case found || ours[e.RequestID]:
			if _, err := c.bury(ctx, e, "the request id stands for another order"); err != nil {
				return nil, err
			}
		default:
			ours[e.RequestID] = true
			rest = append(rest, e)
		}
	}
	return rest, c.settle(ctx, c.part, settled)
}

// rebuildPatience is how long a consumer waits for the rebuild of a counter before it
// goes on with the orders of other items.
const rebuildPatience = time.Second

// offerAgain offers those orders to Redis again whose epoch is over, so that they
// come back in the present one, and returns the others. Where the counter of the
// present one takes long, they stay pending and are claimed later.
//
// Where their epoch was not over, the allocation has fewer units than were accepted
// from it: Redis has gone back in time unnoticed. Its epoch is then ended. What does not
// fit into the allocation is dead-lettered, as it is after the new epoch has begun:
// orders and restocks change it until then.
func (c *consumer) offerAgain(ctx context.Context, entries []entry, stale *repo.StaleError) (rest []entry, err error) {
	entries, rest = split(entries, stale)
	err = c.counterSoon(ctx, stale.GoodsID, stale.Epoch, rebuildPatience)
	switch {
	case errors.Is(err, stock.ErrUnknownGoods):
		return rest, c.buryAll(ctx, entries, "there is no such goods")
	case errors.Is(err, stock.ErrBusy) && ctx.Err() == nil:
		c.options.Log.WarnContext(ctx, "orders wait for a counter", "goods", stale.GoodsID, "orders", len(entries))
		return rest, nil
	case err != nil:
		return nil, err
	}
	looked, err := c.clock(ctx)
	if err != nil {
		return nil, err
	}
	// Before the ledger: what another consumer writes in between is no order of these, and has units of these.
	place, err := c.store.Allocation(ctx, stale.GoodsID, Allocation)
	if err != nil {
		return nil, err
	}
	if entries, err = c.settleKnown(ctx, entries); err != nil {
		return nil, err
	}
	offered := make([]entry, 0, len(entries))
	for _, e := range entries {
		if e.Quantity <= place.Units {
			place.Units -= e.Quantity
		} else if buried, err := c.bury(ctx, e, "accepted more than the allocation has"); err != nil {
			return nil, err
		} else if buried {
			continue
		}
		offered = append(offered, e) // also what the stream may have lost: the script finds out
	}
	again, err := c.restore(ctx, offered, looked)
	return append(rest, again...), err
}

func split(entries []entry, epoch *repo.StaleError) (of, others []entry) {
	for _, e := range entries {
		if e.GoodsID == epoch.GoodsID && e.Epoch == epoch.Epoch {
			of = append(of, e)
		} else {
			others = append(others, e)
		}
	}
	return of, others
}

// clock is the time of the server of this partition, as the script takes it.
func (c *consumer) clock(ctx context.Context) (any, error) {
	at, err := c.ask(ctx, "clock", []string{c.part.orders()})
	return at, failed("read the clock", err)
}

// restoreAtOnce bounds the orders of one round trip.
const restoreAtOnce = 100

// restore offers orders of an epoch that is over, which the ledger did not have at a time.
// It returns those for which the counter is lost again, or the ledger is to be read anew.
// After an error, offering them again is safe.
func (c *consumer) restore(ctx context.Context, entries []entry, looked any) (rest []entry, err error) {
	for page := range slices.Chunk(entries, restoreAtOnce) {
		answers, err := c.restorePage(ctx, page, looked)
		if err != nil {
			return nil, failed("offer again", err)
		}
		for i, e := range page {
			switch answers[i].Val() {
			case absent, "LOOK":
				rest = append(rest, e)
			case "DEAD":
				c.options.Observer.DeadLettered()
				c.options.Log.ErrorContext(ctx, "lost order dead-lettered: nothing is left", "goods", e.GoodsID,
					"order", e.ID, "request", stock.KeyOf(e.RequestID), "stream", c.part.dead())
			}
		}
	}
	return rest, nil
}

// restorePage offers some orders, each of them in a step of its own. The first command
// loads the script for the others.
func (c *consumer) restorePage(ctx context.Context, page []entry, looked any) (answers []*redis.Cmd, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	run := c.script.Eval
	_, err = c.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, e := range page {
			args := slices.Concat([]any{"restore", group, e.id}, e.list(),
				[]any{e.text("limit"), e.text("earlier"), e.text("trace"), looked, c.options.Remember.Milliseconds()})
			answers = append(answers, run(ctx, pipe, c.part.keysOf(e), args...))
			run = c.script.EvalSha
		}
		return nil
	})
	return answers, err
}

// keysOf are what the script takes of an order that is offered again or dead-lettered.
func (p *partition) keysOf(e entry) []string {
	return []string{
		p.counter(e.GoodsID), p.users(e.GoodsID), p.orders(), p.dead(), p.request(e.RequestID), p.staged(e.GoodsID), p.buried(e.ID),
	}
}

func (c *consumer) buryAll(ctx context.Context, entries []entry, reason string) error {
	for _, e := range entries {
		if _, err := c.bury(ctx, e, reason); err != nil {
			return err
		}
	}
	return nil
}

// bury dead-letters an order that can never be in the ledger. Not buried: another consumer has
// dealt with it, or the stream has lost it.
func (c *consumer) bury(ctx context.Context, e entry, reason string) (buried bool, err error) {
	args := slices.Concat([]any{group, e.id, reason, c.soldOut.channel}, e.list(), []any{c.options.Remember.Milliseconds()})
	answer, err := c.ask(ctx, "bury", c.part.keysOf(e), args...)
	if err != nil || answer == int64(0) {
		return false, failed("dead-letter", err)
	}
	c.options.Observer.DeadLettered()
	c.options.Log.ErrorContext(ctx, "order dead-lettered", "reason", reason, "goods", e.GoodsID, "order", e.ID,
		"request", stock.KeyOf(e.RequestID), "stream", c.part.dead())
	return true, nil
}

func (s *Stock) settle(ctx context.Context, p *partition, entries []entry) error {
	if len(entries) == 0 {
		return nil
	}
	keys, requests := []string{p.orders()}, make([]string, 0, len(entries))
	ranks := make(map[int64]int)
	orders := make([]any, 0, 5*len(entries))
	for _, e := range entries {
		n, seen := ranks[e.GoodsID]
		if !seen {
			n = len(ranks) + 1
			ranks[e.GoodsID] = n
			keys = append(keys, p.counter(e.GoodsID), p.users(e.GoodsID), p.staged(e.GoodsID))
		}
		requests = append(requests, p.request(e.RequestID))
		orders = append(orders, e.id, n, e.Epoch, e.Quantity, e.UserID)
	}
	args := append([]any{group, s.options.Remember.Milliseconds(), len(ranks), s.soldOut.channel}, orders...)
	_, err := s.ask(ctx, "settle", append(keys, requests...), args...)
	return failed("settle", err)
}

// settleWritten takes those orders of an item off the stream that the ledger has, so
// that a rebuild does not count them twice. Its epoch has begun: nothing of an
// earlier one is written any more, so that what is left then is in no ledger.
//
// It looks at what consumers have in hand, which is all that can be written. A Redis
// that went back in time may not know that they had it: what it offers them again is
// counted twice until they have settled it.
func (s *Stock) settleWritten(ctx context.Context, goodsID int64) error {
	p := s.part(goodsID)
	asking, answered := context.WithTimeout(ctx, answerWithin)
	inHand, err := s.redis.XPending(asking, p.orders(), group).Result()
	answered()
	if redis.HasErrorPrefix(err, "NOGROUP") {
		return nil // no consumer has read of it yet
	}
	if err != nil {
		return failed("see what is in hand", err)
	}
	if inHand.Count == 0 {
		return nil
	}
	for page, err := range s.pages(ctx, p, inHand.Lower, inHand.Higher) {
		if err == nil {
			err = s.settlePage(ctx, goodsID, page)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settlePage is settleWritten for a page of the stream.
func (s *Stock) settlePage(ctx context.Context, goodsID int64, page []redis.XMessage) error {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	written, err := s.written(ctx, goodsID, page)
	if err != nil {
		return err
	}
	return s.settle(ctx, s.part(goodsID), written)
}

func (s *Stock) written(ctx context.Context, goodsID int64, page []redis.XMessage) ([]entry, error) {
	var entries []entry
	for _, m := range page {
		// What is no order is dead-lettered by the consumer that has it.
		if e, err := s.readEntry(m); err == nil && e.GoodsID == goodsID {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil, nil
	}
	known, err := s.store.Orders(ctx, requestIDs(entries)...)
	if err != nil {
		return nil, fmt.Errorf("look for orders in hand: %w", err)
	}
	return slices.DeleteFunc(entries, func(e entry) bool { return !e.is(known[e.RequestID]) }), nil
}

func requestIDs(entries []entry) []string {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.RequestID
	}
	return ids
}
