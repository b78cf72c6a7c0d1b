package metrics

import (
	"cmp"
	"strconv"
)

func (m *Metrics) http() {
	m.requests = m.counters("stockd_http_requests_total", "Answered requests.", "listener", "route", "status")
	m.inFlight = m.gauges("stockd_http_requests_in_flight", "Requests in flight.", "listener")
	m.shed = m.counters("stockd_http_requests_shed_total", "Purchases that were rejected because the replica, their item or their strategy had its share of http.max_deductions.", "full")
	m.rateLimited = m.counters("stockd_http_requests_rate_limited_total", "Requests that were rejected by a rate limit.", "by")
	m.panics = m.counter("stockd_panics_total", "Panics that were caught, in requests and in background work.")
	for _, full := range []string{"replica", "item", "strategy"} {
		m.shed.WithLabelValues(full)
	}
	m.connections = m.counters("stockd_connections_rejected_total",
		"Connections that were rejected because of http.max_connections or http.connection_rate.", "listener", "by")
	for _, by := range []string{"connections", "rate"} {
		m.connections.WithLabelValues("public", by)
		m.connections.WithLabelValues("admin", by)
	}
	m.rateLimited.WithLabelValues("user")
	m.rateLimited.WithLabelValues("address")
	m.rateLimited.WithLabelValues("token")
}

// Began is called when a request starts.
func (m *Metrics) Began(listener string) { m.inFlight.WithLabelValues(listener).Inc() }

// Ended is called when it ends.
func (m *Metrics) Ended(listener, route string, status int) {
	m.inFlight.WithLabelValues(listener).Dec()
	m.requests.WithLabelValues(listener, cmp.Or(route, "none"), strconv.Itoa(status)).Inc()
}

// Shed counts a purchase without a slot.
func (m *Metrics) Shed(full string) { m.shed.WithLabelValues(full).Inc() }

// RateLimited counts a request beyond a rate limit.
func (m *Metrics) RateLimited(by string) { m.rateLimited.WithLabelValues(by).Inc() }

// ConnectionRejected counts a connection beyond the limit of "connections" or of their "rate".
func (m *Metrics) ConnectionRejected(listener, by string) {
	m.connections.WithLabelValues(listener, by).Inc()
}

// Panicked counts a panic in a request.
func (m *Metrics) Panicked() { m.panics.Inc() }
