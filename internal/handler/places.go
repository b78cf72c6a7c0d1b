package handler

import (
	"fmt"
	"sync"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// places bounds the purchases that are served at a time, so that no item and no strategy
// takes all of them: an item may have no more places than are free for all items, and
// purchases that ask for another strategy, group or fence than their item has share what
// the item leaves free by the same rule. One item alone so has at most half of all
// places, and n that are flooded have 1/(n+1) each: as much is free for the next one.
// Purchases by the item's own strategy never compete with those that ask for another: the
// latter have at most a third of all places, and leave the item a sixth of its own.
//
// It remembers only what has a place.
type places struct {
	most int

	mu    sync.Mutex
	taken int
	items map[int64]itemPlaces
	asked map[askedMode]int
}

// itemPlaces are those of one item.
type itemPlaces struct {
	taken int
	asked int // of those taken, by purchases that ask for another mode
}

// askedMode is a mode that purchases of an item ask for.
type askedMode struct {
	goodsID int64
	mode    *service.Seller
}

// What is full where a purchase finds no place.
const (
	fullReplica  = "replica"
	fullItem     = "item"
	fullStrategy = "strategy"
)

// newPlaces returns nil, which has room for all, where the bound is 0.
func newPlaces(most int) *places {
	if most == 0 {
		return nil
	}
	return &places{most: most, items: make(map[int64]itemPlaces), asked: make(map[askedMode]int)}
}

// place is what a purchase has taken. Free it once.
type place struct {
	of      *places
	goodsID int64
	asked   *service.Seller // nil: the purchase is served as its item has it
}

// take takes a place for a purchase of an item; asked is nil unless the purchase asks for
// another mode than the item has. No purchase waits for a place: where none is free for
// it, full says for whom there is none. A queue is there already, and another one would
// only make it longer.
func (p *places) take(goodsID int64, asked *service.Seller) (taken place, full string) {
	if p == nil {
		return place{}, ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.most - p.taken
	item, mode := p.items[goodsID], askedMode{goodsID, asked}
	left := free - item.taken // to the item
	switch {
	case free == 0:
		return place{}, fullReplica
	case left <= 0:
		return place{}, fullItem
	case asked != nil && p.asked[mode] >= left-item.asked:
		return place{}, fullStrategy
	}
	p.taken++
	item.taken++
	if asked != nil {
		item.asked++
		p.asked[mode]++
	}
	p.items[goodsID] = item
	return place{p, goodsID, asked}, ""
}

// free gives the place back.
func (t place) free() {
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

// errFull is the error of a purchase that finds no place.
func errFull(full string, goodsID int64) error {
	switch full {
	case fullItem:
		return fmt.Errorf("%w: item %d has its share of the purchases that this replica serves at a time", stock.ErrBusy, goodsID)
	case fullStrategy:
		return fmt.Errorf("%w: this strategy has its share of the purchases of item %d that this replica serves at a time", stock.ErrBusy, goodsID)
	default:
		return fmt.Errorf("%w: this replica serves as many purchases as it may", stock.ErrBusy)
	}
}
