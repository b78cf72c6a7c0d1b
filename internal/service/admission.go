package service

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// Seller sells through one strategy in one Mode.
type Seller struct {
	Mode
	*offer
	deduct strategy.Deduct
}

func (s *Seller) sellsFromRedis() bool {
	_, ok := s.strategy.(Ahead)
	return ok
}

// looksFirst reports that purchases are rejected by a look at the item before the strategy is asked. That is for those
// that exclude each other: the race of the others is what they are there to show. redis-stock sells without the database.
func (s *Seller) looksFirst() bool {
	return s.entry.Guarantees.ExclusiveInProcess && !s.sellsFromRedis()
}

// lockWait is the longest wait for the lock of an item that one purchase can ask for; 0 where it waits for none, or
// together with others.
func (s *Seller) lockWait() time.Duration {
	if w, ok := s.strategy.(strategy.Waiter); ok && !s.Group {
		return w.LockWait()
	}
	return 0
}

// FieldError rejects a purchase for one of its fields.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

// ModeError rejects a purchase whose strategy cannot sell: ErrUnknownStrategy, ErrStrategyRejected or
// ErrNotFenceable.
type ModeError struct {
	Strategy string
	Err      error
}

func (e *ModeError) Error() string { return e.Err.Error() }

// Unwrap returns why it cannot.
func (e *ModeError) Unwrap() error { return e.Err }

// ErrChoiceRejected rejects a purchase that asks for another mode than its item's.
var ErrChoiceRejected = errors.New("requests may not choose")

// choose finds who sells: what the purchase asks for, the item's choice, or the default. asked is the mode where it
// is not the item's own. The item's maximum is checked before anything is locked or counted, and after the ledger
// was searched for the purchase, so that sales from before the maximum was lowered are replayed.
func (s *Shop) choose(r Request) (by *Seller, asked Mode, err error) {
	if most := s.MaxQuantity(r.GoodsID); r.Quantity > most {
		return nil, asked, &FieldError{"quantity", fmt.Sprintf("must be a whole number from 1 to %d, not %d", most, r.Quantity)}
	}
	mode, own := s.Mode(r.GoodsID, r.Asked)
	if mode != own {
		asked = mode
	}
	if !s.mayChoose && mode != own {
		return nil, asked, fmt.Errorf("%w: item %d is sold by %s, and deduct.choose is off; PATCH /goods/%d of the admin API changes it",
			ErrChoiceRejected, r.GoodsID, own, r.GoodsID)
	}
	if by, err = s.In(mode); err != nil {
		return nil, asked, &ModeError{mode.Strategy, err}
	}
	return by, asked, by.canWait(r.MaxWait)
}

// canWait rejects a wait that a purchase cannot have.
func (s *Seller) canWait(wait time.Duration) error {
	switch most := s.lockWait(); {
	case wait == 0 || wait <= most:
		return nil
	case s.Group:
		return &FieldError{"wait_ms", "cannot be given with group=true: grouped purchases wait for their lock together"}
	case most == 0:
		return &FieldError{"wait_ms", "cannot be given: " + s.Strategy + " has no lock that a purchase waits for"}
	default:
		return &FieldError{"wait_ms", fmt.Sprintf("must be a whole number from 1 to %d, which is lock.wait, not %d", most.Milliseconds(), wait.Milliseconds())}
	}
}

// slots limits concurrent purchases so that no item and no strategy takes all slots: an item may
// have no more slots than are free for all items, and purchases that ask for a strategy, group
// or fence other than their item's share what the item leaves free by the same rule. One item
// alone thus has at most half of all slots, and n flooded items have 1/(n+1) each, with as much
// free for the next one. Purchases by the item's own strategy do not compete with those that
// ask for another: the latter have at most a third of all slots, and leave the item a sixth.
//
// It remembers only items and modes that have a slot.
type slots struct {
	most int

	mu    sync.Mutex
	taken int
	items map[int64]itemSlots
	asked map[askedMode]int
}

// itemSlots are those of one item.
type itemSlots struct {
	taken int
	asked int // of those taken, by purchases that ask for another mode
}

// askedMode is a mode that purchases of an item ask for.
type askedMode struct {
	goodsID int64
	mode    Mode
}

// What is full when a purchase is shed.
const (
	fullReplica  = "replica"
	fullItem     = "item"
	fullStrategy = "strategy"
)

// newSlots returns nil, which means unlimited, for 0.
func newSlots(most int) *slots {
	if most == 0 {
		return nil
	}
	return &slots{most: most, items: make(map[int64]itemSlots), asked: make(map[askedMode]int)}
}

// slot is held by one purchase. Release it once.
type slot struct {
	of      *slots
	goodsID int64
	asked   Mode // zero: the purchase is served in its item's mode
}

// take takes a slot for a purchase of an item; asked is zero unless the purchase asks for a mode
// other than the item's. It never waits: another queue before that of the lock would only add to
// the wait. A *ShedError: there is no slot left.
func (p *slots) take(goodsID int64, asked Mode) (taken slot, err error) {
	if p == nil {
		return slot{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.most - p.taken
	share, mode := p.items[goodsID], askedMode{goodsID, asked}
	left := free - share.taken // to the item
	switch {
	case free == 0:
		return slot{}, &ShedError{fullReplica, goodsID}
	case left <= 0:
		return slot{}, &ShedError{fullItem, goodsID}
	case asked != Mode{} && p.asked[mode] >= left-share.asked:
		return slot{}, &ShedError{fullStrategy, goodsID}
	}
	p.taken++
	share.taken++
	if asked != (Mode{}) {
		share.asked++
		p.asked[mode]++
	}
	p.items[goodsID] = share
	return slot{p, goodsID, asked}, nil
}

func (t slot) release() {
	p := t.of
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	share := p.items[t.goodsID]
	share.taken--
	if t.asked != (Mode{}) {
		share.asked--
		mode := askedMode{t.goodsID, t.asked}
		if p.asked[mode]--; p.asked[mode] == 0 {
			delete(p.asked, mode)
		}
	}
	if share.taken == 0 {
		delete(p.items, t.goodsID)
		return
	}
	p.items[t.goodsID] = share
}

// ShedError rejects a purchase for which there is no slot.
type ShedError struct {
	// Full is what serves as many as it may: the "replica", the "item" or the "strategy".
	Full    string
	GoodsID int64
}

// Unwrap makes it busy.
func (e *ShedError) Unwrap() error { return stock.ErrBusy }

func (e *ShedError) Error() string {
	switch e.Full {
	case fullItem:
		return fmt.Sprintf("%v: item %d has its share of the purchases that this replica serves at a time", stock.ErrBusy, e.GoodsID)
	case fullStrategy:
		return fmt.Sprintf("%v: this strategy has its share of the purchases of item %d that this replica serves at a time", stock.ErrBusy, e.GoodsID)
	default:
		return fmt.Sprintf("%v: this replica serves as many purchases as it may", stock.ErrBusy)
	}
}
