// Package service is what stockd does, whatever protocol asks for it: it sells through a
// strategy, makes purchases idempotent, and manages the items.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/service/room"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Shop sells to buyers. What every strategy owes them is done here: the first answer to a key that was used
// before, and the recall of units from other strategies.
type Shop struct {
	*Catalogue
	reservations *Reservations
	mayChoose    bool
	slots        *slots
	buyers       *rate.Limiter
	holders      *holders
	room         *room.Room
}

// Admission is which purchases a replica serves.
type Admission struct {
	// Choose lets purchases ask for another mode than their item's.
	Choose bool
	// Purchases are served at a time, of one item at most half of them; 0 means unlimited.
	Purchases int
	// Buyer is how often one buyer may buy.
	Buyer rate.Rate
	// Held is how many units one buyer may hold at the same time, of all items together; 0 means unlimited.
	Held int64
	// Room is the waiting room; nil: no item has one.
	Room *room.Room
}

// NewShop sells what a catalogue has.
func NewShop(c *Catalogue, r *Reservations, a Admission) *Shop {
	return &Shop{
		Catalogue: c, reservations: r, mayChoose: a.Choose, slots: newSlots(a.Purchases), buyers: rate.New(a.Buyer), holders: newHolders(c, a.Held),
		room: a.Room,
	}
}

// Request is a purchase of an item.
type Request struct {
	GoodsID int64
	stock.Purchase

	// Asked is the mode that it asks for. What it leaves open is the item's.
	Asked stock.Choice
	// counted reports that the rate of its buyer has counted another line of its basket.
	counted bool
	// rejected is why a look has found that it cannot be sold. unseen is why there was no look that was due.
	rejected, unseen error
	// basket takes part in its waiting rooms where the purchase is a line of it; nil: the purchase does by itself.
	basket *visits
}

// Buy sells, or returns why it does not. Catalogue.Within bounds it.
//
// stock.ErrUnknownOutcome: sending the same key again finds out. stock.ErrKeyReused: the key was used for other
// content. stock.ErrUnknownGoods: there is no such item, and nothing was locked or written. A *FieldError, a
// *ModeError, ErrChoiceRejected, a *ShedError and a *rate.Error are why it was not admitted.
func (s *Shop) Buy(ctx context.Context, r Request) (stock.Outcome, error) {
	if r.TTL > 0 { // a reservation can be confirmed once it is answered
		r.Number, r.Durable = cmp.Or(r.Number, s.NewKey(r.GoodsID, "")), stock.InSQL
	}
	by, asked, wrong := s.choose(r)
	if wrong == nil && s.looks.isDue(r.GoodsID, by.looksFirst()) { // before the key is searched for: a copy that took the last unit is found then
		r.rejected, r.unseen = s.looks.look(ctx, r.GoodsID, r.Purchase)
	}
	first, err := s.first(ctx, r, stock.InSQL, true) // a key that was sold before has its answer
	if err != nil || first.Replayed {
		return first, err
	}
	taken, rejected := s.admit(r, asked, wrong)
	if rejected == nil {
		defer taken.release()
		first, leave, err := s.enter(ctx, by, r)
		if err != nil || first.Replayed {
			return first, err
		}
		outcome, err := s.sell(ctx, by, r)
		if err == nil {
			err = outcome.Rejected
		}
		if leave(ctx, err); !errors.Is(err, stock.ErrUserLimit) && !errors.Is(err, stock.ErrHoldLimit) {
			return outcome, err
		}
		rejected = err
	}
	// What is rejected may repeat what is pending.
	first, err = s.first(ctx, r, stock.InRedis, s.switches.hasUnitsInRedis(r.GoodsID))
	if err == nil && !first.Replayed {
		err = rejected
	}
	return first, err
}

// pendingCopy is the answer to a copy that redis-stock has accepted and the ledger does not have yet. redis-stock finds it by
// itself; units of an item that is sold out are not allocated to it. Where Redis does not answer, the purchase is sold:
// what is pending there is then dead-lettered, so that the ledger has one order under a key.
func (s *Shop) pendingCopy(ctx context.Context, by *Seller, r Request) (first stock.Outcome, err error) {
	if by.sellsFromRedis() && r.rejected == nil || errors.Is(r.rejected, stock.ErrInsufficientStock) {
		return stock.Outcome{}, nil
	}
	pending, err := s.mayBePending(ctx, r)
	if err != nil {
		return stock.Outcome{}, err
	}
	first, err = s.first(ctx, r, stock.InRedis, pending)
	if _, down := errors.AsType[*stock.BackendError](err); down && ctx.Err() == nil {
		return stock.Outcome{}, nil
	}
	return first, err
}

// enter takes the admission of the item's waiting room, where it has one, unless a copy of the purchase is pending: then that
// is the answer. leave must be called with what became of the purchase; a basket leaves with all of its lines.
func (s *Shop) enter(ctx context.Context, by *Seller, r Request) (first stock.Outcome, leave func(context.Context, error), err error) {
	if first, err = s.pendingCopy(ctx, by, r); err != nil || first.Replayed {
		return first, nil, err
	}
	alone := visits{requestID: r.RequestID}
	leave, err = s.room.Enter(ctx, r.GoodsID, r.UserID, cmp.Or(r.basket, &alone).requestID)
	if errors.Is(err, stock.ErrNotAdmitted) { // a copy of what is pending has used the admission
		pending, failed := s.mayBePending(ctx, r)
		if failed != nil {
			return stock.Outcome{}, nil, failed
		}
		if first, failed := s.first(ctx, r, stock.InRedis, pending); failed != nil || first.Replayed {
			return first, nil, failed
		}
	}
	if err == nil && r.basket != nil {
		r.basket.leave, leave = append(r.basket.leave, leave), func(context.Context, error) {}
	}
	return stock.Outcome{}, leave, err
}

// visits are the waiting rooms that a basket has the admissions of.
type visits struct {
	requestID string
	leave     []func(context.Context, error)
}

func (v *visits) end(ctx context.Context, err error) {
	for _, leave := range v.leave {
		leave(ctx, err)
	}
}

// admit takes a slot, after the whole request was read, so that slow clients occupy none; wrong is why no strategy
// sells. A purchase that finds no slot does not count for the rate of its buyer, so that its retry is not throttled.
func (s *Shop) admit(r Request, asked Mode, wrong error) (taken slot, err error) {
	if wrong != nil {
		return slot{}, wrong
	}
	if taken, err = s.slots.take(r.GoodsID, asked); err != nil || r.counted {
		return taken, err
	}
	if wait := s.buyers.Take(r.UserID, time.Now()); wait > 0 {
		taken.release()
		return slot{}, &rate.Error{Wait: wait}
	}
	return taken, nil
}

// sell has a strategy take the units, and waits for the ledger where the purchase wants that. It passes no purchase
// of an unknown item on: a client may invent any number of them, and locks, queues and copies in Redis would be made
// for each.
func (s *Shop) sell(ctx context.Context, by *Seller, r Request) (outcome stock.Outcome, err error) {
	ctx, span := telemetry.StartSpan(ctx, "deduct")
	if span.IsRecording() {
		span.SetAttributes(attribute.String("stockd.strategy", by.Strategy))
	}
	defer span.End()
	begun := time.Now()
	defer func() { by.observer.Deducted(outcome, err, time.Since(begun)) }()
	if err := s.items.require(ctx, r.GoodsID); err != nil {
		return stock.Outcome{}, err
	}
	if s.holders != nil && r.Kind() == stock.Hold {
		end, err := s.holders.begin(ctx, r.Purchase)
		if err != nil {
			return s.copyOr(ctx, r, err)
		}
		defer end() // when the ledger has what it holds
	}
	switch {
	case r.unseen != nil:
		return stock.Outcome{}, r.unseen
	case r.rejected != nil:
		return stock.Outcome{Rejected: r.rejected}, nil
	}
	outcome, err = s.sellOnce(ctx, by, r)
	switch {
	case errors.Is(err, stock.ErrUnknownGoods):
		s.items.known.Remove(r.GoodsID) // its row was deleted by hand
	case err == nil && errors.Is(outcome.Rejected, stock.ErrInsufficientStock) && by.looksFirst():
		s.looks.note(r.GoodsID, false)
	}
	if err == nil && outcome.Durable == stock.InRedis && r.Durable == stock.InSQL {
		return s.awaitLedger(ctx, r, outcome)
	}
	return outcome, err
}

// tries bounds how often a purchase is tried: each time a copy of it was rolled back in between, or units that were
// recalled for it were moved again.
const tries = 20

// sellOnce answers a copy of a purchase with the first answer, and recalls the units that it lacks from the
// allocations of other strategies.
func (s *Shop) sellOnce(ctx context.Context, by *Seller, r Request) (outcome stock.Outcome, err error) {
	batch := []stock.Purchase{r.Purchase}
	var vain vainRecalls
	for try := range tries {
		outcomes, err := by.deduct(ctx, r.GoodsID, batch)
		copied := errors.Is(err, stock.ErrDuplicateRequest)
		if err == nil {
			outcome = outcomes[0]
		} else if !copied {
			return stock.Outcome{}, fmt.Errorf("deduct by %s: %w", by.Strategy, err)
		}
		recalled, err := s.recallFor(ctx, by, r, &vain, &outcome, try)
		if err != nil {
			return stock.Outcome{}, err
		}
		if recalled {
			continue
		}
		if !copied && (outcome.Rejected == nil || !r.Keyed) {
			return outcome, nil
		}
		// A copy of this purchase has been sold since, or may have taken the last unit: then this one has its answer.
		first, err := s.written(ctx, r)
		switch {
		case err != nil && errors.Is(outcome.Rejected, stock.ErrUnknownOutcome):
			return outcome, nil
		case err != nil || first.Replayed:
			return first, err
		case !copied:
			return outcome, nil
		}
	}
	return stock.Outcome{}, fmt.Errorf("%w: %d times a copy of a purchase was rolled back, or the units of item %d were moved", stock.ErrBusy, tries, r.GoodsID)
}

// recallFor recalls the units that a purchase is short of, if it is, for another try. A rejection is final where
// nothing comes back, or where a look finds why: the item is not on sale.
func (s *Shop) recallFor(ctx context.Context, by *Seller, r Request, vain *vainRecalls, outcome *stock.Outcome, try int) (again bool, err error) {
	short, ok := errors.AsType[*stock.AllocatedError](outcome.Rejected)
	if !ok {
		return false, nil
	}
	if short.Withheld {
		s.looks.note(r.GoodsID, true)
		outcome.Rejected, err = s.looks.look(ctx, r.GoodsID, r.Purchase)
		return err == nil && outcome.Rejected == nil, err
	}
	if vain.prove(short) {
		outcome.Rejected = stock.ErrInsufficientStock
		return false, nil
	}
	err = s.recalls.recallFor(ctx, r.GoodsID, by.Strategy, short, vain, try)
	return err == nil, err
}

// first is the answer that a purchase has got earlier under its key: from the ledger, or from what redis-stock has
// accepted ahead of it. An outcome that is not Replayed means that there is none; a purchase without a key has none.
//
// One search of the ledger serves all callers that wait for one. It is asked where the order may be; of what is rejected
// Redis is asked where the item had units there a moment ago: else a rejection would cost what it is there to save.
// stock.ErrKeyReused: the key stands for another purchase. stock.ErrUnknownOutcome: Redis does not answer.
func (s *Shop) first(ctx context.Context, r Request, in stock.Durability, asked bool) (outcome stock.Outcome, err error) {
	begun := time.Now()
	switch {
	case !r.Keyed:
		return stock.Outcome{}, nil
	case in == stock.InSQL:
		outcome, err = s.written(ctx, r)
	case s.redis != nil && asked:
		outcome, err = s.pending(ctx, r)
	}
	if o, ok := s.byName[outcome.Order.Strategy]; ok && err == nil && outcome.Replayed {
		o.observer.Deducted(outcome, nil, time.Since(begun))
	}
	return outcome, err
}

// mayBePending reports whether redis-stock may have accepted a purchase of the item that is not in the ledger. Units are in
// the allocation before the first of them is sold, on any replica, and leave it with their order: where the database has
// none now, the ledger has all orders. One look serves all purchases that wait for one.
func (s *Shop) mayBePending(ctx context.Context, r Request) (bool, error) {
	switch {
	case s.redis == nil || !r.Keyed:
		return false, nil
	case s.switches.hasUnitsInRedis(r.GoodsID):
		return true, nil
	}
	items, err := s.unwritten.Get(ctx, r.GoodsID)
	return items[r.GoodsID], err
}

func (s *Shop) written(ctx context.Context, r Request) (stock.Outcome, error) {
	orders, err := s.requests.Get(ctx, r.RequestID)
	if err != nil {
		return stock.Outcome{}, err
	}
	order, ok := orders[r.RequestID]
	return r.answeredBy(order, ok, stock.InSQL)
}

func (s *Shop) pending(ctx context.Context, r Request) (stock.Outcome, error) {
	order, ok, err := s.redis.FindRequest(ctx, r.RequestID)
	if err != nil {
		return stock.Outcome{}, fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	outcome, err := r.answeredBy(order, ok, stock.InRedis)
	if err == nil && ok && r.Durable == stock.InSQL {
		return s.awaitLedger(ctx, r, outcome)
	}
	return outcome, err
}

// awaitLedger waits until the ledger has an order that was only accepted. Where it has another one under the key, a
// copy of the purchase was sold beside it: that one is the answer to both, and the order that was accepted is
// dead-lettered.
func (s *Shop) awaitLedger(ctx context.Context, r Request, o stock.Outcome) (stock.Outcome, error) {
	err := s.redis.Await(ctx, o.Order)
	if errors.Is(err, stock.ErrKeyReused) {
		if first, failed := s.written(ctx, r); failed != nil || first.Replayed {
			return first, failed
		}
	}
	if err != nil {
		return stock.Outcome{}, fmt.Errorf("wait for the ledger: %w", err)
	}
	o.Durable = stock.InSQL
	return o, nil
}

// answeredBy is the answer to a purchase under whose key there is an order, if ok.
func (r Request) answeredBy(order stock.Order, ok bool, in stock.Durability) (stock.Outcome, error) {
	if ok && !order.Answers(r.GoodsID, r.Purchase) {
		return stock.Outcome{}, stock.ErrKeyReused
	}
	return stock.Outcome{Order: order, Replayed: ok, Durable: in}, nil
}
