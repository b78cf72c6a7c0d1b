// Package redisstock sells from a counter in Redis ahead of the database without loss: one script
// decides and appends the order to a stream, and consumers write the stream into the
// ledger, each order exactly once.
//
// The units of an item are moved out of its row into an allocation, and leave it in the
// transaction that writes the order. So the counter is always
//
//	units of the allocation − units pending on the stream,
//
// or less. Each time the allocation is loaded from the row, or the counter is rebuilt
// because Redis has lost it, an epoch begins; the database writes an order only in the
// epoch in which it was accepted, and an older one is offered again first. A Redis that
// has lost its memory can therefore not sell a unit twice.
//
// An allocation is open or closed. Recall closes it: the counter of the next epoch sells
// nothing, its units go back into the row, but for those of pending orders, and these
// are written in that epoch. The next purchase opens it again.
//
//  1. An accepted order is written into the ledger once, however often it is delivered and
//     whichever replica accepted it. A request id is sold once, also where the reply to it
//     was lost.
//  2. A Redis that forgets sells no unit twice. A Redis that goes back in time is recognized.
//  3. A database that is away is waited for. What is accepted while it is away is written
//     when it is back.
//  4. What can never be written is dead-lettered: its units are sold again, and they do not
//     count for its buyer.
//  5. The limit of a buyer counts each order once, whether it is pending, in the ledger or
//     forgotten by Redis.
//  6. A counter that differs from the database is repaired, and sells nothing beyond the
//     stock meanwhile. Any replica continues a rebuild that stopped half way.
//  7. A panic or a failure at one order or item does not stop the others.
//  8. A replica closes in time, whether Redis and the database answer or not.
package redisstock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

// Allocation is the name of the allocation, and of the strategy.
const Allocation = "redis-stock"

// Options say how to sell from Redis. What is zero is as Defaults has it.
type Options struct {
	// Replica names this replica among the consumers and in its orders.
	Replica string
	// Prefix begins every key. All replicas on one database have the same, and
	// two databases never share one on the same Redis.
	Prefix string
	// Partitions is the number of streams, the same on all replicas.
	Partitions int
	// Batch is the most orders that are written in one transaction.
	Batch int
	// Linger is how long a consumer lets orders gather between two batches.
	Linger time.Duration
	// ClaimAfter is how long an order may be in the hands of one consumer before
	// another takes it over.
	ClaimAfter time.Duration
	// GoneAfter is how long a consumer asks for nothing until it is forgotten, unless it has
	// orders in hand.
	GoneAfter time.Duration
	// Remember is how long a request id is known in Redis after the ledger has
	// the order. It must outlast a purchase by far.
	Remember time.Duration
	// Reconcile is the pause between two looks at every counter.
	Reconcile time.Duration
	// Observer is required.
	Observer Observer
	// Tracer links what consumers do to the traces of the purchases that they write; nil:
	// it belongs to no trace.
	Tracer trace.Tracer
	// Log has repairs and failures; it may be nil.
	Log *slog.Logger
	// Changes has the rebuilds of counters; it may be nil.
	Changes *background.Changes
}

// Defaults are the options where nothing is set.
func Defaults() Options {
	return Options{
		Prefix: "stockd", Partitions: 8, Batch: 1000, Linger: 50 * time.Millisecond, ClaimAfter: 5 * time.Second,
		GoneAfter: time.Hour, Remember: time.Minute, Reconcile: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	}
}

func (o Options) withDefaults() Options {
	d := Defaults()
	o.Prefix = cmp.Or(o.Prefix, d.Prefix)
	o.Partitions = cmp.Or(o.Partitions, d.Partitions)
	o.Batch = cmp.Or(o.Batch, d.Batch)
	o.Linger = cmp.Or(o.Linger, d.Linger)
	o.ClaimAfter = cmp.Or(o.ClaimAfter, d.ClaimAfter)
	o.GoneAfter = cmp.Or(o.GoneAfter, d.GoneAfter)
	o.Remember = cmp.Or(o.Remember, d.Remember)
	o.Reconcile = cmp.Or(o.Reconcile, d.Reconcile)
	o.Log = cmp.Or(o.Log, d.Log)
	return o
}

// Stock is the stock in Redis, as one replica has it.
type Stock struct {
	options Options
	store   *repo.Store
	redis   redis.UniversalClient
	// reading has a connection for each partition, on which a read blocks.
	reading   redis.UniversalClient
	script    *redis.Script
	parts     []*partition
	soldOut   *soldOut
	limited   moments                             // when buyers at their limit were verified
	ledger    *queue.Shared[string, stock.Order]  // orders by their request ids
	additions *queue.Queue[int64, []string, bool] // to the counters of items
	wasUsed   atomic.Bool                         // see used
	looking   sync.Mutex
	drifts    map[int64]Drift // what the last look has seen, guarded by looking

	mu       sync.Mutex
	rebuilds map[wanted]*rebuild
	closed   bool

	lifetime context.Context //nolint:containedctx // of the rebuilds, which outlast the purchase that begins one
	stop     context.CancelFunc
	working  sync.WaitGroup
}

// New makes the stock of one replica and starts its consumers. It does not wait
// for any server. The store writes the ledger in the strategy's name.
func New(store *repo.Store, clients *backend.Clients, o Options) *Stock {
	ctx, stop := context.WithCancel(context.Background())
	s := &Stock{
		options: o.withDefaults(), store: store, redis: clients.Redis, script: redis.NewScript(source()),
		rebuilds: make(map[wanted]*rebuild), lifetime: ctx, stop: stop,
	}
	s.reading = clients.AnotherRedis(s.options.Partitions)
	s.soldOut = newSoldOut(clients.Redis, s.options.Prefix+":restocked", s.options.Log)
	s.additions = s.newAdditions()
	var shard func(string) int
	if store.Sharded() {
		shard = store.ShardOf
	}
	s.ledger = shareLedger(store.Orders, shard, s.options.Log)
	for n := range s.options.Partitions {
		p := &partition{base: fmt.Sprintf("%s:{stock-%d}:", s.options.Prefix, n)}
		s.parts = append(s.parts, p)
		c := &consumer{Stock: s, part: p}
		s.working.Go(func() { c.run(ctx) })
	}
	s.soldOut.Listen()
	s.working.Go(func() { s.reconcile(ctx) })
	return s
}

// closeWithin bounds Close: a replica that stops has little more than its requests need.
const closeWithin = 1500 * time.Millisecond

// Close lets the consumers finish what they have in hand and ends all background jobs,
// within closeWithin, whatever Redis and the database do. What is not finished stays
// pending on the stream for another consumer, or for this one after the next start.
func (s *Stock) Close() error {
	s.mu.Lock()
	s.closed = true // no rebuild begins from here on
	s.mu.Unlock()
	s.stop()
	// The first ends the reads that block.
	err := errors.Join(hangUp(s.reading), s.soldOut.Close())
	if !pause.During(closeWithin, s.working.Wait) {
		err = errors.Join(err, fmt.Errorf("close %s: background jobs did not end within %s", Allocation, closeWithin))
	}
	return err
}

// hangUp closes a client that may be closed already.
func hangUp(client io.Closer) error {
	err := backend.HangUp(client)
	if errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}

func (s *Stock) part(goodsID int64) *partition {
	return s.parts[goodsID%int64(len(s.parts))]
}

// fault gives an error of Redis in the course of a purchase its kind. Where the
// server has answered, or was not reached, nothing has happened; otherwise the outcome is
// unknown. (A cluster's client may have asked twice: the last answer says nothing about
// the first.)
func (s *Stock) fault(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("sell: %w", err)
	_, cluster := s.redis.(*redis.ClusterClient)
	if !cluster && (isAnswer(err) || errors.Is(err, backend.ErrNotConnected)) {
		return backend.Failure(backend.Redis, err)
	}
	return fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, &stock.BackendError{Backend: string(backend.Redis), Err: err})
}

// failed is fault for work whose outcome no buyer waits for.
func failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return backend.Failure(backend.Redis, fmt.Errorf("%s: %w", doing, err))
}

// Observer receives what becomes of accepted orders.
type Observer interface {
	// Written is orders that the ledger has now.
	Written(orders int)
	// DeadLettered is an order that can never be in the ledger.
	DeadLettered()
	// Compared is the end of a look at all counters, with the units by which they differed
	// from the database in all, above and below, where orders that are being settled do
	// not explain it.
	Compared(units int64)
	// Repaired is a counter that had drifted and was rebuilt.
	Repaired()
}
