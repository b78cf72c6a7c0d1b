// Package load sends purchases to a stockd and counts what comes back.
package load

import (
	"context"
	"fmt"
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

	orders   []string // of all sales
	lastSale time.Time
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
	results := make([]*Result, p.Clients)
	var answered atomic.Int64
	stop := p.report(&answered)
	var clients sync.WaitGroup
	for i := range p.Clients {
		results[i] = newResult()
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
					results[i].add(a, time.Since(due))
					answered.Add(1)
					return a.Kind
				})
			}
		})
	}
	clients.Wait()
	stop()
	result := merge(results, schedule.start)
	result.Received = sender.received.Load()
	return result, gate.err
}

// report calls the plan's Progress until it is stopped.
func (p Plan) report(answered *atomic.Int64) (stop func()) {
	if p.Progress == nil {
		return func() {}
	}
	ctx, end := context.WithCancel(context.Background())
	var reporter sync.WaitGroup
	reporter.Go(func() {
		for pause.For(ctx, 100*time.Millisecond) == nil {
			p.Progress(int(answered.Load()))
		}
		p.Progress(int(answered.Load()))
	})
	return func() {
		end()
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

func newResult() *Result {
	return &Result{Errors: make(map[string]int), Latency: NewHistogram(), SaleLatency: NewHistogram()}
}

// add counts an answer.
func (r *Result) add(a Answer, took time.Duration) {
	r.Sent++
	Record(r.Latency, took)
	switch a.Kind {
	case Sold:
		r.Sold++
		r.lastSale = time.Now()
		if a.Order != "" { // a look has none
			r.orders = append(r.orders, a.Order)
		}
		r.Replicas, r.Strategies = including(r.Replicas, a.Replica), including(r.Strategies, a.Strategy)
		Record(r.SaleLatency, took)
	case Rejected:
		r.Rejected++
	case Unknown:
		r.Unknown++
	case Failed:
		r.Errors[a.Problem]++
	}
}

// including is a short list with a name in it once.
func including(names []string, name string) []string {
	if name == "" || slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}

// Add adds what came back to others, or at another time.
func (r *Result) Add(other *Result) {
	r.Sent += other.Sent
	r.Sold += other.Sold
	r.Rejected += other.Rejected
	r.Unknown += other.Unknown
	r.Duplicates += other.Duplicates
	r.Received += other.Received
	r.Elapsed += other.Elapsed
	r.Selling += other.Selling
	for problem, n := range other.Errors {
		r.Errors[problem] += n
	}
	for _, replica := range other.Replicas {
		r.Replicas = including(r.Replicas, replica)
	}
	for _, strategy := range other.Strategies {
		r.Strategies = including(r.Strategies, strategy)
	}
	r.Latency.Merge(other.Latency)
	r.SaleLatency.Merge(other.SaleLatency)
}

// merge sums the answers of all clients up, since the start of the run.
func merge(clients []*Result, start time.Time) *Result {
	all := newResult()
	for _, r := range clients {
		all.Add(r)
		all.orders = append(all.orders, r.orders...)
		all.Selling = max(all.Selling, r.lastSale.Sub(start))
	}
	all.Elapsed = time.Since(start)
	slices.Sort(all.Replicas)
	slices.Sort(all.Strategies)
	slices.Sort(all.orders)
	all.Duplicates = len(all.orders) - len(slices.Compact(all.orders))
	return all
}
