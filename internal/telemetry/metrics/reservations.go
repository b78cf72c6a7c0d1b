package metrics

import "github.com/stockd/stockd/internal/stock"

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
