package redisstock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// What the script answers for a purchase; see lua/1_common.lua.
const (
	answerSold    = 1
	answerKnown   = 2
	answerShort   = 0
	answerLimited = -1
	answerNobody  = -2
)

// Deduct accepts a batch of purchases, first come first served. A
// request id that is known is answered with its first order, as replayed.
//
// A purchase that does not fit is rejected after a look into the database: units that are
// in the row are moved into Redis and sold. Where units of other allocations would do,
// the purchase is rejected with stock.ErrAllocated.
//
// stock.ErrUnknownOutcome: the answer of Redis did not come. stock.ErrBusy: the
// counter could not be rebuilt in time. What is sold of the batch stays sold: then only
// the other purchases are rejected with the error.
func (s *Stock) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("sell from redis: %w", err)
	}
	if s.soldOut.rejects(goodsID, batch) {
		return rejectAll(batch), nil
	}
	orders, err := numbers(batch)
	if err != nil {
		return nil, err
	}
	at := time.Now().UnixMilli()
	answers, err := s.sellOrVerify(ctx, goodsID, batch, orders, at)
	if err != nil {
		return nil, err
	}
	return s.outcomes(goodsID, batch, orders, answers, at)
}

// numbers makes the order numbers of a batch: they are chosen before Redis is
// asked, so that asking twice is still one order.
func numbers(batch []stock.Purchase) ([]string, error) {
	orders := make([]string, len(batch))
	for i, p := range batch {
		if orders[i] = p.Number; p.Number != "" {
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make order number: %w", err)
		}
		orders[i] = id.String()
	}
	return orders, nil
}

// verdict is what the script says of one purchase.
type verdict struct {
	answer int64
	// text is what is left, and of a purchase that does not fit the epoch, too; or what is
	// remembered of a known request; or the limit, what its buyer has, and the epoch.
	text string
	// cause is why a purchase that does not fit is rejected; nil: nothing else is left.
	cause error
}

func (v verdict) isSold() bool {
	return v.answer == answerSold || v.answer == answerKnown
}

// sell asks the script. installed tells whether there is a counter to sell from.
func (s *Stock) sell(ctx context.Context, goodsID int64, batch []stock.Purchase, orders []string, at int64) (list []verdict, installed bool, err error) {
	p := s.part(goodsID)
	keys := make([]string, 0, 3+len(batch))
	keys = append(keys, p.counter(goodsID), p.users(goodsID), p.orders())
	args := make([]any, 0, 4+5*len(batch))
	args = append(args, goodsID, escape(s.options.Replica), at, telemetry.Traceparent(ctx))
	for i, purchase := range batch {
		keys = append(keys, p.request(purchase.RequestID))
		args = append(args, purchase.RequestID, purchase.Quantity, purchase.UserID, orders[i], ttlOf(purchase))
	}
	// Where the client leaves in the middle of it, the answer is read all the same.
	asking, answered := backend.Uncut(ctx)
	defer answered()
	answer, err := s.call(asking, "sell", keys, args...)
	if err != nil {
		return nil, false, s.fault(err)
	}
	if answer == absent {
		return nil, false, nil
	}
	list, err = readVerdicts(answer, len(batch))
	if err != nil {
		return nil, false, s.fault(err)
	}
	return list, true, nil
}

// ttlOf is how the script takes how long units are held; empty: they are sold.
func ttlOf(p stock.Purchase) string {
	if p.TTL == 0 {
		return ""
	}
	return strconv.FormatInt(p.TTL.Microseconds(), 10)
}

func readVerdicts(answer any, n int) ([]verdict, error) {
	rows, ok := answer.([]any)
	if !ok || len(rows) != n {
		return nil, fmt.Errorf("script answered %v to %d purchases", answer, n)
	}
	list := make([]verdict, n)
	for i, row := range rows {
		pair, ok := row.([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("script answered %v to a purchase", row)
		}
		code, isNumber := pair[0].(int64)
		text, isText := pair[1].(string)
		if !isNumber || !isText {
			return nil, fmt.Errorf("script answered %v to a purchase", row)
		}
		list[i] = verdict{answer: code, text: text}
	}
	return list, nil
}

// outcomes are what the clients are answered, at a time in ms.
func (s *Stock) outcomes(goodsID int64, batch []stock.Purchase, orders []string, answers []verdict, at int64) ([]stock.Outcome, error) {
	list := make([]stock.Outcome, len(batch))
	for i, p := range batch {
		switch v := answers[i]; v.answer {
		case answerSold:
			left, err := strconv.ParseInt(v.text, 10, 64)
			if err != nil {
				return nil, s.fault(err)
			}
			list[i] = stock.Outcome{Durable: stock.InRedis, Order: stock.Order{
				ID: orders[i], Kind: p.Kind(), RequestID: p.RequestID, GoodsID: goodsID, Quantity: p.Quantity,
				UserID: p.UserID, Remaining: left, Strategy: s.store.Strategy(), Replica: s.options.Replica,
				CreatedAt: instant(at),
			}}
		case answerKnown:
			known, err := s.known(goodsID, p, orders[i], v.text)
			if err != nil {
				return nil, s.fault(err)
			}
			list[i] = known
		case answerLimited:
			list[i].Rejected = readLimited(v.text)
		case answerNobody:
			list[i].Rejected = stock.ErrUserUnknown
		default:
			list[i].Rejected = cmp.Or(answers[i].cause, stock.ErrInsufficientStock)
		}
	}
	return list, nil
}

// readLimited is the rejection of a buyer who would have too many.
func readLimited(text string) error {
	limited := new(stock.UserLimitError)
	if _, err := fmt.Sscan(text, &limited.PerUser, &limited.Has); err != nil {
		return stock.ErrUserLimit // it is one all the same
	}
	return limited
}

// known answers a request id that Redis remembers. Where it remembers the number that we have just made, the
// client of a cluster has asked twice; but all copies of a basket have the same number for a line.
func (s *Stock) known(goodsID int64, p stock.Purchase, order, memory string) (stock.Outcome, error) {
	first, err := s.readRequest(p.RequestID, memory)
	if err != nil {
		return stock.Outcome{}, err
	}
	if !first.Answers(goodsID, p) {
		return stock.Outcome{Rejected: stock.ErrKeyReused}, nil
	}
	return stock.Outcome{Order: first, Replayed: first.ID != order || stock.IsLine(p.RequestID) || stock.IsLineNumber(p.Number), Durable: stock.InRedis}, nil
}

func rejectAll(batch []stock.Purchase) []stock.Outcome {
	list := make([]stock.Outcome, len(batch))
	for i := range list {
		list[i].Rejected = stock.ErrInsufficientStock
	}
	return list
}

// errBusy tells that no counter was there before ctx ended.
func errBusy(ctx context.Context, goodsID int64) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%w: the counter of item %d was not rebuilt in time: %w", stock.ErrBusy, goodsID, cause)
	}
	return fmt.Errorf("wait for the counter of item %d: %w", goodsID, cause)
}
