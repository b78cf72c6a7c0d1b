package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
)

// hold has the next purchases of goods 1 through a strategy wait in the middle,
// and buys so often; it returns when all of them do wait.
func (r replica) hold(t *testing.T, strategy string, purchases int, hold time.Duration) (answered []<-chan heard) {
	t.Helper()
	if err := r.SetFault(t.Context(), handler.Fault{Do: handler.Hold, Strategy: strategy, For: hold, Times: int64(purchases)}); err != nil {
		t.Fatal(err)
	}
	for range purchases {
		answered = append(answered, r.buying(t, "goods_id=1&strategy="+strategy))
	}
	await(t, "purchases to be held", 10*time.Second, func() bool {
		faults, err := r.Faults(t.Context())
		return err == nil && faults[len(faults)-1].Reached == int64(purchases)
	})
	return answered
}

// First the balancer hears of it, while everybody is still served; then nobody
// new is; then those in flight have their answers, and nothing is left locked.
func TestAReplicaDrainsInOrder(t *testing.T) {
	r := startReplica(t, "--lab-enabled=true", "--http-drain-delay=1s", "--http-drain=10s")
	held := r.hold(t, "sql-insert-lock", 1, 2500*time.Millisecond)[0]
	if left := r.locksLeft(t); left != 1 {
		t.Fatalf("%d locks are held in mid-sale, want 1", left)
	}
	r.terminate(t)
	await(t, "/readyz to say so", 900*time.Millisecond, func() bool { return do(ask(t, http.MethodGet, r.URL+"/readyz")).kind == "stopping" })
	if got := r.buy(t, "goods_id=1"); got.status != http.StatusOK || !got.close {
		t.Errorf("during the delay a purchase is answered with %d %s, closed: %v", got.status, got.text, got.close)
	}
	await(t, "the listener to close", 5*time.Second, func() bool { return r.buy(t, "goods_id=1").status == 0 })
	select {
	case got := <-held:
		t.Fatalf("the purchase in flight was answered already, with %d %s", got.status, got.text)
	default:
	}
	if got := <-held; got.status != http.StatusOK {
		t.Errorf("the purchase in flight is answered with %d %s", got.status, got.text)
	}
	if status := r.exit(t); status != exitOK {
		t.Errorf("exit status %d, want %d", status, exitOK)
	}
	if left := r.locksLeft(t); left != 0 {
		t.Errorf("%d locks are left behind", left)
	}
}

// A purchase that would take too long is given up, and its lock with it.
func TestARequestThatOutlastsTheDrainIsCancelled(t *testing.T) {
	r := startReplica(t, "--lab-enabled=true", "--http-drain=300ms", "--deduct-timeout=1m")
	held := slices.Concat(r.hold(t, "sql-insert-lock", 1, time.Minute), r.hold(t, "naive", 1, time.Minute))
	start := time.Now()
	r.terminate(t)
	for _, answered := range held {
		if got := <-answered; got.status != http.StatusServiceUnavailable || got.kind != "busy" {
			t.Errorf("it is answered with %d %s", got.status, got.text)
		}
	}
	if status := r.exit(t); status != exitFailure || !r.log.contains("http.drain (300ms)") {
		t.Errorf("exit status %d, want %d and the reason", status, exitFailure)
	}
	if took := time.Since(start); took > 300*time.Millisecond+exitWithin {
		t.Errorf("it took %s", took)
	}
	if left := r.locksLeft(t); left != 0 {
		t.Errorf("%d locks are left behind", left)
	}
}

// A purchase that finds no place is rejected at once, and one that is only sent slowly has
// none. A strategy that is slow takes no place from the item's own, nor from other items.
func TestTooManyPurchasesAreShed(t *testing.T) {
	const most = 3 // by a strategy that requests ask for: a quarter of all
	r := startReplica(t, "--lab-enabled=true", "--http-max-deductions="+strconv.Itoa(4*most))
	if err := r.CreateGoods(t.Context(), 2, 10); err != nil {
		t.Fatal(err)
	}
	for range 8 * most {
		defer r.send(t, "POST /deduct HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{").Close() //nolint:errcheck // it is only to be there
	}
	held := r.hold(t, "naive", most, time.Minute)
	start := time.Now()
	got := r.buy(t, "goods_id=1&strategy=naive")
	if got.status != http.StatusServiceUnavailable || got.kind != "busy" || got.header.Get("Retry-After") == "" || !strings.Contains(got.text, "this strategy has its share of the purchases of item 1") {
		t.Errorf("one too many is answered with %d %s, Retry-After %q", got.status, got.text, got.header.Get("Retry-After"))
	}
	for _, query := range []string{"goods_id=1", "goods_id=2", "goods_id=2&strategy=naive"} {
		if got := r.buy(t, query); got.status != http.StatusOK {
			t.Errorf("beside it %s is answered with %d %s", query, got.status, got.text)
		}
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %s to say so", took)
	}
	if got := do(ask(t, http.MethodGet, r.URL+"/goods/1")); got.status != http.StatusOK {
		t.Errorf("looking at the goods is answered with %d %s", got.status, got.text)
	}
	if err := r.ClearFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, answered := range held {
		if got := <-answered; got.status != http.StatusOK {
			t.Errorf("one that was served is answered with %d %s", got.status, got.text)
		}
	}
	r.sells(t, "afterwards")
}

// tardy is a listener that closes at once, and hands over a moment later who was
// there; its closing may fail.
type tardy struct {
	net.Listener

	late   net.Conn
	closed context.Context
	close  context.CancelFunc
	fails  error
}

func (l *tardy) Accept() (net.Conn, error) {
	<-l.closed.Done()
	if l.late == nil {
		return nil, net.ErrClosed
	}
	conn := l.late
	l.late = nil
	time.Sleep(time.Second)
	return conn, nil
}

func (l *tardy) Close() error {
	l.close()
	return l.fails
}

// A replica that has a balancer ends when drain returns: whoever was there has his
// answer by then, and a listener that could not be closed well is no reason to cut
// him off.
func TestWhoWasThereWhenTheListenerClosedIsServed(t *testing.T) {
	for name, fails := range map[string]error{"closed": nil, "not closed well": errors.New("no descriptor is left")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				buyer, late := net.Pipe()
				l := &tardy{late: late, fails: fails}
				l.closed, l.close = context.WithCancel(t.Context())
				var answered atomic.Bool
				server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Second)
					answered.Store(true)
				})}
				d := newDrainer(config.HTTP{DrainDelay: time.Second, Drain: time.Minute}, server, l, func(error) {})
				var others sync.WaitGroup
				others.Go(func() {
					if err := d.serve(); err != nil {
						t.Errorf("it serves until %v", err)
					}
				})
				others.Go(func() { buyOn(t, buyer) })
				if err := d.drain(t.Context()); !errors.Is(err, fails) {
					t.Errorf("drain says %v, want %v", err, fails)
				}
				if !answered.Load() {
					t.Error("who was there has no answer")
				}
				buyer.Close() //nolint:errcheck // he has waited long enough
				others.Wait()
			})
		})
	}
}

// buyOn sends one request on a connection, and reads the answer.
func buyOn(t *testing.T, conn net.Conn) {
	request := ask(t, http.MethodGet, "http://shop/")
	request.Close = true
	if err := request.Write(conn); err != nil {
		t.Errorf("the request is not read: %v", err)
		return
	}
	var answer strings.Builder
	if _, err := io.Copy(&answer, conn); err != nil || !strings.HasPrefix(answer.String(), "HTTP/1.1 200") {
		t.Errorf("the answer is %q, %v", &answer, err)
	}
}

// A replica that cannot have both of its listeners serves on none.
func TestNobodyIsServedByAReplicaThatCannotStart(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // the test is over
	t.Setenv("STOCKD_ADMIN_TOKEN", ownersToken)
	status, _, errOut := stockd(t, "serve", "--http-listen=127.0.0.1:0", "--admin-listen="+taken.Addr().String(),
		"--database-dsn", filepath.Join(t.TempDir(), "s.db"))
	if status != exitFailure || !strings.Contains(errOut, "open admin listener") || strings.Contains(errOut, "msg=listening") {
		t.Errorf("exit status %d, %q; want %d without a listener that was served", status, errOut, exitFailure)
	}
}
