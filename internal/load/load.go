// Package load sends purchases to a stockd and counts what comes back.
package load

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockd/stockd/internal/pause"
)

// Plan says what to send.
type Plan struct {
	// URL is the stockd's, such as http://127.0.0.1:8080.
	URL string
	// Strategy sells; empty: none is named, and the item is sold as it is configured.
	Strategy string
	Group    bool
	Fence    bool
	// Paid has each unit reserved, and paid for by a second request, on the same connection.
	Paid bool
	// Look has each request look at the item instead: what is answered counts as sold.
	Look    bool
	GoodsID int64
	// Goods is the item of the next request; nil: all are of GoodsID.
	Goods func() int64
	// Clients send at the same time, each on a connection of its own.
	Clients int
	// Requests ends the run after so many, Duration after so long; one of them
	// must be set, and the first that is reached ends it.
	Requests int
	Duration time.Duration
	// Rate makes an open loop of so many requests a second: each has a time at
	// which it should be sent, and its latency counts from then, whether a
	// client was free or not. 0 is a closed loop: a client sends its next
	// request when the last one is answered.
	Rate float64
	// Timeout bounds one request.
	Timeout time.Duration
	// Progress gets how many requests have been answered so far, now and
	// then; it may be nil.
	Progress func(answered int)
	// Key makes the Idempotency-Key of a client's next request; nil: none is sent.
	Key func(client int) string
	// BuyerToken is the bearer token of the buyer of the next request; nil: none is sent.
	BuyerToken func() string
	// User names the buyer of the next request; nil: none is sent.
	User func() string
	// Wait is called before each request, and reports whether it is sent; one that is not is its client's end. Latency counts from
	// its end. nil: each is sent at once.
	Wait func(context.Context) (more bool)
	// SoldOut is called after a rejection for want of stock, while no request is under
	// way, and reports whether the run goes on; it may restock. One call answers for all
	// requests that were sent before it. nil: the run goes on.
	SoldOut func(context.Context) (more bool, err error)
	// Observe gets every answer, from many goroutines at once; it may be nil.
	Observe func(Answer)
}

// Answer is what one request got, as its sender saw it.
type Answer struct {
	// Client is who sent it, from 0, with Key as its Idempotency-Key.
	Client int
	Key    string
	// Start is when it was sent, End when the answer was there or given up.
	Start, End time.Time
	Kind       Kind
	// Problem is the last part of the problem's type where Kind is Failed.
	Problem string
	// Why is what is known of an answer that is Unknown, for people.
	Why string
	// The rest is as the answer to a sale has it.
	Order, Replica, Strategy string
	Remaining                int64
	Token                    uint64
	Wait, Hold               time.Duration
}

// Result is what came back.
type Result struct {
	// Sent is every request; it is Sold + Rejected + Unknown + the Errors.
	Sent, Sold, Rejected, Unknown int
	// Errors counts the rest by the last part of the problem's type.
	Errors map[string]int
	// Duplicates counts orders that were given to more than one request.
	Duplicates int
	// Replicas are those that sold and named themselves, and Strategies what they sold through.
	Replicas, Strategies []string
	Elapsed              time.Duration
	// Selling is the time until the last sale was answered; 0: nothing was sold.
	Selling time.Duration
	// Latency is of all requests, SaleLatency of those that sold, in microseconds.
	Latency, SaleLatency *hdrhistogram.Histogram
	// Received is the bytes that all connections read, with the heads of the answers.
	Received int64
}

// Failed counts the requests that got neither a sale nor a rejection for want of stock.
func (r *Result) Failed() int { return r.Sent - r.Sold - r.Rejected }

// kilobyte is JMeter's, so that its column can be compared.
const kilobyte = 1024

// KilobytesPerSecond is how fast answers came, in 1,024 bytes.
func (r *Result) KilobytesPerSecond() float64 {
	return float64(r.Received) / kilobyte / r.Elapsed.Seconds()
}

// NewHistogram is one of latencies, in microseconds to five minutes, to three digits.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, (5 * time.Minute).Microseconds(), 3)
}

// Record adds a latency. One outside the histogram is counted at its edge, not dropped.
func Record(h *hdrhistogram.Histogram, took time.Duration) {
	_ = h.RecordValue(min(max(took.Microseconds(), 1), h.HighestTrackableValue()))
}

// Milliseconds is a quantile of latencies, from 0 to 100.
func Milliseconds(h *hdrhistogram.Histogram, quantile float64) float64 {
	return float64(h.ValueAtQuantile(quantile)) / 1000
}

// Run sends what the plan says, until it is done, SoldOut ends it or ctx ends. Requests
// that have been sent are waited for in any case.
func Run(ctx context.Context, p Plan) (*Result, error) {
	sender, err := newSender(p)
	if err != nil {
		return nil, err
	}
	defer sender.close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	gate := &gate{soldOut: p.SoldOut, end: end}
	schedule := newSchedule(p)
	tallies := make([]*tally, p.Clients)
	var answered atomic.Int64
	stop := p.report(&answered)
	var clients sync.WaitGroup
	for i := range p.Clients {
		tallies[i] = newTally()
		clients.Go(func() {
			for {
				due, more := schedule.next(ctx)
				if !more || p.Wait != nil && !p.Wait(ctx) {
					return
				}
				gate.pass(ctx, func() Kind {
					if p.Rate == 0 || p.Wait != nil {
						due = time.Now()
					}
					a := sender.send(i)
					tallies[i].add(a, time.Since(due))
					answered.Add(1)
					return a.Kind
				})
			}
		})
	}
	clients.Wait()
	stop()
	result := merge(tallies, time.Since(schedule.start))
	for _, t := range tallies {
		result.Selling = max(result.Selling, t.lastSale.Sub(schedule.start))
	}
	result.Received = sender.received.Load()
	return result, gate.err
}

// report calls the plan's Progress until it is stopped.
func (p Plan) report(answered *atomic.Int64) (stop func()) {
	if p.Progress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.Progress(int(answered.Load()))
			case <-done:
				p.Progress(int(answered.Load()))
				return
			}
		}
	})
	return func() {
		close(done)
		reporter.Wait()
	}
}

// schedule hands out the requests of a run.
type schedule struct {
	plan  Plan
	start time.Time
	taken atomic.Int64
}

func newSchedule(p Plan) *schedule { return &schedule{plan: p, start: time.Now()} }

// next waits for the time of the next request and returns when that was meant
// to be; there may be no more.
func (s *schedule) next(ctx context.Context) (due time.Time, more bool) {
	n := s.taken.Add(1) - 1
	if ctx.Err() != nil || s.plan.Requests > 0 && n >= int64(s.plan.Requests) {
		return time.Time{}, false
	}
	due = time.Now()
	if s.plan.Rate > 0 {
		due = s.start.Add(time.Duration(min(float64(n)/s.plan.Rate*float64(time.Second), 1<<62))) // more would overflow into the past
	}
	if s.plan.Duration > 0 && due.Sub(s.start) >= s.plan.Duration {
		return time.Time{}, false
	}
	if wait := time.Until(due); wait > 0 && pause.For(ctx, wait) != nil {
		return time.Time{}, false
	}
	return due, true
}

// target is the URL of one purchase.
func (p Plan) target() (*url.URL, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, fmt.Errorf("read URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not a URL such as http://127.0.0.1:8080", p.URL)
	}
	if p.Look {
		return u.JoinPath("goods", strconv.FormatInt(p.GoodsID, 10)), nil
	}
	u = u.JoinPath(map[bool]string{false: "deduct", true: "reservations"}[p.Paid])
	query := url.Values{"goods_id": {strconv.FormatInt(p.GoodsID, 10)}}
	if p.Strategy != "" {
		query.Set("strategy", p.Strategy)
	}
	if p.Group {
		query.Set("group", "true")
	}
	if p.Fence {
		query.Set("fence", "true")
	}
	u.RawQuery = query.Encode()
	return u, nil
}

// gate holds requests back while a plan's SoldOut is called.
type gate struct {
	soldOut func(context.Context) (more bool, err error)
	end     context.CancelFunc
	// mu is held for reading by each request that is under way; it guards the rest.
	mu    sync.RWMutex
	calls int
	err   error
}

// pass sends a request, and calls SoldOut where it is rejected for want of stock. The
// run may have ended while the request was held back: then it is not sent.
func (g *gate) pass(ctx context.Context, send func() Kind) {
	g.mu.RLock()
	if ctx.Err() != nil {
		g.mu.RUnlock()
		return
	}
	calls, kind := g.calls, send()
	g.mu.RUnlock()
	if kind == Rejected && g.soldOut != nil {
		g.rejected(ctx, calls)
	}
}

// rejected calls SoldOut, unless it was called since the rejected request was sent.
func (g *gate) rejected(ctx context.Context, calls int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls != calls || ctx.Err() != nil {
		return
	}
	g.calls++
	more, err := g.soldOut(ctx)
	if ctx.Err() == nil {
		g.err = err
	}
	if !more || err != nil {
		g.end()
	}
}

// tally counts the answers of one client.
type tally struct {
	counts     [4]int // by Kind
	errors     map[string]int
	orders     []string
	replicas   map[string]bool
	strategies map[string]bool
	latency    *hdrhistogram.Histogram // of all
	sales      *hdrhistogram.Histogram // of those that sold
	lastSale   time.Time
}

func newTally() *tally {
	return &tally{
		errors: make(map[string]int), replicas: make(map[string]bool), strategies: make(map[string]bool),
		latency: NewHistogram(), sales: NewHistogram(),
	}
}

func (t *tally) add(r Answer, took time.Duration) {
	t.counts[r.Kind]++
	Record(t.latency, took)
	switch r.Kind {
	case Sold:
		if t.lastSale = time.Now(); r.Order != "" { // a look has none
			t.orders = append(t.orders, r.Order)
		}
		t.strategies[r.Strategy] = true
		if r.Replica != "" {
			t.replicas[r.Replica] = true
		}
		Record(t.sales, took)
	case Failed:
		t.errors[r.Problem]++
	case Rejected, Unknown:
	}
}

func merge(tallies []*tally, elapsed time.Duration) *Result {
	r := &Result{Errors: make(map[string]int), Elapsed: elapsed, Latency: NewHistogram(), SaleLatency: NewHistogram()}
	orders, replicas, strategies := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, t := range tallies {
		for _, n := range t.counts {
			r.Sent += n
		}
		r.Sold += t.counts[Sold]
		r.Rejected += t.counts[Rejected]
		r.Unknown += t.counts[Unknown]
		for problem, n := range t.errors {
			r.Errors[problem] += n
		}
		for _, order := range t.orders {
			if orders[order] {
				r.Duplicates++
			}
			orders[order] = true
		}
		maps.Copy(replicas, t.replicas)
		maps.Copy(strategies, t.strategies)
		r.Latency.Merge(t.latency)
		r.SaleLatency.Merge(t.sales)
	}
	r.Replicas, r.Strategies = slices.Sorted(maps.Keys(replicas)), slices.Sorted(maps.Keys(strategies))
	return r
}
