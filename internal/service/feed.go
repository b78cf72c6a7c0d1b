package service

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Feed lists the rows of the ledger, and remembers how far those readers are that name themselves: of too many, the one that
// asked longest ago is forgotten.
type Feed struct {
	store   *repo.Store
	readers *lru.Cache[string, Page]
}

// Page selects rows of the ledger: those after a cursor, of an item or of all where GoodsID is 0, of some kinds or of those
// that sell.
type Page struct {
	GoodsID, After int64
	Kinds          []stock.Kind
}

// maxReaders bounds the readers that a replica remembers.
const maxReaders = 16

// NewFeed lists the orders of a store.
func NewFeed(store *repo.Store) *Feed {
	return &Feed{store, mostRecent[string, Page](maxReaders)}
}

// List lists up to limit orders: see repo.Store.OrdersAfter. A reader that is named has dealt with all
// up to the cursor of the page.
func (f *Feed) List(ctx context.Context, reader string, p Page, limit int) (orders []stock.Order, next int64, err error) {
	if reader != "" {
		f.readers.Add(reader, p)
	}
	return f.store.OrdersAfter(ctx, p.GoodsID, p.After, limit, p.Kinds...)
}

// Lags tells for how long the first order has been in the ledger that a reader has not asked
// beyond: 0 where there is none.
func (f *Feed) Lags(ctx context.Context) (map[string]time.Duration, error) {
	lags, now := make(map[string]time.Duration), time.Now() // one instant for all: they are compared
	for _, reader := range f.readers.Keys() {
		page, _ := f.readers.Peek(reader)
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
