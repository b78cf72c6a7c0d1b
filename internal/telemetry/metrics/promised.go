package metrics

import "github.com/stockd/stockd/internal/service/hot"

// promised makes what is told of orders that are promised before the ledger has
// them.
func (m *Metrics) promised() {
	m.written = m.counter("stockd_redis_stock_orders_written_total", "Promised orders that this replica wrote into the ledger.")
	m.putAside = m.counter("stockd_redis_stock_orders_put_aside_total", "Promised orders that can never be in the ledger.")
	m.drift = m.gauge("stockd_redis_stock_drift_units", "Units by which the counters in Redis differ from the database, as of the last comparison.")
	m.repaired = m.counter("stockd_redis_stock_repairs_total", "Counters in Redis that had drifted and were installed anew.")
}

// Promised hears what becomes of promised orders.
func (m *Metrics) Promised() hot.Observer { return promised{m} }

type promised struct{ *Metrics }

func (p promised) Written(orders int)   { p.written.Add(float64(orders)) }
func (p promised) PutAside()            { p.putAside.Inc() }
func (p promised) Compared(units int64) { p.drift.Set(float64(units)) }
func (p promised) Repaired()            { p.repaired.Inc() }
