package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// ErrUnknownStrategy reports that the registry has no strategy of this name.
var ErrUnknownStrategy = errors.New("unknown strategy")

// ErrNotFenceable reports that a strategy has no lock whose token could fence it.
var ErrNotFenceable = errors.New("strategy cannot be fenced")

// Catalogue has every strategy of the registry, as one replica runs it.
type Catalogue struct {
	store    *repo.Store
	clients  *backend.Clients
	offers   []*offer
	byName   map[string]*offer
	redis    Ahead // nil where redis-stock cannot sell here
	recalls  *recaller
	changes  *background.Changes
	switches *switches
	requests *queue.Shared[string, stock.Order] // of the ledger, by their ids
	// unwritten are the items that have units in the allocation of redis-stock.
	unwritten *queue.Shared[int64, bool]
	items     *items
	looks     *looks
	pings     pings
	timeout   time.Duration // of a deduction
	batch     int           // the most that is written together
	standard  Mode
	// maxQuantity is that of items that have none.
	maxQuantity int64
	log         *slog.Logger
}

// Ahead is redis-stock, which accepts orders ahead of the ledger: a *redisstock.Stock.
type Ahead interface {
	Pending(ctx context.Context, goodsID int64) (units int64, err error)
	Await(ctx context.Context, order stock.Order) error
	FindRequest(ctx context.Context, requestID string) (order stock.Order, ok bool, err error)
	FindOrder(ctx context.Context, number string) (order stock.Order, ok bool, err error)
	Drift(ctx context.Context, goodsID int64) (redisstock.Drift, error)
	Lag(ctx context.Context) (redisstock.Lag, error)
	Restocked(ctx context.Context, goodsID, units int64, buyers ...string) error
	LimitChanged(ctx context.Context, goodsID int64) error
}

// offer is a strategy of the registry, with a Seller for each mode that it can have.
type offer struct {
	entry    strategy.Entry
	strategy strategy.Strategy
	observer strategy.Observer
	batchers []*strategy.Batcher
	sellers  map[Mode]*Seller
	// rejected is why the configuration rejects it, and rejectedUnfenced why it does so
	// only without a fence; empty: it does not.
	rejected, rejectedUnfenced string
	unconfigured               error // an *UnconfiguredError, or nil
}

// NewCatalogue makes the strategies. Each deduction ends within timeout. The version of
// Redis is read where an entry names a minimum: a strategy for which it is too old is
// rejected with an UnconfiguredError, and where Redis does not answer now none is
// checked.
func NewCatalogue(ctx context.Context, entries []strategy.Entry, deps strategy.Deps, timeout time.Duration) *Catalogue {
	c := &Catalogue{
		store: deps.Store, clients: deps.Lock.Clients, log: cmp.Or(deps.Log, slog.Default()),
		byName: make(map[string]*offer, len(entries)), switches: newSwitches(deps.Store),
		timeout: timeout, batch: deps.Group.Batch, maxQuantity: stock.MaxQuantity, changes: new(background.Changes),
	}
	c.requests = shareRead(c, "find requests", c.store.Orders, c.store.ShardOf)
	allocated := func(ctx context.Context, ids ...int64) (map[int64]bool, error) {
		return deps.Store.Allocated(ctx, redisstock.Allocation, ids...)
	}
	c.unwritten = shareRead(c, "find units in Redis", allocated, c.store.ShardOfItem)
	c.items = newItems(c)
	c.looks = newLooks(deps.Store, c.switches, timeout, deps.Log)
	c.recalls = &recaller{holders: deps.Store.Allocators, offers: c.byName, log: c.log, changes: c.changes}
	deps.Changes = c.changes
	redis := c.redisVersion(ctx, entries)
	for _, entry := range entries {
		own := deps
		own.Store = deps.Store.As(entry.Name)
		if entry.Watchdog && deps.Lock.Unrenewed {
			entry.Guarantees.Renews = false
		}
		o := c.newOffer(entry, own)
		o.rejected = notHere(entry, deps.Store.Cluster(), deps.Store.Sharded(), deps.Lock.NodeLocks)
		o.unconfigured = cmp.Or(unconfigured(entry, c.clients), tooOld(entry, redis))
		c.offers = append(c.offers, o)
		c.byName[entry.Name] = o
		if ahead, ok := o.strategy.(Ahead); ok {
			c.redis = ahead
		}
	}
	return c
}

// notHere is why a strategy does not sell on such a database, or empty.
func notHere(entry strategy.Entry, cluster string, sharded, nodeLocks bool) string {
	switch {
	case cluster != "" && entry.OneServer && !nodeLocks:
		return fmt.Sprintf("the database is %s, whose nodes do not share its lock", cluster)
	case sharded && entry.NotOnShards != "":
		return "the database has shards of Vitess, " + entry.NotOnShards
	}
	return ""
}

// shareRead has one statement answer all that wait for the same query, of those keys that are on one shard.
func shareRead[K comparable, V any](c *Catalogue, doing string, query queue.Query[K, V], shard func(K) int) *queue.Shared[K, V] {
	if !c.store.Sharded() {
		shard = nil
	}
	return queue.Share(query, shard, queue.Options[int, []K, map[K]V]{Doing: doing, Most: c.batch, Within: c.timeout, Late: c.store.Late, Log: c.log})
}

func (c *Catalogue) newOffer(entry strategy.Entry, deps strategy.Deps) *offer {
	o := &offer{
		entry: entry, strategy: entry.Make(deps), observer: deps.Observer(), sellers: make(map[Mode]*Seller),
	}
	bounds := deps.Group
	bounds.Timeout, bounds.Log, bounds.Observer = c.timeout, deps.Log, o.observer
	if _, ok := o.strategy.(Ahead); !ok { // its outcomes are not the row's
		bounds.Settled = func(ctx context.Context, goodsID int64) error {
			_, err := deps.Store.GoodsSettled(ctx, goodsID)
			return err
		}
	}
	together := o.strategy.Deduct
	if !deps.Store.Sharded() { // items may be on several
		together = strategy.Joined(o.strategy, bounds)
	}
	c.addSellers(o, Mode{Strategy: entry.Name}, o.strategy.Deduct, together, bounds)
	if fencer, ok := o.strategy.(strategy.Fencer); ok {
		c.addSellers(o, Mode{Strategy: entry.Name, Fence: true}, fencer.DeductFenced, fencer.DeductFenced, bounds)
	}
	return o
}

// addSellers adds the sellers of a mode: one that sells alone, and one whose batches are sold
// grouped. A strategy that sells together what waits has one for both.
func (c *Catalogue) addSellers(o *offer, m Mode, alone, grouped strategy.Deduct, bounds strategy.Group) {
	batcher := strategy.NewBatcher(grouped, c.requests.Get, bounds)
	o.batchers = append(o.batchers, batcher)
	if o.entry.Together {
		alone = batcher.Deduct
	}
	o.sellers[m] = &Seller{m, o, alone}
	m.Group = true
	o.sellers[m] = &Seller{m, o, batcher.Deduct}
}

func (o *offer) fenceable() bool {
	_, ok := o.strategy.(strategy.Fencer)
	return ok
}

// Within bounds a purchase, from the search for its key to its answer.
func (c *Catalogue) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

// Restocked notifies redis-stock, which keeps a copy of the stock, that units were added to the row of an item,
// or given back to it by buyers.
func (c *Catalogue) Restocked(ctx context.Context, goodsID, units int64, buyers ...string) error {
	if c.redis == nil {
		return nil
	}
	return c.changes.Run(goodsID, stock.Change{Kind: stock.ChangeByNotice}, func() error {
		return c.redis.Restocked(ctx, goodsID, units, buyers...)
	})
}

// LimitChanged notifies redis-stock, which checks the limit of one buyer in Redis, that it was changed.
func (c *Catalogue) LimitChanged(ctx context.Context, goodsID int64) error {
	if c.redis == nil {
		return nil
	}
	return c.changes.Run(goodsID, stock.Change{Kind: stock.ChangeByNotice}, func() error {
		return c.redis.LimitChanged(ctx, goodsID)
	})
}

// Waiting is how many grouped purchases wait in the queues of each strategy.
func (c *Catalogue) Waiting() map[string]int {
	waiting := make(map[string]int, len(c.offers))
	for _, o := range c.offers {
		for _, b := range o.batchers {
			waiting[o.entry.Name] += b.Waiting()
		}
	}
	return waiting
}

// ErrNoOutbox reports that no strategy of a replica answers before the ledger has an order.
var ErrNoOutbox = errors.New("no strategy accepts orders ahead of the ledger")

// Lag is how far the ledger is behind what was accepted.
func (c *Catalogue) Lag(ctx context.Context) (redisstock.Lag, error) {
	if c.redis == nil {
		return redisstock.Lag{}, ErrNoOutbox
	}
	return c.redis.Lag(ctx)
}

// Close waits for batches that are being written, and closes the strategies that
// hold something open: all at once, so that one whose backend hangs delays no other.
func (c *Catalogue) Close() error {
	errs := make([]error, len(c.offers))
	var closing sync.WaitGroup
	for i, o := range c.offers {
		closing.Go(func() { errs[i] = o.close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// close closes all queues at once: none sells on while another one ends.
func (o *offer) close() error {
	var closing sync.WaitGroup
	for _, b := range o.batchers {
		closing.Go(b.Close)
	}
	closing.Wait()
	if closer, ok := o.strategy.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
