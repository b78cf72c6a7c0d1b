package main

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/failpoint"
)

// hold has the next purchases of goods 1 through a strategy wait in the middle,
// and buys so often; it returns when all of them do wait.
func (r process) hold(t *testing.T, strategy string, purchases int, hold time.Duration) (answered []<-chan cmdtest.Answer) {
	t.Helper()
	if err := r.SetFault(t.Context(), failpoint.Fault{Do: failpoint.Hold, Strategy: strategy, For: hold, Times: int64(purchases)}); err != nil {
		t.Fatal(err)
	}
	for range purchases {
		answered = append(answered, r.Buying(t, "goods_id=1&strategy="+strategy))
	}
	cmdtest.Await(t, "purchases to be held", 10*time.Second, func() bool {
		faults, err := r.Faults(t.Context())
		return err == nil && faults[len(faults)-1].Reached == int64(purchases)
	})
	return answered
}

// First readiness fails while all requests are still served; then new ones are rejected; then
// those in flight get their answers, and nothing is left locked.
func TestAReplicaDrainsInOrder(t *testing.T) {
	r := startReplica(t, "--http-drain-delay=1s", "--http-drain=10s")
	held := r.hold(t, "sql-insert-lock", 1, 2500*time.Millisecond)[0]
	if left := r.LocksLeft(t); left != 1 {
		t.Fatalf("%d locks are held in mid-sale, want 1", left)
	}
	r.Terminate(t)
	cmdtest.Await(t, "/readyz to say so", 900*time.Millisecond, func() bool { return cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/readyz")).Kind == "stopping" })
	if got := r.Buy(t, "goods_id=1"); got.Status != http.StatusOK || !got.Close {
		t.Errorf("during the delay a purchase is answered with %d %s, closed: %v", got.Status, got.Text, got.Close)
	}
	cmdtest.Await(t, "the listener to close", 5*time.Second, func() bool { return r.Buy(t, "goods_id=1").Status == 0 })
	select {
	case got := <-held:
		t.Fatalf("the purchase in flight was answered already, with %d %s", got.Status, got.Text)
	default:
	}
	if got := <-held; got.Status != http.StatusOK {
		t.Errorf("the purchase in flight is answered with %d %s", got.Status, got.Text)
	}
	if status := r.Exit(t); status != cli.OK {
		t.Errorf("exit status %d, want %d", status, cli.OK)
	}
	if left := r.LocksLeft(t); left != 0 {
		t.Errorf("%d locks are left behind", left)
	}
}

// A purchase that would take too long is given up, and its lock with it.
func TestARequestThatOutlastsTheDrainIsCancelled(t *testing.T) {
	r := startReplica(t, "--http-drain=300ms", "--deduct-timeout=1m")
	held := slices.Concat(r.hold(t, "sql-insert-lock", 1, time.Minute), r.hold(t, "naive", 1, time.Minute))
	start := time.Now()
	r.Terminate(t)
	for _, answered := range held {
		if got := <-answered; got.Status != http.StatusServiceUnavailable || got.Kind != "busy" {
			t.Errorf("it is answered with %d %s", got.Status, got.Text)
		}
	}
	if status := r.Exit(t); status != cli.Failure || !r.Log.Contains("http.drain (300ms)") {
		t.Errorf("exit status %d, want %d and the reason", status, cli.Failure)
	}
	if took := time.Since(start); took > 300*time.Millisecond+4*time.Second {
		t.Errorf("it took %s", took)
	}
	if left := r.LocksLeft(t); left != 0 {
		t.Errorf("%d locks are left behind", left)
	}
}

// A purchase that finds no place is rejected at once, and one that is only sent slowly has
// none. A strategy that is slow takes no place from the item's own, nor from other items.
func TestTooManyPurchasesAreShed(t *testing.T) {
	const most = 3 // by a strategy that requests ask for: a quarter of all
	r := startReplica(t, "--http-max-deductions="+strconv.Itoa(4*most))
	if err := r.CreateGoods(t.Context(), 2, 10); err != nil {
		t.Fatal(err)
	}
	for range 8 * most {
		defer r.Send(t, "POST /deduct HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{").Close() //nolint:errcheck // it is only to be there
	}
	held := r.hold(t, "naive", most, time.Minute)
	start := time.Now()
	got := r.Buy(t, "goods_id=1&strategy=naive")
	if got.Status != http.StatusServiceUnavailable || got.Kind != "busy" || got.Header.Get("Retry-After") == "" || !strings.Contains(got.Text, "this strategy has its share of the purchases of item 1") {
		t.Errorf("one too many is answered with %d %s, Retry-After %q", got.Status, got.Text, got.Header.Get("Retry-After"))
	}
	for _, query := range []string{"goods_id=1", "goods_id=2", "goods_id=2&strategy=naive"} {
		if got := r.Buy(t, query); got.Status != http.StatusOK {
			t.Errorf("beside it %s is answered with %d %s", query, got.Status, got.Text)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s to say so", took)
	}
	if got := cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/goods/1")); got.Status != http.StatusOK {
		t.Errorf("reading the item is answered with %d %s", got.Status, got.Text)
	}
	if err := r.ClearFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, answered := range held {
		if got := <-answered; got.Status != http.StatusOK {
			t.Errorf("one that was served is answered with %d %s", got.Status, got.Text)
		}
	}
	r.Sells(t, "afterwards")
}
