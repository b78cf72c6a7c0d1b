// Package metrics exports the metrics of a replica to Prometheus. It implements the observers of
// the layers below, which do not know Prometheus. Its label sets are bounded: labels name a
// strategy, never a buyer or an item.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Build identifies a replica and its program.
type Build struct{ Replica, Version, Commit, GoVersion string }

// Metrics are the metrics of one replica, in their own registry.
type Metrics struct {
	registry *prometheus.Registry

	deductions, backendFailures  *prometheus.CounterVec
	raceLost, retries            *prometheus.CounterVec
	duration, batchSize          *prometheus.HistogramVec
	lockWait, lockHold           *prometheus.HistogramVec
	lockLost, lockInVain, fenced *prometheus.CounterVec
	releaseFailed                *prometheus.CounterVec

	requests, rateLimited *prometheus.CounterVec
	connections           *prometheus.CounterVec
	inFlight              *prometheus.GaugeVec
	shed                  *prometheus.CounterVec
	panics                prometheus.Counter
	logged                *prometheus.CounterVec

	ended    *prometheus.CounterVec
	paidLate prometheus.Counter

	written, putAside, repaired prometheus.Counter
	drift                       prometheus.Gauge
	audits                      auditGauges
}

// New makes the metrics of a replica.
func New(b Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.strategies()
	m.http()
	m.redisStock()
	m.reservations()
	m.audits = newAuditGauges(m)
	m.logged = m.counters("stockd_log_messages_total", "Log lines by level, including those that a repeated line counts.", "level")
	m.gauges("stockd_build_info", "1, labeled with the identity and the build of this replica.", "replica", "version", "commit", "go_version").
		WithLabelValues(b.Replica, b.Version, b.Commit, b.GoVersion).Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Limit exports a value of the configuration, for alerts to compare with.
func (m *Metrics) Limit(name, help string, value float64) {
	m.gauge(name, help).Set(value)
}

// The constructors register what they make.

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return register(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	return register(m, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	return register(m, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return register(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}

func register[C prometheus.Collector](m *Metrics, c C) C {
	m.registry.MustRegister(c)
	return c
}

// seconds are the buckets of durations: from a script in Redis to the longest purchase.
func seconds() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// waits are the buckets of waiting, which lock.wait may let last for longer. StockdLockWaitNearLimit
// of deploy/stockd.rules.yml knows the last of them.
func waits() []float64 { return append(seconds(), 20, 30, 60) }

// auditGauges are the results of the last audit of all items.
type auditGauges struct {
	goods, oversold, lost, vanished, at prometheus.Gauge
	failures                            prometheus.Counter
}

func newAuditGauges(m *Metrics) auditGauges {
	return auditGauges{
		goods:    m.gauge("stockd_audit_goods", "Items in the last audit."),
		oversold: m.gauge("stockd_audit_oversold_units", "Units sold beyond the stock, over all items, as of the last audit."),
		lost:     m.gauge("stockd_audit_lost_units", "Units that rows have too many because updates were lost, over all items, as of the last audit."),
		vanished: m.gauge("stockd_audit_vanished_units", "Units missing from rows without a purchase, over all items, as of the last audit."),
		at:       m.gauge("stockd_audit_last_success_timestamp_seconds", "Time of the last successful audit of all items."),
		failures: m.counter("stockd_audit_failures_total", "Audits of all items that failed."),
	}
}

// Audited records the result of an audit of all items.
func (m *Metrics) Audited(sums stock.Audits, err error) {
	a := m.audits
	if err != nil {
		a.failures.Inc()
		return
	}
	a.goods.Set(float64(sums.Goods))
	a.oversold.Set(float64(sums.Oversold))
	a.lost.Set(float64(sums.Lost))
	a.vanished.Set(float64(sums.Vanished))
	a.at.SetToCurrentTime()
}

// Log counts log lines by level, and the panics among them: a panic outside of a request is only
// visible in the log.
func (m *Metrics) Log(inner slog.Handler) slog.Handler {
	for _, level := range []slog.Level{slog.LevelWarn, slog.LevelError} {
		m.logged.WithLabelValues(strings.ToLower(level.String()))
	}
	return telemetry.Handler{Handler: inner, Do: m.countLine}
}

func (m *Metrics) countLine(ctx context.Context, behind slog.Handler, r slog.Record) error {
	m.logged.WithLabelValues(strings.ToLower(r.Level.String())).Inc()
	if r.Message == background.PanicMessage {
		m.panics.Inc()
	}
	return behind.Handle(ctx, r)
}
