package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/room"
)

// State is read at each scrape.
type State struct {
	Stopping func() bool
	// Backends pings the backends.
	Backends func(context.Context) ([]service.Backend, error)
	// Waiting is the number of waiting grouped purchases, by strategy.
	Waiting func() map[string]int
	// Lag is how far the ledger is behind the accepted orders. An error means unknown.
	Lag func(context.Context) (redisstock.Lag, error)
	// Reservations counts what is held. An error means unknown.
	Reservations func(context.Context) (repo.Reservations, error)
	// Readers is how far those are behind that read the feed. An error means unknown.
	Readers func(context.Context) (map[string]time.Duration, error)
	// Lines counts the buyers in waiting rooms. An error means unknown.
	Lines func(context.Context) (room.Line, error)
	Pools []Pool
}

// scrapeTimeout limits one scrape.
const scrapeTimeout = 2 * time.Second

// Watch makes every scrape read the state.
func (m *Metrics) Watch(s State) { register(m, state{s}) }

// state is the collector of a State. It describes nothing in advance: which series there are, the state says.
type state struct{ State }

func (state) Describe(chan<- *prometheus.Desc) {}

func (s state) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	out := samples(ch)
	out.gauge("stockd_stopping", "1 while this replica is about to stop, else 0.", number(s.Stopping()), nil)
	backends, _ := s.Backends(ctx) // the error is that of the database, which is among them
	for _, b := range backends {
		if label := (prometheus.Labels{"backend": b.Name}); b.Status != service.NotConfigured {
			out.gauge("stockd_backend_up", "1 if a configured backend answers this replica, else 0.", number(b.Status != service.Down), label)
			out.gauge("stockd_backend_writable", "1 if a configured backend takes writes, 0 if it answers and rejects them, or does not answer.", number(b.Status == service.Up), label)
		}
	}
	for strategy, purchases := range s.Waiting() {
		out.gauge("stockd_group_queue_depth", "Grouped purchases that wait for a batch.", float64(purchases), prometheus.Labels{"strategy": strategy})
	}
	if lag, err := s.Lag(ctx); err == nil {
		out.gauge("stockd_redis_stock_pending_orders", "Accepted orders of all replicas that are pending in the ledger.", float64(lag.Orders), nil)
		out.gauge("stockd_redis_stock_oldest_pending_seconds", "Age of the oldest order that is pending in the ledger.", lag.Oldest.Seconds(), nil)
	}
	if n, err := s.Reservations(ctx); err == nil {
		out.gauge("stockd_reservations_held", "Reservations that are held, including expired ones.", float64(n.Open), nil)
		out.gauge("stockd_reservations_overdue", "Expired reservations whose units are not back.", float64(n.Overdue), nil)
		out.gauge("stockd_reservations_overdue_seconds", "Time since the first of them expired.", n.Lag.Seconds(), nil)
	}
	s.collectClients(ctx, out)
	for _, pool := range s.Pools {
		pool.collect(out)
	}
}

// collectClients collects how far those are that wait in a line, or read the feed.
func (s state) collectClients(ctx context.Context, out samples) {
	if behind, err := s.Readers(ctx); err == nil {
		for reader, by := range behind {
			out.gauge("stockd_feed_reader_behind_seconds", "How long the first order after a reader's cursor has been in the ledger, as of the reader's last request to this replica.",
				by.Seconds(), prometheus.Labels{"reader": reader})
		}
	}
	if l, err := s.Lines(ctx); err == nil {
		for state, buyers := range map[string]int64{"waiting": l.Waiting, "admitted": l.Admitted} {
			out.gauge("stockd_room_buyers", "Buyers in the waiting rooms of the items that this replica was asked for: waiting, or admitted and without a purchase yet.",
				float64(buyers), prometheus.Labels{"state": state})
		}
		out.gauge("stockd_room_wait_seconds", "How long a buyer that joins the longest line waits at its present pace; 0 where no one waits, or it is unknown.", l.Wait.Seconds(), nil)
		out.counter("stockd_room_admissions_total", "Buyers whom the waiting rooms have admitted, as all replicas count them together.", float64(l.Admissions), nil)
		out.counter("stockd_room_left_total", "Buyers who have left the waiting rooms before they were admitted, as all replicas count them together.", float64(l.Left), nil)
	}
}

// samples receive what a scrape reads.
type samples chan<- prometheus.Metric

func (s samples) gauge(name, help string, value float64, labels prometheus.Labels) {
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), prometheus.GaugeValue, value)
}

func (s samples) counter(name, help string, value float64, labels prometheus.Labels) {
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), prometheus.CounterValue, value)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
