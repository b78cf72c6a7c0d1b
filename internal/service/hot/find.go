package hot

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/stock"
)

const (
	// clocksApart is how far the clock of a replica, which is in an order number, may be
	// ahead of that of Redis, which is in the ids of the stream, in ms.
	clocksApart = 60_000
	// findAtOnce bounds the orders of one look at a stream.
	findAtOnce = 500
)

// FindRequest finds what was accepted under a request id, where Redis remembers it: it
// does until the ledger has the order, and for a while after. Redis is not asked where
// nothing was ever sold from it. stock.ErrBackendUnavailable: Redis does not answer.
func (s *Stock) FindRequest(ctx context.Context, requestID string) (order stock.Order, ok bool, err error) {
	if used, err := s.used(ctx); err != nil || !used {
		return stock.Order{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	memories := make([]*redis.StringCmd, len(s.parts))
	_, err = s.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, p := range s.parts {
			memories[i] = pipe.Get(ctx, p.request(requestID))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return stock.Order{}, false, failed("find a request", err)
	}
	for _, m := range memories {
		memory, err := m.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err == nil {
			order, err = s.readRequest(requestID, memory)
		}
		return order, err == nil, failed("find a request", err)
	}
	return stock.Order{}, false, nil
}

// FindOrder finds an accepted order on the streams by its number. It reads what was
// accepted since the number was made, in pages, until ctx ends. An order that the ledger
// has, or gets meanwhile, is not found.
func (s *Stock) FindOrder(ctx context.Context, number string) (order stock.Order, ok bool, err error) {
	ms, ok := madeAt(number)
	if !ok {
		return stock.Order{}, false, nil
	}
	if used, err := s.used(ctx); err != nil || !used {
		return stock.Order{}, false, err
	}
	for _, p := range s.parts {
		order, ok, err := s.findOn(ctx, p, number, max(0, ms-clocksApart))
		if err != nil || ok {
			return order, ok, err
		}
	}
	return stock.Order{}, false, nil
}

// findOn finds an order on one stream from a time on. An order that is offered again
// meanwhile moves to the end of the stream, which is read last.
func (s *Stock) findOn(ctx context.Context, p *partition, number string, ms int64) (order stock.Order, ok bool, err error) {
	from := strconv.FormatInt(ms, 10)
	for {
		if err := context.Cause(ctx); err != nil {
			return stock.Order{}, false, fmt.Errorf("find an order: %w", err)
		}
		asking, answered := context.WithTimeout(ctx, answerWithin)
		page, err := s.redis.XRangeN(asking, p.orders(), from, "+", findAtOnce).Result()
		answered()
		if err != nil {
			return stock.Order{}, false, failed("find an order", err)
		}
		for _, m := range page {
			if m.Values["order"] != number {
				continue
			}
			e, err := s.readEntry(m)
			return e.Order, err == nil, failed("find an order", err)
		}
		if len(page) < findAtOnce {
			return stock.Order{}, false, nil
		}
		from = "(" + page[len(page)-1].ID
	}
}

// used tells whether anything was ever sold from Redis; once it was, it stays so.
func (s *Stock) used(ctx context.Context) (bool, error) {
	if s.wasUsed.Load() {
		return true, nil
	}
	used, err := s.store.HasAllocations(ctx, Allocation)
	if used {
		s.wasUsed.Store(true)
	}
	return used, err
}
