// Package service is what stockd does, whatever protocol asks for it: it sells through a
// strategy, makes purchases idempotent, and manages the items.
package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Seller sells through one strategy in one Mode. What every strategy owes its buyers is
// done here: a time limit, the first answer to a key that was used before, and the recall
// of units from other strategies. The stages of a purchase are its methods, from Deduct
// down; each passes it to the next.
type Seller struct {
	Mode
	*offer
	catalogue *Catalogue
	deduct    strategy.Deduct
}

// LockWait is the longest wait for the lock of an item that one purchase can ask for; 0 where
// it waits for none, or together with others.
func (s *Seller) LockWait() time.Duration {
	if w, ok := s.strategy.(strategy.Waiter); ok && !s.Group {
		return w.LockWait()
	}
	return 0
}

// Deduct takes stock for one purchase. Catalogue.Replay has searched the ledger for its
// key before, since the unique key of the ledger does not find one that is archived, and
// Catalogue.Within bounds both.
//
// The outcome's order contains the request id also where Deduct fails: after
// stock.ErrUnknownOutcome, sending it again finds out. stock.ErrKeyReused: the
// request id was used for other content. stock.ErrUnknownGoods: there is no such item,
// and nothing was locked or written. The strategy's errors pass through.
func (s *Seller) Deduct(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	ctx, span := telemetry.StartSpan(ctx, "deduct")
	if span.IsRecording() {
		span.SetAttributes(attribute.String("stockd.strategy", s.entry.Name))
	}
	defer span.End()
	begun := time.Now()
	outcome, err := s.deductNamed(ctx, goodsID, p)
	s.observer.Deducted(outcome, err, time.Since(begun))
	return outcome, err
}

// deductNamed gives a purchase the id and the number that it lacks.
func (s *Seller) deductNamed(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if p.RequestID == "" {
		key, err := newKey("")
		if err != nil {
			return stock.Outcome{}, err
		}
		p.RequestID = stock.BuyerKey(key, p.UserID)
	}
	if p.TTL > 0 {
		number, err := newKey(p.Number)
		if err != nil {
			return stock.Outcome{}, err
		}
		p.Number, p.Durable = number, stock.InSQL
	}
	outcome, err := s.deductKnown(ctx, goodsID, p)
	if err == nil && p.Durable == stock.InSQL && outcome.Durable == stock.InRedis && s.ownsOutbox() {
		outcome, err = s.catalogue.inLedger(ctx, goodsID, p, outcome)
	}
	outcome.Order.RequestID = p.RequestID
	return outcome, err
}

// deductKnown passes no purchase of an unknown item on: a client may invent any number of
// them, and locks, queues and copies in Redis would be made for each.
func (s *Seller) deductKnown(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if err := s.catalogue.items.require(ctx, goodsID); err != nil {
		return stock.Outcome{}, err
	}
	outcome, err := s.deductOnce(ctx, goodsID, p)
	if errors.Is(err, stock.ErrUnknownGoods) {
		s.catalogue.items.forget(goodsID)
	}
	return outcome, err
}

// replays bounds how often a purchase is tried whose request id was in the ledger when it
// was written and gone when it was searched for: each time, a copy of it must have been
// rolled back in between.
const replays = 10

// deductOnce answers a copy of a purchase with the first answer.
func (s *Seller) deductOnce(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	for range replays {
		outcome, err := s.deductRecalling(ctx, goodsID, p)
		duplicate := errors.Is(err, stock.ErrDuplicateRequest)
		if !duplicate && (err != nil || outcome.Rejected == nil || !p.Keyed) {
			return outcome, err
		}
		// A copy of this purchase has been sold since, or may have taken the last unit:
		// then this purchase has its answer.
		first, err := s.catalogue.replay(ctx, goodsID, p)
		if err != nil && errors.Is(outcome.Rejected, stock.ErrUnknownOutcome) {
			return outcome, nil
		}
		if err != nil || first.Replayed {
			return first, err
		}
		if !duplicate {
			return outcome, nil
		}
	}
	return stock.Outcome{}, fmt.Errorf("%w: copies of request %s keep being rolled back", stock.ErrBusy, stock.KeyOf(p.RequestID))
}

// recallTries bounds how often a purchase is repeated for which units are recalled: other
// purchases may take them in between, or another strategy moves them again.
const recallTries = 20

// deductRecalling repeats a purchase when the units that it lacked are recalled from the
// allocations of other strategies.
func (s *Seller) deductRecalling(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	var vain vainRecalls
	for try := range recallTries {
		outcomes, err := s.deduct(ctx, goodsID, []stock.Purchase{p})
		if err != nil {
			return stock.Outcome{}, fmt.Errorf("deduct by %s: %w", s.entry.Name, err)
		}
		short, ok := errors.AsType[*stock.AllocatedError](outcomes[0].Rejected)
		if !ok {
			return outcomes[0], nil
		}
		if vain.prove(short) {
			return stock.Outcome{Rejected: stock.ErrInsufficientStock}, nil
		}
		recalled, err := s.catalogue.recalls.recall(ctx, goodsID, s.entry.Name)
		if errors.Is(err, stock.ErrUnknownOutcome) { // of the recall: nothing of the purchase was sent
			continue
		}
		if err != nil && recalled.Returned == 0 { // otherwise another backend had what may suffice
			return stock.Outcome{}, err
		}
		if vain.add(short, recalled); recalled.Returned > 0 {
			continue
		}
		if err := pause.For(ctx, time.Duration(try)*time.Millisecond); err != nil {
			return stock.Outcome{}, fmt.Errorf("recall the units of item %d: %w", goodsID, err)
		}
	}
	return stock.Outcome{}, fmt.Errorf("%w: the units of item %d keep being moved", stock.ErrBusy, goodsID)
}

// ownsOutbox reports whether its strategy may answer before the ledger has the order.
func (s *Seller) ownsOutbox() bool {
	_, ok := s.strategy.(strategy.Outbox)
	return ok
}

// inLedger waits until the ledger has an order that was only accepted. Where it has another one under the key, a copy of
// the purchase was sold beside it: that one is the answer to both, and the order that was accepted is dead-lettered.
func (c *Catalogue) inLedger(ctx context.Context, goodsID int64, p stock.Purchase, o stock.Outcome) (stock.Outcome, error) {
	err := c.outbox.Await(ctx, o.Order)
	if errors.Is(err, stock.ErrKeyReused) {
		if first, failed := c.replay(ctx, goodsID, p); failed != nil || first.Replayed {
			return first, failed
		}
	}
	if err != nil {
		return stock.Outcome{}, fmt.Errorf("wait for the ledger: %w", err)
	}
	o.Durable = stock.InSQL
	return o, nil
}

// newKey is the caller's key, or a new one where there is none.
func newKey(key string) (string, error) {
	if key != "" {
		return key, nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make request id: %w", err)
	}
	return id.String(), nil
}

// Within bounds a purchase, from the search for its key to its answer.
func (c *Catalogue) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

// Replay answers a key with the order that the ledger has under it. An outcome that is
// not Replayed means that there is none; a purchase without a key has none. One search
// serves all callers that wait for one. stock.ErrKeyReused: the order is another.
func (c *Catalogue) Replay(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if !p.Keyed {
		return stock.Outcome{}, nil
	}
	begun := time.Now()
	outcome, err := c.replay(ctx, goodsID, p)
	c.observe(outcome, begun)
	return outcome, err
}

// ReplayPending is Replay for orders that are accepted and not in the ledger yet, for a
// purchase that would be rejected otherwise. It waits for the ledger where the purchase
// wants that. It looks where the item has units in Redis, or had a moment ago: else a rejection
// would cost what it is there to save. stock.ErrUnknownOutcome: the server that has such orders
// does not answer.
func (c *Catalogue) ReplayPending(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if !p.Keyed || c.outbox == nil || !c.switches.hasUnitsInRedis(goodsID) {
		return stock.Outcome{}, nil
	}
	begun := time.Now()
	first, ok, err := c.outbox.FindRequest(ctx, p.RequestID)
	if err != nil {
		return stock.Outcome{}, fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	outcome, err := firstAnswer(goodsID, p, first, ok)
	if err != nil || !outcome.Replayed {
		return stock.Outcome{}, err
	}
	outcome.Durable = stock.InRedis
	if p.Durable == stock.InSQL {
		outcome, err = c.inLedger(ctx, goodsID, p, outcome)
	}
	c.observe(outcome, begun)
	return outcome, err
}

// ReplayElsewhere is ReplayPending for a purchase that a seller is about to sell, where
// another strategy may have it pending.
// Where Redis does not answer, the purchase is sold: what is pending there is then
// dead-lettered, so that the ledger has one order under a key.
func (c *Catalogue) ReplayElsewhere(ctx context.Context, s *Seller, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if s.ownsOutbox() {
		return stock.Outcome{}, nil
	}
	outcome, err := c.ReplayPending(ctx, goodsID, p)
	if _, down := errors.AsType[*stock.BackendError](err); down && ctx.Err() == nil {
		return stock.Outcome{}, nil
	}
	return outcome, err
}

// observe counts a replayed order as one of the strategy that sold it.
func (c *Catalogue) observe(outcome stock.Outcome, begun time.Time) {
	if o, ok := c.byName[outcome.Order.Strategy]; ok && outcome.Replayed {
		o.observer.Deducted(outcome, nil, time.Since(begun))
	}
}

// replay searches the ledger for the first answer to a key.
func (c *Catalogue) replay(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	orders, err := c.requests.Get(ctx, p.RequestID)
	if err != nil {
		return stock.Outcome{}, err
	}
	first, ok := orders[p.RequestID]
	return firstAnswer(goodsID, p, first, ok)
}

// firstAnswer is the answer to a purchase under whose key there is an order, if ok.
func firstAnswer(goodsID int64, p stock.Purchase, order stock.Order, ok bool) (stock.Outcome, error) {
	if ok && !order.Answers(goodsID, p) {
		return stock.Outcome{}, stock.ErrKeyReused
	}
	return stock.Outcome{Order: order, Replayed: ok}, nil
}
