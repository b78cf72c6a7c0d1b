package service

import (
	"context"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Feed lists the rows of the ledger, and remembers how far those readers are that name themselves.
type Feed struct {
	store *repo.Store

	mu      sync.Mutex
	readers map[string]place
}

// Page selects rows of the ledger: those after a cursor, of an item or of all where GoodsID is 0, of some kinds or of those
// that sell.
type Page struct {
	GoodsID, After int64
	Kinds          []stock.Kind
}

// place is where a reader is.
type place struct {
	page  Page
	asked time.Time
}

// maxReaders bounds the readers that a replica remembers. The one that asked longest ago is
// forgotten for another.
const maxReaders = 16

// NewFeed lists the orders of a store.
func NewFeed(store *repo.Store) *Feed {
	return &Feed{store: store, readers: make(map[string]place)}
}

// List lists up to limit orders: see repo.Store.OrdersAfter. A reader that is named has dealt with all
// up to the cursor of the page.
func (f *Feed) List(ctx context.Context, reader string, p Page, limit int) (orders []stock.Order, next int64, err error) {
	if reader != "" {
		f.remember(reader, p)
	}
	return f.store.OrdersAfter(ctx, p.GoodsID, p.After, limit, p.Kinds...)
}

func (f *Feed) remember(reader string, p Page) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers[reader] = place{p, time.Now()}
	if len(f.readers) <= maxReaders {
		return
	}
	longest := reader
	for name, at := range f.readers {
		if at.asked.Before(f.readers[longest].asked) {
			longest = name
		}
	}
	delete(f.readers, longest)
}

// Lags tells for how long the first order has been in the ledger that a reader has not asked
// beyond: 0 where there is none.
func (f *Feed) Lags(ctx context.Context) (map[string]time.Duration, error) {
	lags, now := make(map[string]time.Duration), time.Now() // one instant for all: they are compared
	for reader, page := range f.places() {
		first, next, err := f.store.OrdersAfter(ctx, page.GoodsID, page.After, 1, page.Kinds...)
		for err == nil && len(first) == 0 && next > page.After { // a page is bounded by rows as well
			page.After = next
			first, next, err = f.store.OrdersAfter(ctx, page.GoodsID, page.After, 1, page.Kinds...)
		}
		if err != nil {
			return nil, err
		}
		lags[reader] = 0
		if len(first) > 0 {
			lags[reader] = max(0, now.Sub(first[0].CreatedAt))
		}
	}
	return lags, nil
}

func (f *Feed) places() map[string]Page {
	f.mu.Lock()
	defer f.mu.Unlock()
	pages := make(map[string]Page, len(f.readers))
	for reader, at := range f.readers {
		pages[reader] = at.page
	}
	return pages
}
