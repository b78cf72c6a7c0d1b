package handler_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
)

// serveFlooded serves a replica on which a strategy that does not return holds all the slots that it
// gets on an item: 1, or 3, which is sold by that strategy anyway. release ends those purchases.
func serveFlooded(t *testing.T, item int, change func(o *handler.Options)) (a api, release func()) {
	t.Helper()
	d := lab.Database(t, servers.SQLite)
	b := blocking{make(chan struct{}), make(chan struct{})}
	a = serveEntries(t, d, lab.Locks(t, d), append(strategy.Registry(), strategy.Entry{
		Name: "blocking", Family: strategy.None, Summary: "waits", New: func(strategy.Deps) strategy.Strategy { return b },
	}))
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 100}`, http.StatusCreated)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 3, "stock": 100, "strategy": "blocking"}`, http.StatusCreated)
	a = a.with(t, change)
	const clients = 40
	entered, shed := make(chan struct{}, clients), make(chan answer, clients)
	var crowd sync.WaitGroup
	for i := range clients {
		crowd.Go(func() { shed <- a.buy(t, fmt.Sprintf("goods_id=%d&strategy=blocking&user_id=c-%d", item, i)) })
	}
	go func() {
		for range b.entered {
			entered <- struct{}{}
		}
	}()
	for range clients { // each is served or rejected
		select {
		case <-entered:
		case got := <-shed:
			should.Be(t, got.problem(), "busy", "the flood is answered", got.status, got.text)
		}
	}
	return a, sync.OnceFunc(func() {
		close(b.release)
		crowd.Wait()
		close(b.entered)
	})
}

// Whatever becomes of a purchase, its slot is free again.
func TestAPurchaseThatPanicsReleasesItsSlot(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveEntries(t, d, lab.Locks(t, d), append(strategy.Registry(), failingEntry())).with(t, func(o *handler.Options) { o.MaxDeductions = 1 })
	for _, query := range []string{"strategy=failing&user_id=a-panic", "strategy=failing&user_id=internal"} { // the first is answered by no outcome at all
		a.buy(t, "goods_id=1&"+query).is(t, "internal")
	}
	a.buy(t, "goods_id=1").is(t, "")
}

func TestAShedPurchaseDoesNotCountForTheRateOfItsUser(t *testing.T) {
	a, release := serveFlooded(t, 1, func(o *handler.Options) {
		o.MaxDeductions, o.Limits.User = 1, rate.Rate{PerSecond: onceOnly, Burst: 1}
	})
	defer release()
	for range 3 {
		a.buy(t, "goods_id=2&user_id=u-1").is(t, "busy")
	}
	release()
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		got := a.buy(t, "goods_id=2&user_id=u-1")
		should.Be(t, got.status, want, "retry", i, "is answered with", got.text)
	}
	// A rate-limited purchase releases its slot.
	a.buy(t, "goods_id=2&user_id=u-2").is(t, "")
}

func TestAShedPurchaseDoesNotCountForTheRateOfItsAddress(t *testing.T) {
	const burst = 45 // more than serveFlooded sends at once
	a, release := serveFlooded(t, 1, func(o *handler.Options) {
		o.MaxDeductions, o.Limits.Address = 1, rate.Rate{PerSecond: onceOnly, Burst: burst}
	})
	defer release()
	for i := range burst {
		path := []string{"/deduct?goods_id=2", "/orders?lines=2:1", "/reservations?goods_id=2"}[i%3]
		a.post(t, path).is(t, "busy")
	}
	release()
	for i := range burst { // one purchase of the flood was sold
		want := http.StatusOK
		if i == burst-1 {
			want = http.StatusTooManyRequests
		}
		got := a.buy(t, "goods_id=2")
		must.Be(t, got.status, want, "retry", i, "is answered with", got.text)
	}
}

// noted counts what an observer is notified of.
type noted struct {
	mu     sync.Mutex
	counts map[string]int
}

func (n *noted) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts[what]++
}

func (n *noted) Began(listener string)        { n.note("began " + listener) }
func (n *noted) Ended(_, route string, _ int) { n.note("ended " + route) }
func (n *noted) Shed(full string)             { n.note("shed " + full) }
func (n *noted) RateLimited(by string)        { n.note("limited by " + by) }
func (n *noted) Panicked()                    { n.note("panicked") }
func (n *noted) seen() map[string]int         { n.mu.Lock(); defer n.mu.Unlock(); return maps.Clone(n.counts) }
func observed() (o *noted)                    { return &noted{counts: make(map[string]int)} }

func TestEachRejectionIsNotifiedOnceByItsLimit(t *testing.T) {
	for want, limits := range map[string]handler.Limits{
		"limited by user":    {User: rate.Rate{PerSecond: onceOnly, Burst: 1}},
		"limited by address": {Address: rate.Rate{PerSecond: onceOnly, Burst: 1}},
	} {
		n := observed()
		a := serveSQLite(t).with(t, func(o *handler.Options) { o.Limits = limits; o.Observer = n })
		for range 3 {
			a.buy(t, "goods_id=1&user_id=u-1")
		}
		if got := n.seen(); got[want] != 2 || len(got) != 3 || got["began public"] != 3 || got["ended /deduct"] != 3 {
			t.Errorf("one purchase and two beyond the rate: %v, want %s twice", got, want)
		}
	}
}

func TestAShedPurchaseIsNotifiedByWhatIsFull(t *testing.T) {
	for _, c := range []struct {
		item, slots int
		want        string
		times       int // of 40 purchases
	}{{1, 1, "shed replica", 39}, {3, 24, "shed item", 28}, {1, 24, "shed strategy", 34}} {
		n := observed()
		_, release := serveFlooded(t, c.item, func(o *handler.Options) { o.MaxDeductions = c.slots; o.Observer = n })
		release()
		if got := n.seen(); got[c.want] != c.times || got["shed replica"]+got["shed item"]+got["shed strategy"] != c.times {
			t.Errorf("40 purchases of item %d for %d slots: %v, want %s %d times", c.item, c.slots, got, c.want, c.times)
		}
	}
}

func TestARateByUser(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Limits.User = rate.Rate{PerSecond: onceOnly, Burst: 2} })
	for i, c := range []struct {
		path string
		want int
	}{
		{"/deduct", http.StatusOK}, {"/reservations", http.StatusCreated}, {"/reservations", http.StatusTooManyRequests}, {"/deduct", http.StatusTooManyRequests},
	} {
		got := a.post(t, c.path+"?goods_id=1&user_id=u-1")
		should.Be(t, got.status, c.want, "purchase … is answered", i+1, got.text)
		if c.want == http.StatusTooManyRequests && (got.problem() != "rate-limited" || !within(got.header.Get("Retry-After"), 1000, 1002)) {
			t.Errorf("too often is answered with %s, Retry-After %q", got.text, got.header.Get("Retry-After"))
		}
	}
	for _, query := range []string{"goods_id=1&user_id=u-2", "goods_id=1&user_id=u-3"} {
		a.buy(t, query).is(t, "")
	}
	should.Be(t, a.get(t, "/goods/1").body["stock"], 6.0, "are left")
}

// A client behind a trusted proxy is counted by its own address, and no other client by what it says of itself.
func TestARateByAddressIsThatOfTheClient(t *testing.T) {
	limited := serveSQLite(t).with(t, func(o *handler.Options) { o.Limits.Address = rate.Rate{PerSecond: onceOnly, Burst: 1} })
	proxied := limited.with(t, func(o *handler.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	for want, a := range map[string]api{"rate-limited": limited, "": proxied} {
		a.buyAs(t, "goods_id=1", "X-Forwarded-For", "192.0.2.1").is(t, "")
		a.buyAs(t, "goods_id=1", "X-Forwarded-For", "192.0.2.2").is(t, want)
	}
}
