package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/pkg/client"
)

// Honest is what honest buyers got in one phase.
type Honest struct {
	Seconds float64 `json:"seconds"`
	// Attempts is every request: Sold, SoldOut, Unknown and Rejected, which is by the
	// kind of the rejection. A rejected purchase is tried again under its key.
	Attempts int            `json:"attempts"`
	Sold     int            `json:"sold"`
	SoldOut  int            `json:"sold_out"`
	Unknown  int            `json:"unknown"`
	Rejected map[string]int `json:"rejected"`
	// Failed counts purchases that were given up.
	Failed int `json:"failed"`
	// P50, P99 and Max are of every attempt, from when it was due.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	// SoldP99 is of those that sold, SoldOutP99 of those that found nothing left.
	SoldP99    float64 `json:"sold_p99_ms"`
	SoldOutP99 float64 `json:"sold_out_p99_ms"`
	// WaitP50 and WaitP99 are of the waits in the line of those who were admitted; 0 without a room.
	WaitP50 float64 `json:"wait_p50_ms,omitempty"`
	WaitP99 float64 `json:"wait_p99_ms,omitempty"`
}

// RejectedShare is the part of the attempts that was rejected for another reason than
// the stock.
func (h Honest) RejectedShare() float64 {
	rejected := 0
	for _, n := range h.Rejected {
		rejected += n
	}
	if h.Attempts == 0 {
		return 0
	}
	return float64(rejected) / float64(h.Attempts)
}

type accepted struct {
	order

	id string
}

// crowd is the honest buyers. Each has an address of its own, and each purchase is of
// another user.
type crowd struct {
	url  string
	rate float64
	seed uint64
	// room has them wait until they are admitted.
	room bool
	// issuer signs the tokens of honest buyers, where they need any.
	issuer issuer
	// soldOut is called by a buyer who gets no unit.
	soldOut func(context.Context, int64)

	mu      sync.Mutex
	phase   *Honest
	latency latencies
	sold    []accepted
	unknown int // purchases whose outcome stays unknown
	users   int
}

// latencies are those of a phase, in microseconds.
type latencies struct{ all, sold, soldOut, wait *hdrhistogram.Histogram }

func newLatencies() latencies {
	return latencies{load.NewHistogram(), load.NewHistogram(), load.NewHistogram(), load.NewHistogram()}
}

const buyers = 40

func honestAddress(i int) net.IP { return loopback(1, i) }

// loopback is an address of this machine: the host of a network of at most 254.
func loopback(network byte, host int) net.IP {
	return net.IPv4(127, 0, network, byte(host%254+1)) //nolint:gosec // it fits
}

// clientFrom is a client that comes from one address, and sends nothing again by itself.
func clientFrom(url string, address net.IP) client.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: address}, Timeout: 5 * time.Second}
	return client.Client{URL: url, Tries: 1, HTTP: &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, IdleConnTimeout: time.Minute}}}
}

func (c *crowd) run(ctx context.Context, item int64, lasts time.Duration) Honest {
	start := time.Now()
	return c.measure(start, func(i int, buyer client.Client) {
		var waiting sync.WaitGroup
		defer waiting.Wait()
		period := time.Duration(float64(time.Second) * buyers / c.rate)
		due := start.Add(period * time.Duration(i) / buyers)
		for due.Sub(start) < lasts && sleepUntil(ctx, due) {
			if c.room { // who stands in the line holds up no later buyer
				waiting.Go(func() { c.buy(ctx, buyer, item, due) })
			} else {
				c.buy(ctx, buyer, item, due)
			}
			due = due.Add(period)
		}
	})
}

func (c *crowd) sellOut(ctx context.Context, item int64) Honest {
	return c.measure(time.Now(), func(_ int, buyer client.Client) {
		for ctx.Err() == nil && !c.buy(ctx, buyer, item, time.Now()) {
		}
	})
}

// measure runs all buyers to their end and returns the figures of the phase.
func (c *crowd) measure(start time.Time, buyer func(i int, buyer client.Client)) Honest {
	c.mu.Lock()
	c.phase, c.latency = &Honest{Rejected: make(map[string]int)}, newLatencies()
	c.mu.Unlock()
	var all sync.WaitGroup
	for i := range buyers {
		all.Go(func() {
			from := clientFrom(c.url, honestAddress(i))
			defer from.HTTP.CloseIdleConnections()
			buyer(i, from)
		})
	}
	all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	h := *c.phase
	h.Seconds = time.Since(start).Seconds()
	h.P50, h.P99, h.Max = load.Milliseconds(c.latency.all, 50), load.Milliseconds(c.latency.all, 99), load.Milliseconds(c.latency.all, 100)
	h.WaitP50, h.WaitP99 = load.Milliseconds(c.latency.wait, 50), load.Milliseconds(c.latency.wait, 99)
	h.SoldP99, h.SoldOutP99 = load.Milliseconds(c.latency.sold, 99), load.Milliseconds(c.latency.soldOut, 99)
	return h
}

// The tries of one purchase.
const (
	maxTries       = 20
	attemptTimeout = 20 * time.Second
)

// buy buys one unit under one key, however often that has to be sent, and reports
// whether the stock is gone.
func (c *crowd) buy(ctx context.Context, buyer client.Client, item int64, due time.Time) (soldOut bool) {
	purchase, user := c.purchase(item)
	if c.issuer.secret != "" {
		buyer.BuyerToken, purchase.UserID = c.issuer.token(user), ""
	}
	if c.room {
		if soldOut = c.wait(ctx, buyer, purchase, due); soldOut {
			return true
		}
		due = time.Now()
	}
	unknown := false
	for range maxTries {
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
		sale, err := buyer.Deduct(attempt, purchase)
		cancel()
		c.add(accepted{order{item, 1, user, purchase.RequestID}, sale.OrderID}, err, time.Since(due))
		switch {
		case err == nil:
			return false
		case errors.Is(err, client.ErrSoldOut):
			if c.soldOut != nil {
				c.soldOut(ctx, item)
			}
			return true
		}
		unknown = unknown || errors.Is(err, client.ErrOutcomeUnknown)
		sleepUntil(ctx, time.Now().Add(pauseAfter(err)))
		due = time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase.Failed++
	if unknown {
		c.unknown++
	}
	return false
}

// wait stands in the line until the buyer is admitted, and reports whether nothing is left to be admitted to.
func (c *crowd) wait(ctx context.Context, buyer client.Client, p client.Purchase, since time.Time) (soldOut bool) {
	ticket, err := buyer.Queue(ctx, p)
	for ctx.Err() == nil && (err != nil || ticket.State != client.Admitted) {
		if err == nil && ticket.State == client.Closed {
			if c.soldOut != nil {
				c.soldOut(ctx, p.GoodsID)
			}
			return true
		}
		sleepUntil(ctx, time.Now().Add(max(ticket.AskAfter, pauseAfter(err))))
		if err != nil || ticket.State == client.Ended {
			ticket, err = buyer.Queue(ctx, p) // a place that it has already is kept
		} else {
			ticket, err = buyer.Ticket(ctx, ticket.Ticket)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	load.Record(c.latency.wait, time.Since(since))
	return false
}

func (c *crowd) purchase(item int64) (p client.Purchase, user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	user = fmt.Sprintf("honest-%x-%d", c.seed, c.users)
	return client.Purchase{RequestID: "honest/" + user, GoodsID: item, UserID: user}, user
}

// pauseAfter is what a patient buyer waits after a rejection.
func pauseAfter(err error) time.Duration {
	if problem, ok := errors.AsType[*client.Problem](err); ok && problem.RetryAfter > 0 {
		return problem.RetryAfter
	}
	return 200 * time.Millisecond
}

func (c *crowd) add(sale accepted, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase.Attempts++
	load.Record(c.latency.all, took)
	switch {
	case err == nil:
		c.phase.Sold++
		load.Record(c.latency.sold, took)
		c.sold = append(c.sold, sale)
	case errors.Is(err, client.ErrSoldOut):
		c.phase.SoldOut++
		load.Record(c.latency.soldOut, took)
	case errors.Is(err, client.ErrOutcomeUnknown):
		c.phase.Unknown++
	default:
		c.phase.Rejected[codeOf(err)]++
	}
}

func codeOf(err error) string {
	if problem, ok := errors.AsType[*client.Problem](err); ok {
		return problem.Code
	}
	return "no-answer"
}

// stolen is a key of an honest purchase that was accepted lately, and its user; one that
// no purchase has before there are any.
func (c *crowd) stolen(r *rand.Rand) (key, user string) {
	const lately = 256
	c.mu.Lock()
	defer c.mu.Unlock()
	recent := c.sold[max(0, len(c.sold)-lately):]
	if len(recent) == 0 {
		return "honest/none", "none"
	}
	victim := recent[r.IntN(len(recent))]
	return victim.key, victim.user
}

// sleepUntil waits, and reports whether ctx goes on.
func sleepUntil(ctx context.Context, due time.Time) bool {
	return pause.For(ctx, time.Until(due)) == nil
}
