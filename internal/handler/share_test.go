package handler_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/strategy"
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
			if got.problem() != "busy" {
				t.Errorf("the flood is answered with %d %s", got.status, got.text)
			}
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
			if got := a.buy(t, query); got.status != http.StatusOK {
				t.Errorf("beside the flood %s is answered with %d %s", query, got.status, got.text)
			}
		}
	}
}

// A purchase that names what its item is sold by anyway is one in the item's mode: it has more of
// the slots than those that ask for something else.
func TestNamingTheItemsOwnStrategyAsksForNothingElse(t *testing.T) {
	for item, want := range map[int]int{1: 6, 3: 12} {
		_, held, release := serveFlooded(t, item, func(o *handler.Options) { o.MaxDeductions = 24 })
		release()
		if held != want {
			t.Errorf("purchases of item %d by blocking get %d of 24 slots, want %d", item, held, want)
		}
	}
}

// Whatever becomes of a purchase, its slot is free again.
func TestAPurchaseThatPanicsReleasesItsSlot(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveEntries(t, d, lab.Locks(t, d), append(strategy.Registry(), failingEntry())).with(t, func(o *handler.Options) { o.MaxDeductions = 1 })
	for _, query := range []string{"strategy=failing&user_id=a-panic", "strategy=failing&user_id=internal"} { // the first is answered by no outcome at all
		if got := a.buy(t, "goods_id=1&"+query); got.problem() != "internal" {
			t.Errorf("%s is answered with %d %s", query, got.status, got.text)
		}
	}
	if got := a.buy(t, "goods_id=1"); got.status != http.StatusOK {
		t.Errorf("after a panic a purchase is answered with %d %s", got.status, got.text)
	}
}

func TestAShedPurchaseDoesNotCountForTheRateOfItsUser(t *testing.T) {
	a, release := serveBlocked(t, func(o *handler.Options) {
		o.MaxDeductions, o.Limits.User = 1, handler.Rate{PerSecond: onceOnly, Burst: 1}
	})
	defer release()
	for i := range 3 {
		if got := a.buy(t, "goods_id=2&user_id=u-1"); got.problem() != "busy" {
			t.Errorf("purchase %d beyond the slots is answered with %d %s", i, got.status, got.text)
		}
	}
	release()
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		if got := a.buy(t, "goods_id=2&user_id=u-1"); got.status != want {
			t.Errorf("retry %d is answered with %d %s, want %d", i, got.status, got.text, want)
		}
	}
	// A rate-limited purchase releases its slot.
	if got := a.buy(t, "goods_id=2&user_id=u-2"); got.status != http.StatusOK {
		t.Errorf("another user is answered with %d %s", got.status, got.text)
	}
}

func TestAShedPurchaseDoesNotCountForTheRateOfItsAddress(t *testing.T) {
	const burst = 45 // more than serveBlocked sends at once
	a, release := serveBlocked(t, func(o *handler.Options) {
		o.MaxDeductions, o.Limits.Address = 1, handler.Rate{PerSecond: onceOnly, Burst: burst}
	})
	defer release()
	for i := range burst {
		path := []string{"/deduct?goods_id=2", "/orders?lines=2:1", "/reservations?goods_id=2"}[i%3]
		if got := a.bought(t, path); got.problem() != "busy" {
			t.Fatalf("purchase %d beyond the slots is answered with %d %s", i, got.status, got.text)
		}
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
