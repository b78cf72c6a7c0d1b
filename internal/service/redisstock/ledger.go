package redisstock

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// ledgerLook and ledgerRest are the first and the longest pause between two looks into the ledger.
	ledgerLook, ledgerRest = 4 * time.Millisecond, 32 * time.Millisecond
	// ledgerAgain is the pause after a look that failed: it may be for a shard that is down, and has then delayed others.
	ledgerAgain = 250 * time.Millisecond
	// ledgerAtOnce bounds the requests of one look.
	ledgerAtOnce = 500
	// ledgerWithin bounds a look.
	ledgerWithin = time.Second
)

// shareLedger has one look for all waiting requests of this replica that are on one shard; nil: the database has none.
func shareLedger(find queue.Query[string, stock.Order], shard func(string) int, log *slog.Logger) *queue.Shared[string, stock.Order] {
	return queue.Share(find, shard, queue.Options[int, []string, map[string]stock.Order]{
		Doing: "look into the ledger", Most: ledgerAtOnce, Within: ledgerWithin, Log: log,
	})
}

// written returns the order of the ledger under a request id when it is there. All requests look at the same
// moments, those that wait longer less often; a look that fails is repeated.
func written(ctx context.Context, ledger *queue.Shared[string, stock.Order], requestID string) (stock.Order, error) {
	for rest := ledgerLook; ; rest = min(2*rest, ledgerRest) {
		now := time.Now()
		if err := pause.For(ctx, now.Truncate(rest).Add(rest).Sub(now)); err != nil {
			return stock.Order{}, err
		}
		orders, err := ledger.Get(ctx, requestID)
		if order, ok := orders[requestID]; err == nil && ok {
			return order, nil
		}
		if err != nil {
			_ = pause.For(ctx, ledgerAgain) // the loop sees for itself whether ctx has ended
		}
	}
}

// Await returns when the ledger has an accepted order. Where it does not
// within ctx, stock.ErrUnknownOutcome; where it has another order under the request
// id, stock.ErrKeyReused.
func (s *Stock) Await(ctx context.Context, order stock.Order) error {
	first, err := written(ctx, s.ledger, order.RequestID)
	switch {
	case err != nil:
		return fmt.Errorf("%w: the ledger does not have the order yet: %w", stock.ErrUnknownOutcome, err)
	case first.ID != order.ID:
		return stock.ErrKeyReused
	default:
		return nil
	}
}

// Lag is how far the ledger is behind what was accepted, on all replicas.
type Lag struct {
	// Orders are on the streams.
	Orders int64
	// Oldest is how long the oldest of them has been there, by Redis' clock; 0 where there
	// is none.
	Oldest time.Duration
}

// Lag asks Redis how many orders wait for the ledger, and since when.
func (s *Stock) Lag(ctx context.Context) (Lag, error) {
	pipe := s.redis.Pipeline()
	now := pipe.Time(ctx)
	lengths := make([]*redis.IntCmd, len(s.parts))
	firsts := make([]*redis.XMessageSliceCmd, len(s.parts))
	for i, p := range s.parts {
		lengths[i] = pipe.XLen(ctx, p.orders())
		firsts[i] = pipe.XRangeN(ctx, p.orders(), "-", "+", 1)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return Lag{}, failed("ask for the lag", err)
	}
	var lag Lag
	for i := range s.parts {
		lag.Orders += lengths[i].Val()
		for _, first := range firsts[i].Val() {
			since, err := addedAt(first.ID)
			if err != nil {
				return Lag{}, err
			}
			lag.Oldest = max(lag.Oldest, now.Val().Sub(since))
		}
	}
	return lag, nil
}

// addedAt is when an entry of a stream was added, by its id.
func addedAt(id string) (time.Time, error) {
	digits, _, _ := strings.Cut(id, "-")
	at, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no id of a stream: %w", id, err)
	}
	return time.UnixMilli(at), nil
}
