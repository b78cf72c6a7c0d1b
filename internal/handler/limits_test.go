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
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
)

// serveBlocked serves a replica on which a strategy that does not return holds all the slots
// that it gets on item 1. release ends those purchases.
func serveBlocked(t *testing.T, change func(o *handler.Options)) (a api, release func()) {
	t.Helper()
	a, _, release = serveFlooded(t, 1, change)
	return a, release
}

// serveFlooded is serveBlocked for an item: 1, or 3, which is sold by that strategy anyway. held is
// how many slots they get.
func serveFlooded(t *testing.T, item int, change func(o *handler.Options)) (a api, held int, release func()) {
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
			held++
		case got := <-shed:
			should.Be(t, got.problem(), "busy", "the flood is answered", got.status, got.text)
		}
	}
	return a, held, sync.OnceFunc(func() {
		close(b.release)
		crowd.Wait()
		close(b.entered)
	})
}

func TestASlowStrategyTakesNoSlotFromOtherPurchases(t *testing.T) {
	a, release := serveBlocked(t, func(o *handler.Options) { o.MaxDeductions = 24 })
	defer release()
	for i := range 20 {
		for _, query := range []string{"goods_id=1", "goods_id=2", "goods_id=2&strategy=mutex"} {
			if i >= 10 && query == "goods_id=1" {
				continue // it is sold out
			}
			a.buy(t, query).is(t, "")
		}
	}
}

// A purchase that names what its item is sold by anyway is one in the item's mode: it has more of
// the slots than those that ask for something else.
func TestNamingTheItemsOwnStrategyAsksForNothingElse(t *testing.T) {
	for item, want := range map[int]int{1: 6, 3: 12} {
		_, held, release := serveFlooded(t, item, func(o *handler.Options) { o.MaxDeductions = 24 })
		release()
		should.Be(t, held, want, "purchases of item … by blocking get … of 24 slots", item)
	}
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
	a, release := serveBlocked(t, func(o *handler.Options) {
		o.MaxDeductions, o.Limits.User = 1, rate.Rate{PerSecond: onceOnly, Burst: 1}
	})
	defer release()
	for range 3 {
		a.buy(t, "goods_id=2&user_id=u-1").is(t, "busy")
	}
	release()
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		if got := a.buy(t, "goods_id=2&user_id=u-1"); got.status != want {
			t.Errorf("retry %d is answered with %d %s, want %d", i, got.status, got.text, want)
		}
	}
	// A rate-limited purchase releases its slot.
	a.buy(t, "goods_id=2&user_id=u-2").is(t, "")
}

func TestAShedPurchaseDoesNotCountForTheRateOfItsAddress(t *testing.T) {
	const burst = 45 // more than serveBlocked sends at once
	a, release := serveBlocked(t, func(o *handler.Options) {
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
		if got := a.buy(t, "goods_id=2"); got.status != want {
			t.Fatalf("retry %d is answered with %d %s, want %d", i, got.status, got.text, want)
		}
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
		_, _, release := serveFlooded(t, c.item, func(o *handler.Options) { o.MaxDeductions = c.slots; o.Observer = n })
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

// No client becomes another one by a header.
func TestAForgedAddressIsNotBelieved(t *testing.T) {
	limited := func(o *handler.Options) { o.Limits.Address = rate.Rate{PerSecond: onceOnly, Burst: 1} }
	for _, c := range []struct {
		name   string
		proxy  string
		second string // the X-Forwarded-For of a second request; the first has 192.0.2.1
		status int
	}{
		{"no proxy is trusted", "", "192.0.2.2", http.StatusTooManyRequests},
		{"another proxy is trusted", "192.0.2.0/24", "192.0.2.2", http.StatusTooManyRequests},
		{"a proxy is trusted", "127.0.0.1/32", "192.0.2.2", http.StatusOK},
		{"a proxy is trusted, what its client forged is not", "127.0.0.0/8", "192.0.2.2, 192.0.2.1", http.StatusTooManyRequests},
		{"a proxy is trusted, a header that is none is not", "127.0.0.1/32", "' OR 1=1", http.StatusOK}, // it is the proxy's own
	} {
		t.Run(c.name, func(t *testing.T) {
			a := serveSQLite(t).with(t, limited).with(t, func(o *handler.Options) {
				if c.proxy != "" {
					o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(c.proxy)}
				}
			})
			a.buyAs(t, "goods_id=1", "X-Forwarded-For", "192.0.2.1").is(t, "")
			got := a.buyAs(t, "goods_id=1", "X-Forwarded-For", c.second)
			if got.status != c.status || got.status != http.StatusOK && got.problem() != "rate-limited" {
				t.Errorf("the second is answered with %d %s, want %d", got.status, got.text, c.status)
			}
			for _, path := range []string{"/readyz", "/healthz"} {
				a.get(t, path).is(t, "")
			}
		})
	}
}
