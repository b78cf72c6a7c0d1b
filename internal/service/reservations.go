package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

// Reservations are purchases with a deadline: a Seller takes their units, whatever its strategy, and
// here they are confirmed, or give the units back. They must be closed before the catalogue.
//
//  1. A reservation is held, and then ends once: it is confirmed, released or expired.
//     Nothing leaves those three, and what was seen as expired is never confirmed, however
//     late its units come back.
//  2. Units of a reservation that is released or expires can be sold again, by any strategy,
//     within a second while a replica and the database work, however many replicas are
//     killed. No unit comes back twice.
//  3. A basket is sold whole or not at all, whatever strategies sell its items. What a basket
//     holds that is not sold comes back, also where its replica dies.
//  4. The time is the database's. No clock of a replica decides.
type Reservations struct {
	store     *repo.Store
	catalogue *Catalogue
	jobs      *background.Jobs
	// confirming confirms together what is paid while others are being confirmed.
	confirming *queue.Shared[*repo.Payment, repo.Confirmation]
	// waiting confirms each by itself what others had locked then: it waits for that, with few connections.
	waiting  *queue.Shared[*repo.Payment, repo.Confirmation]
	locked   lockedItems
	longest  time.Duration
	observer ReservationObserver
}

// ReservationObserver records what becomes of reservations. It may be called at the same time.
type ReservationObserver interface {
	// ReservationsEnded counts reservations that have been confirmed, released or expired.
	ReservationsEnded(state stock.State, reservations int)
	// PaidLate counts a confirmation that came after the expiry.
	PaidLate()
}

// confirmLocked is how many payments of one replica wait at the same time for reservations that others have locked.
const confirmLocked = 4

// NewReservations keeps reservations no longer than longest, with all that they are extended by.
func NewReservations(store *repo.Store, catalogue *Catalogue, longest time.Duration, observer ReservationObserver) *Reservations {
	confirming := queue.Options[int, []*repo.Payment, map[*repo.Payment]repo.Confirmation]{
		Doing: "confirm reservations", Most: catalogue.batch, Within: catalogue.timeout, Changes: true, Log: catalogue.log,
	}
	waiting := confirming
	waiting.Most, waiting.Writers = 1, confirmLocked
	return &Reservations{
		store: store, catalogue: catalogue, jobs: background.NewJobs(catalogue.log), longest: longest, observer: observer,
		confirming: queue.Share(store.Confirm, nil, confirming), waiting: queue.Share(store.ConfirmLocked, nil, waiting),
	}
}

// Close waits a moment for the strategies to be notified of units that have come back.
func (r *Reservations) Close() error { return r.jobs.Close(backgroundGrace) }

// Read finds a reservation. stock.ErrUnknownReservation: there is none.
func (r *Reservations) Read(ctx context.Context, number string) (stock.Reservation, error) {
	return r.store.Reservation(ctx, number)
}

// Accepted is the reservation of a purchase that was accepted, now or earlier, and that asked for
// this time, or for none. stock.ErrKeyReused: it was to be held for another time. stock.ErrUnknownOutcome: it was
// accepted, and cannot be read.
func (r *Reservations) Accepted(ctx context.Context, asked time.Duration, outcome stock.Outcome) (stock.Reservation, error) {
	held, err := r.store.Reservation(ctx, outcome.Order.ID)
	if err != nil {
		return held, fmt.Errorf("%w: the units are held: %w", stock.ErrUnknownOutcome, err)
	}
	if asked != 0 && held.TTL != asked {
		return held, stock.ErrKeyReused
	}
	return held, nil
}

// Confirm makes an order of a reservation that is held, together with those that are paid while others
// are being written. again: it was confirmed under this reference before. The errors are those of
// repo.Confirmation. stock.ErrUnknownOutcome: the same again finds out.
func (r *Reservations) Confirm(ctx context.Context, number, reference string) (confirmed stock.Reservation, again bool, err error) {
	paid := &repo.Payment{Number: number, Reference: reference}
	answers, err := r.confirming.Get(ctx, paid)
	if _, ok := answers[paid]; err == nil && !ok {
		answers, err = r.waiting.Get(ctx, paid)
	}
	if err != nil {
		return confirmed, false, err
	}
	answer := answers[paid]
	switch {
	case answer.Rejected == nil && !answer.Again:
		r.observer.ReservationsEnded(stock.Confirmed, 1)
	case errors.Is(answer.Rejected, stock.ErrExpired):
		r.observer.PaidLate()
	}
	return answer.Reservation, answer.Again, answer.Rejected
}

// Release gives the units of a reservation back that is held: see repo.Store.Release.
func (r *Reservations) Release(ctx context.Context, number string) (released stock.Reservation, again bool, err error) {
	released, again, err = r.release(ctx, number)
	if err == nil && !again {
		r.cameBack(ctx, released.GoodsID, repo.Back{Units: released.Quantity, Buyers: []string{released.UserID}})
	}
	return released, again, err
}

// release is Release without a word to the strategies.
func (r *Reservations) release(ctx context.Context, number string) (released stock.Reservation, again bool, err error) {
	released, again, err = r.store.Release(ctx, number)
	if err == nil && !again {
		r.observer.ReservationsEnded(stock.Released, 1)
	}
	return released, again, err
}

// Extend has a reservation expire ttl from now, as far as it may be held so long:
// see repo.Store.Extend.
func (r *Reservations) Extend(ctx context.Context, number string, ttl time.Duration) (stock.Reservation, error) {
	return r.store.Extend(ctx, number, ttl, r.longest)
}

// GiveBack gives units of an order back after the sale, all that are left of it where units is
// 0. A key that gave units of the same order back before gives none, and again is set.
// stock.ErrUnknownOrder: there is none. stock.ErrReturned: fewer are left.
// stock.ErrStockLimit: the item would have more than stock.MaxStock.
// stock.ErrKeyReused: the key stands for something else. stock.ErrBusy: the ledger does not
// have the order yet. Damaged units cannot be sold again: the ledger has the return, and a correction that takes them off.
func (r *Reservations) GiveBack(ctx context.Context, number string, units int64, key string, damaged bool) (back stock.Order, again bool, err error) {
	if key != "" {
		if back, again, err = r.returned(ctx, number, units, key, damaged); again || err != nil {
			return back, again, err
		}
	}
	back, err = r.store.GiveBack(ctx, number, units, stock.ReturnKey.Of(cmp.Or(key, NewKey())), damaged)
	switch {
	case err == nil && damaged:
	case err == nil:
		r.cameBack(ctx, back.GoodsID, repo.Back{Units: back.Quantity, Buyers: []string{back.UserID}})
	case errors.Is(err, stock.ErrDuplicateRequest), errors.Is(err, stock.ErrReturned): // on Vitess by a copy, at the same moment
		if first, again, failed := r.returned(ctx, number, units, key, damaged); again || failed != nil {
			return first, again, failed
		}
	case errors.Is(err, stock.ErrUnknownOrder):
		if _, err = r.catalogue.Order(ctx, number); err == nil {
			err = fmt.Errorf("%w: order %s is not in the ledger yet", stock.ErrBusy, number)
		}
	}
	return back, false, err
}

// returned finds what a key has given back before.
func (r *Reservations) returned(ctx context.Context, number string, units int64, key string, damaged bool) (back stock.Order, again bool, err error) {
	id, off := stock.ReturnKey.Of(key), stock.DamageKey.Of(key)
	orders, err := r.store.Orders(ctx, id, off)
	back, again = orders[id]
	if _, took := orders[off]; again && (took != damaged || back.ID != number || units != 0 && back.Quantity != units) {
		return stock.Order{}, false, stock.ErrKeyReused
	}
	return back, again, err
}

// cameBack notifies the strategies that keep a copy of the stock. One that is not notified in
// time finds the units when it has sold all others.
func (r *Reservations) cameBack(ctx context.Context, goodsID int64, back repo.Back) {
	r.jobs.Finish(ctx, notifying, func(ctx context.Context) error { return r.restocked(ctx, goodsID, back) })
}

const notifying = "notify the strategies of units that have come back"

func (r *Reservations) restocked(ctx context.Context, goodsID int64, back repo.Back) error {
	err := r.catalogue.Restocked(ctx, goodsID, back.Units, back.Buyers...)
	if err != nil {
		r.catalogue.log.WarnContext(ctx, "a strategy was not notified of units that have come back", "goods", goodsID, "units", back.Units, "error", err)
	}
	return err
}

// notifyEach is what one of many items has, and how long the round that has ended their reservations
// waits: where a backend hangs, those of other items must not.
const notifyEach = 400 * time.Millisecond

// allCameBack is cameBack for many items, one after the other.
func (r *Reservations) allCameBack(ctx context.Context, back map[int64]repo.Back) {
	if len(back) == 0 {
		return
	}
	waiting, end := context.WithTimeout(ctx, notifyEach)
	defer end()
	_ = r.jobs.Do(waiting, notifyWithin, notifying, func(ctx context.Context) error {
		for id, own := range back {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			bounded, cancel := context.WithTimeout(ctx, notifyEach)
			_ = r.restocked(bounded, id, own) // the log has it
			cancel()
		}
		return nil
	})
}

const (
	// expireEvery is how often a replica looks for reservations that are over.
	expireEvery = 250 * time.Millisecond
	// expireAtOnce bounds the reservations of one transaction.
	expireAtOnce = 500
	// expireWithin bounds one round; what is left is for the next one.
	expireWithin = 30 * time.Second
)

// KeepExpiring ends reservations that are over until ctx ends. Any number of replicas may do so
// at once, and each may be killed anywhere.
func (r *Reservations) KeepExpiring(ctx context.Context) {
	rounds := background.Rounds{
		Doing: "end reservations", Failed: "reservations not ended", Every: expireEvery, Within: expireWithin, Log: r.catalogue.log,
	}
	rounds.Repeat(ctx, func(ctx context.Context) error {
		_, err := r.Expire(ctx)
		return unlessBusy(err)
	})
}

// Expire is one round of KeepExpiring: it ends all reservations that are over. Those of items whose rows are locked end
// beside it, once their rows are free: the next round does not wait for them.
func (r *Reservations) Expire(ctx context.Context) (ended int, err error) {
	back := make(map[int64]repo.Back)
	defer r.allCameBack(ctx, back)
	for {
		n, some, err := r.store.Expire(ctx, expireAtOnce)
		if locked, ok := errors.AsType[*repo.LockedItemsError](err); ok {
			r.awaitLocked(ctx, locked.IDs)
		} else if err != nil {
			return ended, err
		}
		r.observer.ReservationsEnded(stock.Expired, n)
		ended += n
		for id, own := range some {
			back[id] = repo.Back{Units: back[id].Units + own.Units, Buyers: append(back[id].Buyers, own.Buyers...)}
		}
		if n < expireAtOnce {
			return ended, nil
		}
	}
}

// lockedItems are those whose rows a replica waits for, to end their reservations.
type lockedItems struct {
	mu      sync.Mutex
	waiting map[int64]bool
}

// maxLockedItems is how many locked items a replica waits for at the same time: each has a connection.
const maxLockedItems = 4

// take reports whether an item is to be waited for.
func (l *lockedItems) take(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[id] || len(l.waiting) >= maxLockedItems {
		return false
	}
	if l.waiting == nil {
		l.waiting = make(map[int64]bool)
	}
	l.waiting[id] = true
	return true
}

func (l *lockedItems) drop(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, id)
}

// awaitLocked begins to end the reservations of items whose rows are locked. Which of too many have their turn now is
// chance, so that none waits for the same others every time.
func (r *Reservations) awaitLocked(ctx context.Context, ids []int64) {
	over, end := context.WithCancel(ctx)
	end() // no job is waited for
	for _, at := range rand.Perm(len(ids)) {
		id := ids[at]
		if !r.locked.take(id) {
			continue
		}
		err := r.jobs.Do(over, expireWithin, "end reservations of a locked item", func(ctx context.Context) error {
			defer r.locked.drop(id)
			return r.expireLocked(ctx, id)
		})
		if errors.Is(err, stock.ErrBusy) { // it has not begun
			r.locked.drop(id)
		}
	}
}

// expireLocked ends reservations of an item, and waits for its row. One that stays locked for too long is tried again
// by a later round.
func (r *Reservations) expireLocked(ctx context.Context, id int64) error {
	ended, back, err := r.store.ExpireLocked(ctx, expireAtOnce, id)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, stock.ErrBusy) {
			return nil
		}
		return err
	}
	r.observer.ReservationsEnded(stock.Expired, ended)
	if own, ok := back[id]; ok {
		bounded, cancel := context.WithTimeout(ctx, notifyWithin)
		defer cancel()
		_ = r.restocked(bounded, id, own) // the log has it
	}
	return nil
}
