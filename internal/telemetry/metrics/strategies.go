package metrics

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

func (m *Metrics) strategies() {
	m.deductions = m.counters("stockd_deductions_total", "Purchases by outcome.", "strategy", "outcome")
	m.duration = m.histograms("stockd_deduction_duration_seconds", "Duration of purchases, including all waits.", seconds(), "strategy")
	m.backendFailures = m.counters("stockd_backend_failures_total", "Purchases that failed, or whose outcome is unknown, because of a backend.", "backend")
	m.lockWait = m.histograms("stockd_lock_wait_seconds", "Time waited for locks, including failed attempts.", waits(), "lock")
	m.lockHold = m.histograms("stockd_lock_hold_seconds", "Time that locks were held.", seconds(), "lock")
	m.lockLost = m.counters("stockd_locks_lost_total", "Locks that were lost while held.", "lock")
	m.releaseFailed = m.counters("stockd_lock_releases_failed_total", "Releases of locks that the backend did not answer, or rejected. Most are repeated.", "lock")
	m.lockInVain = m.counters("stockd_lock_tries_in_vain_total", "Attempts of polling locks that found the lock taken.", "lock")
	m.fenced = m.counters("stockd_fenced_writes_total", "Writes that were rejected because a later holder of the lock wrote first.", "lock")
	m.raceLost = m.counters("stockd_optimistic_races_lost_total", "Optimistic writes that another write overtook.", "strategy")
	m.retries = m.counters("stockd_transaction_retries_total", "Transactions that were retried after the database rolled them back as deadlock victims.", "strategy")
	m.batchSize = m.histograms("stockd_group_batch_size", "Purchases per group commit.",
		prometheus.ExponentialBuckets(1, 2, 12), "strategy")
	for _, name := range append([]backend.Name{backend.MySQL, backend.SQLite}, backend.LockServers()...) {
		m.backendFailures.WithLabelValues(string(name))
	}
}

// Strategy observes one strategy. The series of all its outcomes, of its retries, and of what a lock can
// lose start at 0: rate() does not see the event with which a series begins.
func (m *Metrics) Strategy(name string) strategy.Observer {
	o := &observer{
		metrics:  m,
		outcomes: make(map[string]prometheus.Counter),
		duration: sync.OnceValue(func() prometheus.Observer { return m.duration.WithLabelValues(name) }),
		batches:  sync.OnceValue(func() prometheus.Observer { return m.batchSize.WithLabelValues(name) }),
		races:    sync.OnceValue(func() prometheus.Counter { return m.raceLost.WithLabelValues(name) }),
		lock:     sync.OnceValue(func() lockSeries { return m.lock(name) }),
	}
	for _, outcome := range outcomes() {
		o.outcomes[outcome] = m.deductions.WithLabelValues(name, outcome)
	}
	o.accepted = o.outcomes[accepted]
	m.retries.WithLabelValues(name)
	if canBeLate(name) {
		m.lockLost.WithLabelValues(name)
		m.releaseFailed.WithLabelValues(name)
		m.fenced.WithLabelValues(name)
	}
	return o
}

// canBeLate reports whether a strategy has a lock that ends before its holder may notice.
func canBeLate(name string) bool {
	return slices.ContainsFunc(strategy.Registry(), func(e strategy.Entry) bool {
		return e.Name == name && (e.Guarantees.SignalsLoss || e.Guarantees.Fenceable)
	})
}

// Retried counts a transaction that is retried; outside of sales the strategy is empty.
func (m *Metrics) Retried(strategy string) { m.retries.WithLabelValues(cmp.Or(strategy, "none")).Inc() }

// observer has the series of one strategy, looked up in advance.
type observer struct {
	metrics  *Metrics
	accepted prometheus.Counter
	outcomes map[string]prometheus.Counter
	// Most strategies are never used on a replica, and most have no lock.
	duration, batches func() prometheus.Observer
	races             func() prometheus.Counter
	lock              func() lockSeries
}

// lockSeries are the series of one lock.
type lockSeries struct {
	wait, hold           prometheus.Observer
	lost, inVain, fenced prometheus.Counter
	unreleased           prometheus.Counter
}

func (m *Metrics) lock(name string) lockSeries {
	return lockSeries{
		wait: m.lockWait.WithLabelValues(name), hold: m.lockHold.WithLabelValues(name),
		lost: m.lockLost.WithLabelValues(name), inVain: m.lockInVain.WithLabelValues(name),
		fenced: m.fenced.WithLabelValues(name), unreleased: m.releaseFailed.WithLabelValues(name),
	}
}

func (o *observer) Deducted(outcome stock.Outcome, err error, took time.Duration) {
	o.duration().Observe(took.Seconds())
	if err == nil && outcome.Rejected == nil && !outcome.Replayed {
		o.accepted.Inc()
		return
	}
	o.outcomes[outcomeOf(outcome, err)].Inc()
	if failure, ok := errors.AsType[*stock.BackendError](err); ok {
		o.metrics.backendFailures.WithLabelValues(failure.Backend).Inc()
	}
}

func (o *observer) Waited(took time.Duration) { o.lock().wait.Observe(took.Seconds()) }

func (o *observer) Held(took time.Duration, lost bool) {
	o.lock().hold.Observe(took.Seconds())
	if lost {
		o.lock().lost.Inc()
	}
}

func (o *observer) ReleaseFailed()        { o.lock().unreleased.Inc() }
func (o *observer) TriedInVain()          { o.lock().inVain.Inc() }
func (o *observer) RaceLost()             { o.races().Inc() }
func (o *observer) Fenced()               { o.lock().fenced.Inc() }
func (o *observer) Batched(purchases int) { o.batches().Observe(float64(purchases)) }

// redisStock makes the metrics of orders that are accepted before the ledger has them.
func (m *Metrics) redisStock() {
	m.written = m.counter("stockd_redis_stock_orders_written_total", "Accepted orders that this replica wrote into the ledger.")
	m.putAside = m.counter("stockd_redis_stock_orders_put_aside_total", "Accepted orders that were dead-lettered because the ledger can never have them.")
	m.drift = m.gauge("stockd_redis_stock_drift_units", "Units by which the counters in Redis differ from the database, as of the last comparison.")
	m.repaired = m.counter("stockd_redis_stock_repairs_total", "Counters in Redis that had drifted and were rebuilt.")
}

func (o *observer) Written(orders int)   { o.metrics.written.Add(float64(orders)) }
func (o *observer) DeadLettered()        { o.metrics.putAside.Inc() }
func (o *observer) Compared(units int64) { o.metrics.drift.Set(float64(units)) }
func (o *observer) Repaired()            { o.metrics.repaired.Inc() }

// reservations makes the metrics of what this replica has done with reservations. The series
// of all states start at 0.
func (m *Metrics) reservations() {
	m.ended = m.counters("stockd_reservations_ended_total", "Reservations that were confirmed, released or expired.", "state")
	m.paidLate = m.counter("stockd_reservations_paid_late_total", "Confirmations that were rejected because they came after the expiry.")
	for _, state := range []stock.State{stock.Confirmed, stock.Released, stock.Expired} {
		m.ReservationsEnded(state, 0)
	}
}

// ReservationsEnded counts reservations that have ended in a state.
func (m *Metrics) ReservationsEnded(state stock.State, reservations int) {
	m.ended.WithLabelValues(string(state)).Add(float64(reservations))
}

// PaidLate counts a confirmation that came after the expiry.
func (m *Metrics) PaidLate() { m.paidLate.Inc() }
