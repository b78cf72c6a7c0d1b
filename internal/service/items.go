package service

import (
	"context"
	"fmt"
	"sync"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/stock"
)

// maxKnown bounds the items that a replica remembers, and so its memory: about 4 MiB.
const maxKnown = 100_000

// items remembers the items that exist. Only the admin creates items, and the API deletes
// none, so that no client can make it forget one. It does not remember which ids are
// unknown: an item sells at once that another replica has just created.
type items struct {
	switches *switches
	search   *queue.Shared[int64, bool]
	most     int

	mu    sync.RWMutex
	known map[int64]struct{}
}

func newItems(c *Catalogue) *items {
	return &items{switches: c.switches, most: maxKnown, known: make(map[int64]struct{}), search: shareRead(c, "find items", c.store.Existing)}
}

// require looks an item up where it is not remembered. All callers on this replica that
// wait for an answer share one statement; each leaves with its own ctx.
// stock.ErrUnknownGoods: there is no such item.
func (i *items) require(ctx context.Context, goodsID int64) error {
	// What sells from Redis goes on without the database, also on a replica that has not
	// sold the item yet.
	if i.isKnown(goodsID) || i.switches.hasUnitsInRedis(goodsID) {
		return nil
	}
	existing, err := i.search.Get(ctx, goodsID)
	switch {
	case err != nil:
		return err
	case !existing[goodsID]:
		return fmt.Errorf("item %d: %w", goodsID, stock.ErrUnknownGoods)
	}
	i.remember(goodsID)
	return nil
}

func (i *items) isKnown(goodsID int64) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	_, ok := i.known[goodsID]
	return ok
}

// remember evicts any item where there are too many.
func (i *items) remember(goodsID int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.known) >= i.most {
		for evicted := range i.known {
			delete(i.known, evicted)
			break
		}
	}
	i.known[goodsID] = struct{}{}
}

// forget is for an item whose row was deleted by hand.
func (i *items) forget(goodsID int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.known, goodsID)
}
