package handler

import (
	"fmt"
	"sync"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// places bounds limits concurrent purchases so that no item and no strategy takes all slots: an item may
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
	mode    *service.Seller
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
	asked   *service.Seller // nil: the purchase is served in its item's mode
}

// take takes a slot for a purchase of an item; asked is nil unless the purchase asks for a mode
// other than the item's. It never waits: full names what has no slot left. Another queue before
// that of the lock would only add to the wait.
func (p *slots) take(goodsID int64, asked *service.Seller) (taken slot, full string) {
	if p == nil {
		return slot{}, ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.most - p.taken
	item, mode := p.items[goodsID], askedMode{goodsID, asked}
	left := free - item.taken // to the item
	switch {
	case free == 0:
		return slot{}, fullReplica
	case left <= 0:
		return slot{}, fullItem
	case asked != nil && p.asked[mode] >= left-item.asked:
		return slot{}, fullStrategy
	}
	p.taken++
	item.taken++
	if asked != nil {
		item.asked++
		p.asked[mode]++
	}
	p.items[goodsID] = item
	return slot{p, goodsID, asked}, ""
}

func (t slot) release() {
	p := t.of
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	item := p.items[t.goodsID]
	item.taken--
	if t.asked != nil {
		item.asked--
		mode := askedMode{t.goodsID, t.asked}
		if p.asked[mode]--; p.asked[mode] == 0 {
			delete(p.asked, mode)
		}
	}
	if item.taken == 0 {
		delete(p.items, t.goodsID)
		return
	}
	p.items[t.goodsID] = item
}

// shedKey marks the context of a request whose purchase was shed.
const shedKey = "shed"

// shedError rejects a purchase for which there is no slot.
type shedError struct {
	full    string
	goodsID int64
}

func (e *shedError) Unwrap() error { return stock.ErrBusy }

func (e *shedError) Error() string {
	switch e.full {
	case fullItem:
		return fmt.Sprintf("%v: item %d has its share of the purchases that this replica serves at a time", stock.ErrBusy, e.goodsID)
	case fullStrategy:
		return fmt.Sprintf("%v: this strategy has its share of the purchases of item %d that this replica serves at a time", stock.ErrBusy, e.goodsID)
	default:
		return fmt.Sprintf("%v: this replica serves as many purchases as it may", stock.ErrBusy)
	}
}
