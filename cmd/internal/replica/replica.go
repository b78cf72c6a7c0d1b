// Package replica runs one replica: it wires configuration, backends, strategies and
// listeners together. stockd serve is nothing else; stocklab adds failpoints.
package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry/metrics"
	"github.com/stockd/stockd/internal/telemetry/tracing"
)

// Options are what a program adds to a replica. The zero Options add nothing.
type Options struct {
	// Open opens failpoints, after the backends and before the strategies; nil: there are none.
	Open func(ctx context.Context, c config.Config, log *slog.Logger) (Failpoints, error)
	// Spans receives the spans of requests; nil: they are only sent to trace.endpoint.
	Spans tracing.Local
	// Strategies changes what the strategies and their locks are made of; nil: nothing is changed.
	Strategies func(config.Config, strategy.Deps) strategy.Deps
	// Listening gets the addresses of both APIs once they are served; admin is empty where
	// there is none. nil: nothing is called.
	Listening func(public, admin string)
}

// Failpoints interrupt purchases for an experiment. They are closed after the strategies.
type Failpoints interface {
	strategy.Failpoints
	io.Closer

	// Routes are added to the admin API.
	Routes() []handler.Route
}

// UsageError is a mistake in the command line or the configuration.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e UsageError) Unwrap() error { return e.Err }

// Run runs a replica until ctx ends, and then lets requests in flight end. It returns
// within http.drain_delay, http.drain and two seconds, whatever the backends do; what is
// open then ends with the process.
func Run(ctx context.Context, c config.Config, errOut io.Writer, o Options) (err error) {
	prepareProcess()
	c.Replica, err = named(c.Replica)
	if err != nil {
		return err
	}
	watch, err := observe(ctx, c, errOut, o.Spans)
	if err != nil {
		return err
	}
	defer watch.bounded.Close() // also where the exit is forced
	open := newClosing(ctx, c.HTTP)
	open.add("traces", watch.Close)
	return open.run(ctx, watch.log, func() (err error) {
		defer func() { err = errors.Join(err, open.close()) }()
		return serve(ctx, c, watch, open, o)
	})
}

// garbagePercent is how much garbage there may be of what is in use before it is collected. With
// Go's 100 a sale to 256 clients costs a tenth more processor time, and a replica has 12 MiB less.
const garbagePercent = 200

// prepareProcess sets what is the whole process'; a GOGC of the operator's wins.
func prepareProcess() {
	gin.SetMode(gin.ReleaseMode)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}

func serve(ctx context.Context, c config.Config, watch observation, open *closing, o Options) error {
	log := watch.log
	serving, end := context.WithCancel(context.WithoutCancel(ctx)) // until the last request is answered
	defer end()
	if err := errors.Join(verifyLock(c, ""), verifyNames(c)); err != nil {
		return UsageError{err}
	}
	warn(ctx, c, log)
	buyers, err := verifiedBuyers(serving, c, log)
	if err != nil {
		return err
	}
	store, err := watch.openStore(ctx, c)
	if err != nil {
		return err
	}
	open.add("database", store.Close)
	if err := bringUpToDate(ctx, c, store, log); err != nil {
		return err
	}
	locks, err := lockDeps(c, watch)
	if err != nil {
		return err
	}
	open.add("lock clients", locks.Close)
	open.add("first ping", quietly(pingAll(ctx, store, locks.Clients, log)))
	deps, options := strategyDeps(c, watch, store, locks, o), handlerOptions(ctx, c, watch)
	deps.Failpoints, options.Routes, err = openFailpoints(ctx, c, log, open, o)
	if err != nil {
		return err
	}
	catalogue := service.NewCatalogue(ctx, strategy.Registry(), deps, c.Deduct.Timeout)
	open.add("strategies", catalogue.Close)
	if err := enforce(ctx, c, store.Cluster(), catalogue, log); err != nil {
		return err
	}
	inventory, reservations := service.NewInventory(store, catalogue), service.NewReservations(store, catalogue, c.Reserve.Longest, watch.metrics)
	open.add("changes of items", inventory.Close)
	open.add("reservations", reservations.Close)
	open.add("background jobs", quietly(keepUp(serving, c, catalogue, inventory, reservations, watch)))
	open.add("checks", quietly(inBackground(serving, func(ctx context.Context) { checkAtStart(ctx, c, locks.Clients, store, log) })))
	options.Feed = service.NewFeed(store)
	options.Room = openRoom(c, locks.Clients, inventory)
	watch.metrics.Watch(stateOf(ctx, c, catalogue, store, options, locks.Clients))
	options.Catalogue, options.Inventory, options.Reservations, options.Buyers = catalogue, inventory, reservations, buyers
	open.add("requests", func() error { return nil }) // listen ends them
	return listen(ctx, c, log, options, o.Listening, watch.metrics.ConnectionRejected)
}

// openFailpoints opens those of the lab; stockd itself has none.
func openFailpoints(ctx context.Context, c config.Config, log *slog.Logger, open *closing, o Options) (strategy.Failpoints, []handler.Route, error) {
	if o.Open == nil {
		return nil, nil, nil
	}
	failpoints, err := o.Open(ctx, c, log)
	if err != nil {
		return nil, nil, err
	}
	open.add("failpoints", quietly(func() { _ = failpoints.Close() })) // each of its lines is written already
	return failpoints, failpoints.Routes(), nil
}

// keepUp does until it is stopped what no request asks for.
func keepUp(ctx context.Context, c config.Config, catalogue *service.Catalogue, inventory *service.Inventory, reservations *service.Reservations, watch observation) (stop func()) {
	return inBackground(ctx,
		catalogue.KeepSwitches,
		catalogue.KeepSweeping,
		catalogue.KeepSales,
		inventory.KeepTotals,
		reservations.KeepExpiring,
		func(ctx context.Context) { keepAuditing(ctx, c.Audit, inventory, watch.metrics, watch.log) },
	)
}

func quietly(stop func()) func() error {
	return func() error {
		stop()
		return nil
	}
}

// verifyNames verifies the names of strategies, before anything is opened for one that is none.
func verifyNames(c config.Config) error {
	var errs []error
	if err := strategy.CheckNames(c.Deduct.Strategy); err != nil {
		errs = append(errs, fmt.Errorf("deduct.strategy: %w", err))
	}
	if err := strategy.CheckNames(c.Strategies.Deny...); err != nil {
		errs = append(errs, fmt.Errorf("strategies.deny: %w", err))
	}
	return errors.Join(errs...)
}

// verifyLock verifies the lock of redis-get-set-locked, whose guarantees depend on it, and on the
// cluster that the database is a node of.
func verifyLock(c config.Config, cluster string) error {
	l, err := registry.Find(c.GetSet.Lock)
	if err == nil && c.Strategies.OnlySafe && !l.Guarantees.SignalsLoss {
		err = fmt.Errorf("%q does not notify its holder of a loss, and strategies.only_safe is set", l.Name)
	}
	if err == nil && cluster != "" && l.OneServer {
		err = fmt.Errorf("%q is a lock of one server, and the database is %s", l.Name, cluster)
	}
	if err != nil {
		return fmt.Errorf("redis_get_set.lock: %w", err)
	}
	return nil
}

// enforce applies the policy of the configuration and the switches to the catalogue. cluster is that of
// the database.
func enforce(ctx context.Context, c config.Config, cluster string, catalogue *service.Catalogue, log *slog.Logger) error {
	if err := verifyLock(c, cluster); err != nil {
		return UsageError{err}
	}
	if err := catalogue.Enforce(service.Policy{OnlySafe: c.Strategies.OnlySafe, Deny: c.Strategies.Deny}); err != nil {
		return UsageError{err}
	}
	catalogue.SetMaxQuantity(int64(c.Deduct.MaxQuantity))
	err := catalogue.SetDefault(service.Mode{Strategy: c.Deduct.Strategy, Group: c.Deduct.Group, Fence: c.Deduct.Fence})
	switch {
	case errors.Is(err, service.ErrNotFenceable):
		return UsageError{fmt.Errorf("deduct.fence: %w", err)}
	case err != nil:
		return UsageError{fmt.Errorf("deduct.strategy: %w", err)}
	}
	if err := catalogue.LookAtSwitches(ctx); err != nil {
		return err
	}
	for why, items := range catalogue.Unserved() {
		log.WarnContext(ctx, "items cannot be sold by this replica", "items", items, "reason", why)
	}
	return nil
}

// What no operator tunes: sales do not change where these are halved or doubled.
const (
	// groupBatch is the most purchases of one transaction. A larger batch holds the row for longer, and
	// the log flush is shared by many already.
	groupBatch = 256
	// groupUnits is the most units of one transaction; a larger purchase is written alone.
	groupUnits = 100_000
	// unitRows is the most rows of an item with a unit each: enough to sell from while the next ones are filled.
	unitRows = 500
)

func strategyDeps(c config.Config, watch observation, store *repo.Store, locks lock.Deps, o Options) strategy.Deps {
	deps := strategy.Deps{
		Store:    store,
		LockWait: c.Lock.Wait,
		Lock:     locks,
		// Fifty lost races take about as long as the longest wait for a lock by default.
		Retry:      strategy.Retry{Tries: 50, Step: 5 * time.Millisecond, Max: time.Second},
		Group:      strategy.Group{Batch: groupBatch, Units: groupUnits, Queue: c.Group.Queue},
		Buckets:    c.Bucket.Count,
		UnitRows:   unitRows,
		GetSetLock: c.GetSet.Lock,
		RedisStock: redisStockOptions(c, watch.log, watch.tracer()),
		Observe:    watch.metrics.Strategy,
		Log:        watch.log,
	}
	if o.Strategies != nil {
		deps = o.Strategies(c, deps)
	}
	return deps
}

// handlerOptions are what the routes need, but for what they serve.
func handlerOptions(ctx context.Context, c config.Config, watch observation) handler.Options {
	return handler.Options{
		Replica: c.Replica, Choose: c.MayChoose(), Reveal: c.HTTP.Reveal, MaxBody: config.MaxBody, Log: watch.log,
		Timeout: c.Deduct.Timeout, AuditTimeout: c.Audit.Timeout,
		MaxDeductions: c.HTTP.MaxDeductions, Limits: limits(c.Limit), BuyerRequired: c.Buyer.Required, TrustedProxies: c.HTTP.Proxies(),
		TTL: c.Reserve.TTL, LongestTTL: c.Reserve.Longest, MaxHeld: int64(c.Reserve.MaxHeld), PublicConfirm: c.Reserve.PublicConfirm,
		PerUser:    int64(c.Deduct.PerUser),
		AdminHosts: c.Admin.HostNames(),
		Stopping:   func() bool { return ctx.Err() != nil },
		Observer:   watch.metrics, Metrics: watch.metrics.Handler(), Tracer: watch.tracer(),
		Pprof: c.Admin.Pprof,
	}
}

// named is the name of a replica: by default that of its host.
func named(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this replica: %w", err)
	}
	return host, nil
}

func limits(c config.Limit) handler.Limits {
	return handler.Limits{
		User:    rate.Rate{PerSecond: c.UserRate, Burst: c.UserBurst},
		Address: rate.Rate{PerSecond: c.AddressRate, Burst: c.AddressBurst},
	}
}

// inBackground runs jobs beside the requests, until it is stopped.
func inBackground(ctx context.Context, jobs ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, job := range jobs {
		running.Go(func() { job(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// keepAuditing audits every item regularly, where audit.every asks for that.
func keepAuditing(ctx context.Context, c config.Audit, inventory *service.Inventory, m *metrics.Metrics, log *slog.Logger) {
	if c.Every == 0 {
		return
	}
	inventory.KeepAuditing(ctx, c.Every, c.Timeout, func(sums stock.Audits, err error) {
		m.Audited(sums, err)
		if err != nil {
			log.WarnContext(ctx, "items were not audited", "error", err)
		}
	})
}
