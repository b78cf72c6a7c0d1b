package replica

import (
	"context"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/telemetry"
	"github.com/stockd/stockd/internal/telemetry/metrics"
	"github.com/stockd/stockd/internal/telemetry/tracing"
)

func buildOf(c config.Config) metrics.Build {
	build := metrics.Build{Replica: c.Replica}
	if info, known := debug.ReadBuildInfo(); known {
		build.Version, build.Commit, build.GoVersion = info.Main.Version, telemetry.Commit(info), info.GoVersion
	}
	return build
}

// namesOnly logs what OpenTelemetry does not understand of its variables, without their values: they hold keys.
func namesOnly(ctx context.Context, behind slog.Handler, r slog.Record) error {
	short := slog.NewRecord(r.Time, r.Level, "OpenTelemetry reports a problem, such as a wrong OTEL_ variable", 0)
	short.AddAttrs(slog.String("problem", r.Message))
	return behind.Handle(ctx, short)
}

// newMetrics makes the metrics of a replica, with the limits that alerts compare with.
func newMetrics(c config.Config, build metrics.Build) *metrics.Metrics {
	m := metrics.New(build)
	m.Limit("stockd_config_lock_wait_seconds", "The configured lock.wait.", c.Lock.Wait.Seconds())
	m.Limit("stockd_config_max_deductions", "The configured http.max_deductions.", float64(c.HTTP.MaxDeductions))
	return m
}

func stateOf(ctx context.Context, c config.Config, catalogue *service.Catalogue, store *repo.Store, o handler.Options, locks *backend.Clients) metrics.State {
	pools := []metrics.Pool{metrics.SQLPool("stock", store.Stats), metrics.SQLPool("locks", locks.DB.Stats)}
	if locks.Redis != nil {
		pools = append(pools, metrics.RedisPool(string(backend.Redis), c.Redis.MaxOpen, locks.Redis))
	}
	if len(locks.Redlock) > 0 {
		pools = append(pools, metrics.RedisPool(string(backend.Redlock), c.Redis.MaxOpen, locks.Redlock...))
	}
	return metrics.State{
		Stopping: func() bool { return ctx.Err() != nil },
		Backends: catalogue.Backends, Waiting: catalogue.Waiting, Lag: catalogue.Lag, Reservations: store.Reservations, Readers: o.Feed.Lags,
		Lines: o.Room.Lines,
		Pools: pools,
	}
}

// observation is what records the work of a replica: metrics, traces and the log.
type observation struct {
	metrics *metrics.Metrics
	tracing *tracing.Tracing // nil where nothing is traced
	log     *slog.Logger
	bounded telemetry.Bounded
}

func observe(ctx context.Context, c config.Config, errOut io.Writer, spans tracing.Local) (observation, error) {
	build := buildOf(c)
	lines := logger(c.Log, errOut).Handler()
	o := observation{metrics: newMetrics(c, build), bounded: telemetry.Bound(lines)}
	o.log = slog.New(o.metrics.Log(o.bounded))
	if o.log.Enabled(ctx, slog.LevelDebug) {
		o.log = slog.New(o.metrics.Log(lines))
	}
	if c.Trace.Endpoint == "" && spans == nil {
		return o, nil
	}
	otel.SetLogger(logr.FromSlogHandler(telemetry.Handler{Handler: o.log.Handler(), Do: namesOnly}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.log.WarnContext(ctx, "traces are not sent", "error", err) }))
	var err error
	o.tracing, err = tracing.Open(ctx, tracing.Options{
		Endpoint: c.Trace.Endpoint, Local: spans, Sample: c.Trace.Sample, TrustParent: c.Trace.TrustParent,
		Replica: build.Replica, Version: build.Version,
	})
	return o, err
}

func (o observation) Close() error {
	if o.tracing == nil {
		return nil
	}
	return o.tracing.Close()
}

func (o observation) sqlOptions(c config.Config) (backend.SQLOptions, error) {
	options, err := sqlOptions(c)
	if o.tracing != nil {
		options.OpenDB = o.tracing.OpenDB
	}
	return options, err
}

func (o observation) storeOptions(c config.Config) repo.Options {
	return repo.Options{Replica: c.Replica, Retried: o.metrics.Retried}
}

func (o observation) openStore(ctx context.Context, c config.Config) (*repo.Store, error) {
	database, err := o.sqlOptions(c)
	if err != nil {
		return nil, err
	}
	return openDatabase(ctx, database, o.storeOptions(c))
}

// follow adds the commands of lock clients to the traces.
func (o observation) follow(clients *backend.Clients) {
	if o.tracing == nil {
		return
	}
	if clients.Redis != nil {
		clients.Redis.AddHook(o.tracing.Redis())
	}
	for _, node := range clients.Redlock {
		node.AddHook(o.tracing.Redis())
	}
}

// tracer begins the traces of requests, or is nil.
func (o observation) tracer() trace.Tracer {
	if o.tracing == nil {
		return nil
	}
	return o.tracing.Tracer()
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
