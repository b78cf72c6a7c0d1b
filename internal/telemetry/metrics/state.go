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
func (m *Metrics) Watch(s State) {
	register(m, state{
		State: s, pools: newPoolDescs(),
		stopping: prometheus.NewDesc("stockd_stopping", "1 while this replica is about to stop, else 0.", nil, nil),
		up:       prometheus.NewDesc("stockd_backend_up", "1 if a configured backend answers this replica, else 0.", []string{"backend"}, nil),
		writable: prometheus.NewDesc("stockd_backend_writable", "1 if a configured backend takes writes, 0 if it answers and rejects them, or does not answer.", []string{"backend"}, nil),
		waiting:  prometheus.NewDesc("stockd_group_queue_depth", "Grouped purchases that wait for a batch.", []string{"strategy"}, nil),
		pending:  prometheus.NewDesc("stockd_redis_stock_pending_orders", "Accepted orders of all replicas that are pending in the ledger.", nil, nil),
		oldest:   prometheus.NewDesc("stockd_redis_stock_oldest_pending_seconds", "Age of the oldest order that is pending in the ledger.", nil, nil),
		held:     prometheus.NewDesc("stockd_reservations_held", "Reservations that are held, those among them that are over.", nil, nil),
		overdue:  prometheus.NewDesc("stockd_reservations_overdue", "Reservations that are over, and whose units are not back.", nil, nil),
		behind:   prometheus.NewDesc("stockd_feed_reader_behind_seconds", "For how long the first order has been in the ledger that a reader of the feed has not asked beyond, as of the last time it asked this replica.", []string{"reader"}, nil),
		line:     prometheus.NewDesc("stockd_room_buyers", "Buyers in the waiting rooms of the items that this replica was asked for: waiting, or admitted and without a purchase yet.", []string{"state"}, nil),
		admits:   prometheus.NewDesc("stockd_room_admissions_total", "Buyers whom the waiting rooms have admitted, as all replicas count them together.", nil, nil),
		left:     prometheus.NewDesc("stockd_room_left_total", "Buyers who have left the waiting rooms before they were admitted, as all replicas count them together.", nil, nil),
		wait:     prometheus.NewDesc("stockd_room_wait_seconds", "How long a buyer that joins the longest line waits at its present pace; 0 where no one waits, or it is unknown.", nil, nil),
		late:     prometheus.NewDesc("stockd_reservations_overdue_seconds", "For how long the first of them has been over.", nil, nil),
	})
}

// state is the collector of a State.
type state struct {
	State

	pools                                  poolDescs
	stopping, up, waiting, pending, oldest *prometheus.Desc
	writable                               *prometheus.Desc
	held, overdue, late, behind, line      *prometheus.Desc
	admits, left, wait                     *prometheus.Desc
}

func (s state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range append(s.pools.list(), s.stopping, s.up, s.writable, s.waiting, s.pending, s.oldest, s.held, s.overdue, s.late, s.behind, s.line, s.admits, s.left, s.wait) {
		ch <- d
	}
}

func (s state) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(s.stopping, number(s.Stopping()))
	backends, _ := s.Backends(ctx) // the error is that of the database, which is among them
	for _, b := range backends {
		if b.Status != service.NotConfigured {
			gauge(s.up, number(b.Status != service.Down), b.Name)
			gauge(s.writable, number(b.Status == service.Up), b.Name)
		}
	}
	for strategy, purchases := range s.Waiting() {
		gauge(s.waiting, float64(purchases), strategy)
	}
	if lag, err := s.Lag(ctx); err == nil {
		gauge(s.pending, float64(lag.Orders))
		gauge(s.oldest, lag.Oldest.Seconds())
	}
	if n, err := s.Reservations(ctx); err == nil {
		gauge(s.held, float64(n.Open))
		gauge(s.overdue, float64(n.Overdue))
		gauge(s.late, n.Lag.Seconds())
	}
	if behind, err := s.Readers(ctx); err == nil {
		for reader, by := range behind {
			gauge(s.behind, by.Seconds(), reader)
		}
	}
	if l, err := s.Lines(ctx); err == nil {
		gauge(s.line, float64(l.Waiting), "waiting")
		gauge(s.line, float64(l.Admitted), "admitted")
		gauge(s.wait, l.Wait.Seconds())
		ch <- prometheus.MustNewConstMetric(s.admits, prometheus.CounterValue, float64(l.Admissions))
		ch <- prometheus.MustNewConstMetric(s.left, prometheus.CounterValue, float64(l.Left))
	}
	for _, pool := range s.Pools {
		s.pools.collect(pool, ch)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
