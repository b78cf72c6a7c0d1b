package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/telemetry"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one replica of the service",
		Long: "Run one replica of the service.\n\n" +
			"Every key of the configuration is a flag, a STOCKD_… variable and a line in the file;\n" +
			"a flag wins over a variable, a variable over the file. stockd config shows what is in force.",
		Args: noArgs,
	}
	return configured(cmd, func(ctx context.Context, c *config.Loaded) error {
		return serve(ctx, c.Config, cmd.ErrOrStderr())
	})
}

// serve runs a replica until ctx ends, and then lets requests in flight end. It
// returns within http.drain_delay, http.drain and two seconds, whatever the backends
// do; what is open then ends with the process.
func serve(ctx context.Context, c config.Config, errOut io.Writer) (err error) {
	gin.SetMode(gin.ReleaseMode)
	c.Replica, err = named(c.Replica)
	if err != nil {
		return err
	}
	heard, err := observe(ctx, c, errOut)
	if err != nil {
		return err
	}
	defer heard.bounded.Close() // also where the exit is forced
	open := newClosing(ctx, c.HTTP)
	open.add("traces", heard.Close)
	return open.run(ctx, heard.log, func() (err error) {
		defer func() { err = errors.Join(err, open.close()) }()
		return serveWith(ctx, c, heard, open)
	})
}

// serveWith opens the parts of a replica and serves.
func serveWith(ctx context.Context, c config.Config, heard observation, open *closing) error {
	log := heard.log
	warn(ctx, c, log)
	source, err := verifiedBuyers(ctx, c, log)
	if err != nil {
		return err
	}
	store, err := heard.openStore(ctx, c)
	if err != nil {
		return err
	}
	open.add("database", store.Close)
	if err := bringUpToDate(ctx, c, store, log); err != nil {
		return err
	}
	locks, err := lockDeps(c, heard)
	if err != nil {
		return err
	}
	open.add("lock clients", locks.Close)
	open.add("first look", quietly(lookAround(ctx, locks.Clients, log)))
	deps, options := strategyDeps(c, heard, store, locks), handlerOptions(ctx, c, heard)
	if c.Lab.Enabled {
		lab, err := openLab(ctx, c, log)
		if err != nil {
			return err
		}
		open.add("lab", func() error {
			_ = lab.Close() // every line of it is written already
			return nil
		})
		deps.Failpoints, options.Lab = lab, lab
	}
	catalogue := service.NewCatalogue(strategy.Registry(), deps, c.Deduct.Timeout)
	open.add("strategies", catalogue.Close)
	if err := enforce(ctx, c, catalogue, log); err != nil {
		return err
	}
	inventory := service.NewInventory(store, catalogue)
	open.add("changes of items", inventory.Close)
	open.add("background jobs", quietly(keep(ctx,
		catalogue.KeepSwitches,
		catalogue.KeepSweeping,
		func(ctx context.Context) { keepTotals(ctx, inventory, log) },
		func(ctx context.Context) { keepAuditing(ctx, c.Audit, inventory, heard.metrics, log) },
	)))
	heard.metrics.Watch(stateOf(ctx, c, catalogue, store, locks.Clients))
	options.Catalogue, options.Inventory, options.Buyers = catalogue, inventory, source
	if !options.Choose {
		log.InfoContext(ctx, "requests may not choose a strategy", "deduct.choose", c.Deduct.Choose, "http.listen", c.HTTP.Listen)
	}
	open.add("requests", func() error { return nil }) // listen ends them
	return listen(ctx, c, log, options, heard.metrics.ConnectionRejected)
}

func quietly(stop func()) func() error {
	return func() error {
		stop()
		return nil
	}
}

// enforce has the catalogue refuse what the owner does not want, by the configuration
// and by switches.
func enforce(ctx context.Context, c config.Config, catalogue *service.Catalogue, log *slog.Logger) error {
	if err := catalogue.Enforce(service.Policy{OnlySafe: c.Strategies.OnlySafe, Deny: c.Strategies.Deny}); err != nil {
		return usageError{err}
	}
	catalogue.SetMaxQuantity(int64(c.Deduct.MaxQuantity))
	err := catalogue.SetDefault(service.Mode{Strategy: c.Deduct.Strategy, Group: c.Deduct.Group, Fence: c.Deduct.Fence})
	switch {
	case errors.Is(err, service.ErrNotFenceable):
		return usageError{fmt.Errorf("deduct.fence: %w", err)}
	case err != nil:
		return usageError{fmt.Errorf("deduct.strategy: %w", err)}
	}
	if err := catalogue.LookAtSwitches(ctx); err != nil {
		return err
	}
	for why, items := range catalogue.Unserved() {
		log.WarnContext(ctx, "items cannot be sold by this replica", "items", items, "reason", why)
	}
	return nil
}

// strategyDeps are what the strategies of a replica are made of.
func strategyDeps(c config.Config, heard observation, store *repo.Store, locks lock.Deps) strategy.Deps {
	return strategy.Deps{
		Store:    store,
		LockWait: c.Lock.Wait,
		Lock:     locks,
		Retry:    strategy.Retry{Tries: c.Optimistic.Tries, Step: c.Optimistic.Step, Max: c.Optimistic.Max},
		Group:    strategy.Group{Batch: c.Group.Batch, Units: int64(c.Group.Units), Queue: c.Group.Queue},
		Buckets:  c.Bucket.Count,
		Hot:      hotOptions(c, heard.log, heard.tracer()),
		Observe:  heard.metrics.Strategy,
		Log:      heard.log,
	}
}

// handlerOptions are what the routes need, but for what they serve.
func handlerOptions(ctx context.Context, c config.Config, heard observation) handler.Options {
	return handler.Options{
		Replica: c.Replica, Choose: c.MayChoose(), Reveal: c.HTTP.Reveal, MaxBody: int64(c.HTTP.MaxBody), Log: heard.log,
		Timeout: c.Deduct.Timeout, AuditTimeout: c.Audit.Timeout,
		MaxDeductions: c.HTTP.MaxDeductions, Limits: limits(c.Limit), BuyerRequired: c.Buyer.Required, TrustedProxies: c.HTTP.TrustedProxies,
		AdminHosts: c.Admin.HostNames(),
		Stopping:   func() bool { return ctx.Err() != nil },
		Observer:   heard.metrics, Metrics: heard.metrics.Handler(), Tracer: heard.tracer(),
		Pprof: c.Admin.Pprof,
	}
}

// named is the name of a replica, which is its host's where it was given none.
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
		User:    handler.Rate{PerSecond: c.UserRate, Burst: c.UserBurst},
		Address: handler.Rate{PerSecond: c.AddressRate, Burst: c.AddressBurst},
	}
}

// keep does what goes on beside the requests, until it is stopped.
func keep(ctx context.Context, work ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var keepers sync.WaitGroup
	for _, do := range work {
		keepers.Go(func() { do(ctx) })
	}
	return func() {
		cancel()
		keepers.Wait()
	}
}

// keepTotals brings the ledger's running totals up to date.
func keepTotals(ctx context.Context, inventory *service.Inventory, log *slog.Logger) {
	inventory.KeepTotals(ctx, func(err error) { log.WarnContext(ctx, "running totals not brought up to date", "error", err) })
}

func logger(c config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // it has been checked
	options := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(telemetry.LogHandler(slog.NewJSONHandler(w, options)))
	}
	return slog.New(telemetry.LogHandler(slog.NewTextHandler(w, options)))
}

func openStore(ctx context.Context, c config.Config) (*repo.Store, error) {
	database, err := sqlOptions(c)
	if err != nil {
		return nil, err
	}
	return repo.Open(ctx, database, repo.Options{Replica: c.Replica})
}

// leastTxTimeout is the least that a transaction has in which no single buyer waits,
// such as a batch of redis-stock's orders.
const leastTxTimeout = 10 * time.Second

// afterPurchase is how much longer than a purchase may take the database bears a
// connection that says nothing in a transaction.
const afterPurchase = 5 * time.Second

func sqlOptions(c config.Config) (backend.SQLOptions, error) {
	encryption, err := encryption("database", c.Database.TLS)
	return backend.SQLOptions{
		Driver: c.Database.Driver, DSN: c.Database.DSN, Password: c.Database.Password.Reveal(), TLS: encryption,
		MaxOpen: c.Database.MaxOpen, LockWait: c.Database.LockWait, ConnectTimeout: c.Database.ConnectTimeout,
		TxTimeout: max(c.Deduct.Timeout, leastTxTimeout), Silence: c.Deduct.Timeout + afterPurchase,
	}, err
}

// bringUpToDate migrates the schema, or refuses to run on an old one.
func bringUpToDate(ctx context.Context, c config.Config, store *repo.Store, log *slog.Logger) error {
	if c.Database.Migrate {
		applied, err := store.MigrateUp(ctx)
		for _, m := range applied {
			log.InfoContext(ctx, "schema changed", "migration", m.File)
		}
		return err
	}
	list, err := store.Migrations(ctx)
	if err != nil {
		return err
	}
	for _, m := range list {
		if m.AppliedAt.IsZero() {
			return fmt.Errorf("the schema lacks %s: run stockd migrate up, or set database.migrate", m.File)
		}
	}
	return nil
}

// listen serves buyers and the owner until ctx ends. Nobody is served before both
// can be: a replica that ends at once would cut them off.
func listen(ctx context.Context, c config.Config, log *slog.Logger, o handler.Options, rejected func(listener, by string)) error {
	public, err := openListener(ctx, "public", c.HTTP.Listen)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if !c.Admin.Tokens().Any() {
		log.WarnContext(ctx, "admin API off: no items can be created", "missing", "admin.token, admin.token_file or admin.tokens_file")
		serveOn(ctx, group, c, log, "public", public, handler.Public(o), rejected)
		return group.Wait()
	}
	admin, tokens, err := openAdmin(ctx, c.Admin)
	if err != nil {
		return errors.Join(err, public.Close())
	}
	defer keep(ctx, func(ctx context.Context) { tokens.Keep(ctx, log) })()
	serveOn(ctx, group, c, log, "public", public, handler.Public(o), rejected)
	serveOn(ctx, group, c, log, "admin", admin, handler.Admin(o, tokens), rejected)
	return group.Wait()
}

func openListener(ctx context.Context, name, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open %s listener: %w", name, err)
	}
	return newLastCall(listener), nil
}

// serveOn serves one listener in the group. When ctx ends it is drained.
func serveOn(ctx context.Context, group *errgroup.Group, c config.Config, log *slog.Logger, name string, listener net.Listener, h http.Handler,
	rejected func(listener, by string),
) {
	requests, cancelRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	server := &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: min(c.HTTP.HeaderTimeout, c.HTTP.ReadTimeout),
		ReadTimeout:       c.HTTP.ReadTimeout,
		// It is counted from the end of the header: until then nothing is written.
		WriteTimeout:   c.HTTP.ReadTimeout + c.Deduct.Timeout + c.HTTP.WriteTimeout,
		IdleTimeout:    c.HTTP.IdleTimeout,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stopped := newDrainer(c.HTTP, server, listener, cancelRequests)
	stopped.listener = newCappedListener(listener, c.HTTP, stopped.open.Load, func(by string) { rejected(name, by) })
	log.InfoContext(ctx, "listening", "for", name, "address", listener.Addr().String(), "replica", c.Replica)
	group.Go(func() error {
		if err := stopped.serve(); err != nil {
			return fmt.Errorf("serve %s: %w", name, err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		if err := stopped.drain(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("drain %s: %w", name, err)
		}
		return nil
	})
}
