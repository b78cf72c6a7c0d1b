package handler_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

func TestACrowdThatIsGroupedSellsOut(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := serve(t, d)
		for _, strategy := range []string{"sql-conditional", "naive", "mutex"} {
			a.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 10}`, http.StatusOK)
			a.assertSellsOut(t, "goods_id=1&group=true&strategy="+strategy)
		}
	})
}

// assertSellsOut has more buy than there is, at once.
func (a api) assertSellsOut(t *testing.T, buy string) {
	t.Helper()
	const buyers = 30
	before, _ := a.get(t, "/goods/1").body["stock"].(float64)
	var mu sync.Mutex
	orders := make(map[any]bool)
	rejected := 0
	var crowd sync.WaitGroup
	for range buyers {
		crowd.Go(func() {
			got := a.buy(t, buy)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case got.status == http.StatusOK:
				orders[got.body["order_id"]] = true
			case got.problem() == "insufficient-stock":
				rejected++
			default:
				t.Errorf("%s is answered with %d %s", buy, got.status, got.text)
			}
		})
	}
	crowd.Wait()
	if len(orders) != int(before) || rejected != buyers-int(before) {
		t.Errorf("%s: %d orders and %d refusals of %g units", buy, len(orders), rejected, before)
	}
	if audit := a.get(t, "/goods/1/audit"); audit.body["clean"] != true || audit.body["stock"] != 0.0 {
		t.Errorf("%s: %s", buy, audit.text)
	}
}

func TestGroupIsAFlagThatComposesWithFence(t *testing.T) {
	a := serveSQLite(t)
	if got := a.buy(t, "goods_id=1&group=maybe"); got.status != http.StatusBadRequest || got.field() != "group" {
		t.Errorf("group=maybe is answered with %d %s", got.status, got.text)
	}
	if got := a.buy(t, "goods_id=1&group=true&fence=true"); got.status != http.StatusBadRequest || got.field() != "fence" {
		t.Errorf("a fence where there is no lock is answered with %d %s", got.status, got.text)
	}
	got := a.buy(t, "goods_id=1&group=true&fence=true&strategy=sql-version-lock")
	if token, _ := got.body["token"].(float64); got.status != http.StatusOK || token < 1 {
		t.Errorf("grouped and fenced is answered with %d %s", got.status, got.text)
	}
}

// While a lock is held the queue of an item fills, and is blocked: one more is
// busy at once, and a key that was sold under is answered all the same.
func TestABlockedQueueIsBusy(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	locks := lab.Locks(t, d)
	a := serveWith(t, d, locks)
	const buy = "/deduct?goods_id=1&group=true&strategy=sql-insert-lock"
	keyed := func() answer {
		r := request(t, http.MethodPost, a.public.URL+buy, "", "")
		r.Header.Set("Idempotency-Key", "known")
		return send(t, r)
	}
	if got := keyed(); got.status != http.StatusOK {
		t.Fatalf("%d %s", got.status, got.text)
	}
	release := hold(t, locks)
	const tooMany = 60
	full := make(chan struct{}, 1+queue+tooMany)
	var crowd sync.WaitGroup
	for range cap(full) {
		crowd.Go(func() {
			got := send(t, request(t, http.MethodPost, a.public.URL+buy, "", ""))
			if detail, _ := got.body["detail"].(string); !strings.Contains(detail, "wait for item 1 already") {
				return
			}
			full <- struct{}{}
			if got.status != http.StatusServiceUnavailable || got.problem() != "busy" || got.header.Get("Retry-After") == "" {
				t.Errorf("of a full queue: %d %s", got.status, got.text)
			}
		})
	}
	// Ten of sixty: each batch that gives up the lock makes a few places free.
	for range 10 {
		select {
		case <-full:
		case <-time.After(30 * time.Second):
			t.Fatal("a blocked queue takes every request")
		}
	}
	for range 3 {
		asked := time.Now()
		if got := keyed(); got.status != http.StatusOK || got.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("a known key, while the queue is blocked: %d %s", got.status, got.text)
		}
		if took := time.Since(asked); took > lockWait {
			t.Errorf("a known key is answered after %s, the queue waits for a lock that is held for longer", took)
		}
	}
	release()
	crowd.Wait()
}

// hold takes the lock of goods 1 in SQL.
func hold(t *testing.T, locks lock.Deps) (release func()) {
	t.Helper()
	for _, entry := range registry.Locks() {
		if entry.Name != "sql-insert-lock" {
			continue
		}
		lease, err := entry.New(locks).Acquire(t.Context(), "goods/1")
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	t.Fatal("there is no sql-insert-lock")
	return nil
}
