package hot

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Observer receives what becomes of accepted orders.
type Observer interface {
	// Written is orders that the ledger has now.
	Written(orders int)
	// DeadLettered is an order that can never be in the ledger.
	DeadLettered()
	// Compared is the end of a look at all counters, with the units by which they differed
	// from the database in all, above and below, where orders that are being settled do
	// not explain it.
	Compared(units int64)
	// Repaired is a counter that had drifted and was rebuilt.
	Repaired()
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
