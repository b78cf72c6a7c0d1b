package metrics

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
