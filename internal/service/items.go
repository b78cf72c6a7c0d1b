package service

import (
	"context"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/stock"
)

// maxKnown bounds the items that a replica remembers, and so its memory: about 12 MiB.
const maxKnown = 100_000

// items remembers the items that exist. Only the admin creates items, and the API deletes
// none, so that no client can make it forget one. It does not remember which ids are
// unknown: an item sells at once that another replica has just created.
type items struct {
	switches *switches
	search   *queue.Shared[int64, bool]
	known    *lru.Cache[int64, struct{}]
}

func newItems(c *Catalogue) *items {
	return &items{c.switches, shareRead(c, "find items", c.store.Existing, c.store.ShardOfItem), mostRecent[int64, struct{}](maxKnown)}
}

// mostRecent remembers so many values, at least one.
func mostRecent[K comparable, V any](size int) *lru.Cache[K, V] {
	cache, err := lru.New[K, V](size)
	if err != nil { // impossible: the size is positive
		panic(err)
	}
	return cache
}

// require looks an item up where it is not remembered. All callers on this replica that
// wait for an answer share one statement; each leaves with its own ctx.
// stock.ErrUnknownGoods: there is no such item.
func (i *items) require(ctx context.Context, goodsID int64) error {
	// What sells from Redis goes on without the database, also on a replica that has not
	// sold the item yet.
	if i.known.Contains(goodsID) || i.switches.hasUnitsInRedis(goodsID) {
		return nil
	}
	existing, err := i.search.Get(ctx, goodsID)
	switch {
	case err != nil:
		return err
	case !existing[goodsID]:
		return fmt.Errorf("item %d: %w", goodsID, stock.ErrUnknownGoods)
	}
	i.known.Add(goodsID, struct{}{})
	return nil
}
