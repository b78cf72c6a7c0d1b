// Package metrics counts what a replica does, for Prometheus. It implements the
// observers of the layers below, which know nothing of Prometheus, and keeps to
// label sets that are bounded: the name of a strategy, never that of a buyer or of
// a goods.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stockd/stockd/internal/stock"
)

// Build is what a replica says of itself.
type Build struct{ Replica, Version, Commit, GoVersion string }

// Metrics are those of one replica, in a registry of their own.
type Metrics struct {
	registry *prometheus.Registry

	deductions, backendFailures  *prometheus.CounterVec
	raceLost, retries            *prometheus.CounterVec
	duration, batchSize          *prometheus.HistogramVec
	lockWait, lockHold           *prometheus.HistogramVec
	lockLost, lockInVain, fenced *prometheus.CounterVec

	requests, rateLimited *prometheus.CounterVec
	connections           *prometheus.CounterVec
	inFlight              *prometheus.GaugeVec
	shed                  *prometheus.CounterVec
	panics                prometheus.Counter
	logged                *prometheus.CounterVec

	written, putAside, repaired prometheus.Counter
	drift                       prometheus.Gauge
	audits                      auditGauges
}

// New makes the metrics of a replica.
func New(b Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.strategies()
	m.http()
	m.promised()
	m.audits = newAuditGauges(m)
	m.logged = m.counters("stockd_log_messages_total", "Lines of the log, by level, with those that a repeated line stands for.", "level")
	m.gauges("stockd_build_info", "1, with what this replica is and was built from.", "replica", "version", "commit", "go_version").
		WithLabelValues(b.Replica, b.Version, b.Commit, b.GoVersion).Set(1)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Limit says what a value of the configuration is, for alerts to compare with.
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

// seconds are the buckets of everything that takes time: from what a script in
// Redis takes to the longest that a purchase may.
func seconds() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
}

// auditGauges are what the last audit of all goods has found.
type auditGauges struct {
	goods, oversold, lost, vanished, at prometheus.Gauge
	failures                            prometheus.Counter
}

func newAuditGauges(m *Metrics) auditGauges {
	return auditGauges{
		goods:    m.gauge("stockd_audit_goods", "Goods that the last audit looked at."),
		oversold: m.gauge("stockd_audit_oversold_units", "Units promised that do not exist, over all goods, as of the last audit."),
		lost:     m.gauge("stockd_audit_lost_units", "Units that rows have too many because updates were lost, over all goods, as of the last audit."),
		vanished: m.gauge("stockd_audit_vanished_units", "Units gone from rows that nobody bought, over all goods, as of the last audit."),
		at:       m.gauge("stockd_audit_last_success_timestamp_seconds", "When the last audit of all goods was made."),
		failures: m.counter("stockd_audit_failures_total", "Audits of all goods that could not be made."),
	}
}

// Audited takes over what an audit of all goods has found, or that it failed.
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
