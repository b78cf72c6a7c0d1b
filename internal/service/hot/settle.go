package hot

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// settleAtOnce bounds the orders that a rebuild looks up in one go.
const settleAtOnce = 500

// settle takes orders off the stream that are in the ledger.
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
	from := inHand.Lower
	for {
		last, n, err := s.settlePage(ctx, goodsID, from, inHand.Higher)
		if err != nil || n < settleAtOnce {
			return err
		}
		from = "(" + last
	}
}

// settlePage is one step of settleWritten: a page of the stream between two ids.
func (s *Stock) settlePage(ctx context.Context, goodsID int64, from, to string) (last string, n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	p := s.part(goodsID)
	asking, answered := context.WithTimeout(ctx, answerWithin)
	page, err := s.redis.XRangeN(asking, p.orders(), from, to, settleAtOnce).Result()
	answered()
	if err != nil {
		return "", 0, failed("read orders in hand", err)
	}
	if len(page) == 0 {
		return "", 0, nil
	}
	written, err := s.written(ctx, goodsID, page)
	if err != nil {
		return "", 0, err
	}
	return page[len(page)-1].ID, len(page), s.settle(ctx, p, written)
}

// written are those orders of an item that the ledger has.
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
	return slices.DeleteFunc(entries, func(e entry) bool { return known[e.RequestID].ID != e.ID }), nil
}

func requestIDs(entries []entry) []string {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.RequestID
	}
	return ids
}
