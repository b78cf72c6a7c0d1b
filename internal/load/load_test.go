package load_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// shop answers purchases as a test says; n counts them from 0.
func shop(t *testing.T, answer func(w http.ResponseWriter, n int64)) string {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/deduct" || r.URL.Query().Get("goods_id") != "7" || r.URL.Query().Get("strategy") != "s" {
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
		answer(w, n.Add(1)-1)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func sold(w http.ResponseWriter, order, replica string) {
	fmt.Fprintf(w, `{"order_id": %q, "replica": %q}`, order, replica) //nolint:errcheck // the client notices
}

func problem(w http.ResponseWriter, status int, slug string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"type": "urn:stockd:problem:%s"}`, slug) //nolint:errcheck // the client notices
}

func run(t *testing.T, p load.Plan) *load.Result {
	t.Helper()
	p.GoodsID, p.Strategy = 7, "s"
	if p.Timeout == 0 {
		p.Timeout = 5 * time.Second
	}
	r := must.Get(load.Run(t.Context(), p))(t)
	return r
}

func TestEveryAnswerIsCountedForWhatItMeans(t *testing.T) {
	url := shop(t, func(w http.ResponseWriter, n int64) {
		switch n % 8 {
		case 0, 1:
			sold(w, fmt.Sprint("order-", n), fmt.Sprint("replica-", n%2))
		case 2:
			sold(w, "always the same", "replica-0")
		case 3:
			problem(w, http.StatusConflict, "insufficient-stock")
		case 4:
			problem(w, http.StatusServiceUnavailable, "outcome-unknown")
		case 5:
			problem(w, http.StatusServiceUnavailable, "busy")
		case 6:
			w.WriteHeader(http.StatusBadGateway) // a balancer whose replica died
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	})
	r := run(t, load.Plan{URL: url, Clients: 4, Requests: 800})
	if r.Sent != 800 || r.Sold != 300 || r.Rejected != 100 || r.Unknown != 200 || r.Duplicates != 99 {
		t.Errorf("%+v", r)
	}
	if r.Errors["busy"] != 100 || r.Errors["http-418"] != 100 || len(r.Errors) != 2 {
		t.Errorf("errors are %v", r.Errors)
	}
	should.Be(t, fmt.Sprint(r.Replicas), "[replica-0 replica-1]", "the replicas")
	should.Be(t, r.Latency.TotalCount(), 800, "the latencies")
}

// A look is a GET of the item, and no order, so two of them are no duplicate.
func TestALookBuysNothing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/goods/7" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	if r := run(t, load.Plan{URL: server.URL, Look: true, Clients: 2, Requests: 10}); r.Sold != 10 || r.Duplicates != 0 {
		t.Errorf("%+v", r)
	}
}

// A unit is sold when it is paid for: a payment that comes too late has sold nothing.
func TestAReservationIsPaidForByItsSender(t *testing.T) {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1) - 1
		id := fmt.Sprint("r-", n/2)
		should.Be(t, r.Header.Get("Authorization"), "Bearer buyer", r.Method, r.URL, "is sent with")
		switch {
		case n%2 == 0 && r.URL.Path == "/reservations" && r.URL.Query().Get("goods_id") == "7" && r.URL.Query().Get("strategy") == "s":
			time.Sleep(time.Millisecond) // the wait of a sale begins with its reservation
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"reservation_id": %q, "state": "held"}`, id) //nolint:errcheck // the client notices
		case n%2 == 1 && r.URL.Path == "/reservations/"+id+"/confirm" && r.URL.Query().Get("payment_reference") == id && n%4 == 1:
			sold(w, id, "replica-0")
		case n%2 == 1 && r.URL.Path == "/reservations/"+id+"/confirm":
			problem(w, http.StatusConflict, "reservation-expired")
		default:
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
	}))
	t.Cleanup(s.Close)
	var payments []load.Answer
	r := run(t, load.Plan{URL: s.URL, Paid: true, BuyerToken: func() string { return "buyer" }, Clients: 1, Requests: 10, Observe: func(a load.Answer) { payments = append(payments, a) }})
	if r.Sent != 10 || r.Sold != 5 || r.Errors["reservation-expired"] != 5 || r.Duplicates != 0 {
		t.Errorf("of 10 reservations, each second of which is paid for too late: %+v", r)
	}
	for i, a := range payments {
		if a.End.Sub(a.Start) < time.Millisecond || i > 0 && a.Start.Before(payments[i-1].End) {
			t.Errorf("sale %d is from %s to %s, without its reservation", i, a.Start, a.End)
		}
	}
}

// What came is counted as it was on the wire, with the heads and those of the errors.
func TestTheBytesOfAllAnswersAreCounted(t *testing.T) {
	const answer = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
	url := shop(t, func(w http.ResponseWriter, _ int64) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := conn.Write([]byte(answer)); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if r := run(t, load.Plan{URL: url, Clients: 2, Requests: 10}); r.Errors["http-503"] != 10 || r.Received != int64(10*len(answer)) {
		t.Errorf("%v failed and %d bytes came, want 10 and %d", r.Errors, r.Received, 10*len(answer))
	}
}

// A request that was sent and not answered may have sold: it is sent once, and
// its fate is unknown.
func TestALostAnswerIsUnknownAndNotSentAgain(t *testing.T) {
	var asked atomic.Int64
	url := shop(t, func(w http.ResponseWriter, _ int64) {
		asked.Add(1)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if r := run(t, load.Plan{URL: url, Clients: 1, Requests: 20}); r.Unknown != 20 || asked.Load() != 20 {
		t.Errorf("%d unknown of %d that the shop has seen, want 20 of 20", r.Unknown, asked.Load())
	}
}

func TestAnAnswerThatComesTooLateIsUnknown(t *testing.T) {
	url := shop(t, func(http.ResponseWriter, int64) { time.Sleep(300 * time.Millisecond) })
	r := run(t, load.Plan{URL: url, Clients: 1, Requests: 1, Timeout: 50 * time.Millisecond})
	should.Be(t, r.Unknown, 1, "the unknown outcomes of", r)
}

func TestARequestThatWasNeverSentIsNoUnknown(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	must.Do(t, listener.Close())
	if r := run(t, load.Plan{URL: "http://" + listener.Addr().String(), Clients: 2, Requests: 6}); r.Errors["no-connection"] != 6 || r.Unknown != 0 {
		t.Errorf("%+v", r)
	}
}

// While SoldOut is called nothing is under way, and what was rejected before does not
// call it again.
func TestSoldOutEndsTheRunOrGoesOn(t *testing.T) {
	var left, underWay, calls atomic.Int64
	url := shop(t, func(w http.ResponseWriter, n int64) {
		underWay.Add(1)
		defer underWay.Add(-1)
		if left.Add(-1) < 0 {
			problem(w, http.StatusConflict, "insufficient-stock")
			return
		}
		sold(w, fmt.Sprint(n), "r")
	})
	r := run(t, load.Plan{URL: url, Clients: 8, Requests: 1_000_000, SoldOut: func(context.Context) (bool, error) {
		should.Be(t, underWay.Load(), 0, "the requests under way")
		left.Store(100)
		return calls.Add(1) <= 5, nil
	}})
	if r.Sold != 500 || calls.Load() != 6 || r.Rejected < 6 || r.Rejected > 6*8 || r.SaleLatency.TotalCount() != 500 {
		t.Errorf("%d calls, and %+v; want 6 calls and 100 sold between them", calls.Load(), r)
	}
}

// A client that is let in no more is at its end, and what it waited before is no latency.
func TestAClientWaitsUntilItIsLetIn(t *testing.T) {
	var let, seen atomic.Int64
	url := shop(t, func(w http.ResponseWriter, n int64) {
		if seen.Add(1) > let.Load() {
			t.Error("a request is there before it was let in")
		}
		sold(w, fmt.Sprint(n), "r")
	})
	r := run(t, load.Plan{URL: url, Clients: 4, Requests: 1_000_000, Rate: 1e6, Wait: func(context.Context) bool {
		time.Sleep(20 * time.Millisecond)
		return let.Add(1) <= 12
	}})
	if r.Sold != 12 || r.Sent != 12 || r.Latency.ValueAtQuantile(50) >= (20*time.Millisecond).Microseconds() {
		t.Errorf("%+v, want 12 sold at once", r)
	}
}

// A client of a closed loop has not sent what is held back meanwhile: it is not late.
func TestTheTimeOfSoldOutIsNoLatency(t *testing.T) {
	const restocks = time.Second
	url := shop(t, func(w http.ResponseWriter, n int64) {
		if n == 0 {
			problem(w, http.StatusConflict, "insufficient-stock")
			return
		}
		sold(w, fmt.Sprint(n), "r")
	})
	r := run(t, load.Plan{URL: url, Clients: 8, Requests: 200, SoldOut: func(context.Context) (bool, error) {
		time.Sleep(restocks)
		return true, nil
	}})
	if n := late(r, restocks*9/10); n > 3 { // the machine may have paused as long
		t.Errorf("%d requests took as long as SoldOut", n)
	}
}

// late counts the requests that took so long.
func late(r *load.Result, least time.Duration) (n int64) {
	for _, bar := range r.Latency.Distribution() {
		if bar.From >= least.Microseconds() {
			n += bar.Count
		}
	}
	return n
}

func TestAFailureOfSoldOutEndsTheRun(t *testing.T) {
	url := shop(t, func(w http.ResponseWriter, _ int64) { problem(w, http.StatusConflict, "insufficient-stock") })
	failure, calls := errors.New("no restock"), 0
	_, err := load.Run(t.Context(), load.Plan{
		URL: url, GoodsID: 7, Strategy: "s", Clients: 2, Requests: 100, Timeout: time.Second,
		SoldOut: func(context.Context) (bool, error) { calls++; return true, failure },
	})
	if !errors.Is(err, failure) || calls != 1 {
		t.Errorf("%d calls and %v, want one and %v", calls, err, failure)
	}
}

func TestADurationEndsTheRun(t *testing.T) {
	url := shop(t, func(w http.ResponseWriter, n int64) { sold(w, fmt.Sprint(n), "r") })
	r := run(t, load.Plan{URL: url, Clients: 2, Duration: time.Second})
	if r.Elapsed < time.Second || r.Sold == 0 || r.Sold != r.Sent {
		t.Errorf("%+v", r)
	}
}

func TestTheEndOfTheContextEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	url := shop(t, func(w http.ResponseWriter, n int64) {
		if n == 100 {
			cancel()
		}
		sold(w, fmt.Sprint(n), "r")
	})
	r, err := load.Run(ctx, load.Plan{URL: url, GoodsID: 7, Strategy: "s", Clients: 2, Duration: time.Hour, Timeout: time.Second})
	if err != nil || r.Sold == 0 || r.Sold != r.Sent {
		t.Errorf("%+v, %v", r, err)
	}
}

// In an open loop a shop that stalls once delays every request that should have
// been served meanwhile; a closed loop would have sent them later and not seen
// it.
func TestAnOpenLoopCountsFromWhenARequestWasDue(t *testing.T) {
	const stall = 500 * time.Millisecond
	stalls := func(w http.ResponseWriter, n int64) {
		if n == 0 {
			time.Sleep(stall)
		}
		sold(w, fmt.Sprint(n), "r")
	}
	closed := run(t, load.Plan{URL: shop(t, stalls), Clients: 1, Requests: 100})
	if n := late(closed, stall/4); n > 5 {
		t.Errorf("a closed loop saw %d late answers, want the one", n)
	}
	open := run(t, load.Plan{URL: shop(t, stalls), Clients: 1, Requests: 100, Rate: 100})
	if n := late(open, stall/4); n < 25 {
		t.Errorf("an open loop saw %d late answers, want those of the stall", n)
	}
}

// A plan is sent as it says, and what is answered is observed whole.
func TestAPlanIsSentAndObservedWhole(t *testing.T) {
	const full = `{"order_id": "7", "replica": "r", "strategy": "s", "remaining": 4, "token": 9, "wait_ms": 1.5, "hold_ms": 0.25}`
	for name, c := range map[string]struct {
		plan   load.Plan
		status int
		body   string
		query  string
		key    string
		want   load.Answer
	}{
		"a sale": {load.Plan{}, http.StatusOK, full, "goods_id=7", "", load.Answer{
			Kind: load.Sold, Order: "7", Replica: "r", Strategy: "s", Remaining: 4, Token: 9, Wait: 1500 * time.Microsecond, Hold: 250 * time.Microsecond,
		}},
		"modifiers": {load.Plan{Strategy: "s", Group: true, Fence: true}, http.StatusConflict, full, "fence=true&goods_id=7&group=true&strategy=s", "", load.Answer{Kind: load.Failed, Problem: "http-409"}},
		"a key and a user": {
			load.Plan{Key: func(client int) string { return fmt.Sprint("key-", client) }, User: func() string { return "u 1" }},
			http.StatusOK, `{}`, "goods_id=7&user_id=u+1", "key-0",
			load.Answer{Key: "key-0", Kind: load.Failed, Problem: "http-200"},
		},
		"an item of its own":         {load.Plan{Goods: func() int64 { return 9 }}, http.StatusConflict, `{}`, "goods_id=9", "", load.Answer{Kind: load.Failed, Problem: "http-409"}},
		"no more":                    {load.Plan{}, http.StatusConflict, `{"type": "urn:stockd:problem:insufficient-stock"}`, "goods_id=7", "", load.Answer{Kind: load.Rejected}},
		"a balancer that timed out":  {load.Plan{}, http.StatusGatewayTimeout, "<html>", "goods_id=7", "", load.Answer{Kind: load.Unknown, Why: "HTTP 504"}},
		"an outcome that is unknown": {load.Plan{}, http.StatusServiceUnavailable, `{"type": "urn:stockd:problem:outcome-unknown", "detail": "lost"}`, "goods_id=7", "", load.Answer{Kind: load.Unknown, Why: "lost"}},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/deduct" || r.URL.RawQuery != c.query || r.Header.Get("Idempotency-Key") != c.key {
				t.Errorf("%s: sent %s %s?%s under %q, want %s under %q", name, r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Idempotency-Key"), c.query, c.key)
			}
			should.Be(t, r.Header.Get("Authorization"), "", name, "it is sent with")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body)) // the client notices
		}))
		var got load.Answer
		c.plan.URL, c.plan.GoodsID, c.plan.Clients, c.plan.Requests, c.plan.Timeout = s.URL, 7, 1, 1, 5*time.Second
		c.plan.Observe = func(a load.Answer) { got = a }
		before := time.Now()
		r, err := load.Run(t.Context(), c.plan)
		s.Close()
		must.Do(t, err)
		if got.Start.Before(before) || got.End.Before(got.Start) {
			t.Errorf("%s: from %s to %s", name, got.Start, got.End)
		}
		got.Start, got.End = (time.Time{}), (time.Time{})
		should.Be(t, got, c.want, name, "observed")
		through := "[] []"
		if c.want.Kind == load.Sold {
			through = "[s] [r]"
		}
		should.Be(t, fmt.Sprint(r.Strategies, r.Replicas), through, name, "sold through")
	}
}

// Each client has a connection, which it keeps until the end, and a name in what is observed; all say who
// the buyer is.
func TestEachClientHasItsConnectionAndItsName(t *testing.T) {
	var opened, closed, here atomic.Int64
	all := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if auth := r.Header.Get("Authorization"); auth != "Bearer buyer" || r.URL.Path != "/shop/deduct" {
			t.Errorf("%s is sent with %q", r.URL, auth)
		}
		key := r.Header.Get("Idempotency-Key")
		if strings.HasSuffix(key, "-0") { // the first of each client, so that all of them are there
			if here.Add(1) == 3 {
				close(all)
			}
			select {
			case <-all:
			case <-time.After(5 * time.Second):
				t.Error("not every client sends")
			}
		}
		fmt.Fprintf(w, `{"order_id": %q, "replica": "r", "strategy": %q}`, key, "s-"+key[:1]) //nolint:errcheck // the client notices
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
		case http.StateClosed:
			closed.Add(1)
		case http.StateActive, http.StateIdle, http.StateHijacked:
		}
	}
	s.Start()
	defer s.Close()
	sent := make([]int, 3)
	r, err := load.Run(t.Context(), load.Plan{
		URL: s.URL + "/shop/", GoodsID: 7, Clients: 3, Requests: 30, Timeout: 5 * time.Second, BuyerToken: func() string { return "buyer" },
		Key: func(client int) string { sent[client]++; return fmt.Sprintf("%d-%d", client, sent[client]-1) },
		Observe: func(a load.Answer) {
			if !strings.HasPrefix(a.Key, fmt.Sprint(a.Client, "-")) || a.Order != a.Key {
				t.Errorf("client %d is observed with %+v", a.Client, a)
			}
		},
	})
	if err != nil || r.Sold != 30 || fmt.Sprint(r.Strategies) != "[s-0 s-1 s-2]" {
		t.Errorf("%+v, %v", r, err)
	}
	for end := time.Now().Add(5 * time.Second); closed.Load() < 3 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if opened.Load() != 3 || closed.Load() != 3 {
		t.Errorf("three clients opened %d connections, and %d were closed", opened.Load(), closed.Load())
	}
}

// A context that ends while SoldOut is called ends the run, which is no failure of SoldOut.
func TestAnEndDuringSoldOutIsNoFailure(t *testing.T) {
	url := shop(t, func(w http.ResponseWriter, _ int64) { problem(w, http.StatusConflict, "insufficient-stock") })
	ctx, cancel := context.WithCancel(t.Context())
	r, err := load.Run(ctx, load.Plan{
		URL: url, GoodsID: 7, Strategy: "s", Clients: 2, Requests: 100, Timeout: time.Second,
		SoldOut: func(ctx context.Context) (bool, error) { cancel(); return false, ctx.Err() },
	})
	if err != nil || r.Rejected == 0 || r.Rejected == 100 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Rejections that follow the last sale are not of the time of selling.
func TestSellingEndsWithTheLastSale(t *testing.T) {
	url := shop(t, func(w http.ResponseWriter, n int64) {
		if n < 5 {
			sold(w, fmt.Sprint(n), "r")
			return
		}
		time.Sleep(20 * time.Millisecond)
		problem(w, http.StatusConflict, "insufficient-stock")
	})
	if r := run(t, load.Plan{URL: url, Clients: 1, Requests: 25}); r.Selling == 0 || r.Elapsed-r.Selling < 400*time.Millisecond {
		t.Errorf("it sold for %s of %s, and was rejected for the last 0.4 s", r.Selling, r.Elapsed)
	}
}

func TestAResultHasItsFailuresAndItsSpeed(t *testing.T) {
	r := load.Result{Sent: 20, Sold: 8, Rejected: 5, Unknown: 3, Errors: map[string]int{"busy": 4}, Received: 4096, Elapsed: 2 * time.Second}
	if r.Failed() != 7 || r.KilobytesPerSecond() != 2 {
		t.Errorf("%d failed, and %v kB/s; want 7 and 2", r.Failed(), r.KilobytesPerSecond())
	}
}

// A rate sends each request when it is due, and none at the end of the duration or later.
func TestARateSpreadsTheRequests(t *testing.T) {
	var at []time.Time
	url := shop(t, func(w http.ResponseWriter, n int64) {
		at = append(at, time.Now())
		sold(w, fmt.Sprint(n), "r")
	})
	began := time.Now()
	if r := run(t, load.Plan{URL: url, Clients: 1, Rate: 50, Duration: 60 * time.Millisecond}); r.Sent != 3 {
		t.Fatalf("%d requests at 50 a second in 60 ms, want those at 0, 20 and 40 ms", r.Sent)
	}
	for i, sent := range at {
		if due := time.Duration(i) * 20 * time.Millisecond; sent.Sub(began) < due {
			t.Errorf("request %d was sent after %s, before it was due at %s", i, sent.Sub(began), due)
		}
	}
}

// The second request of one in three centuries is due after the end.
func TestTheSlowestRateSendsNoCrowd(t *testing.T) {
	url := shop(t, func(w http.ResponseWriter, n int64) { sold(w, fmt.Sprint(n), "r") })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	r := must.Get(load.Run(ctx, load.Plan{URL: url, GoodsID: 7, Strategy: "s", Clients: 2, Requests: 100, Rate: 1e-10, Timeout: time.Second}))(t)
	should.Be(t, r.Sent, 1, "the requests that were sent")
}

func TestProgressReachesTheEnd(t *testing.T) {
	url := shop(t, func(w http.ResponseWriter, n int64) { sold(w, fmt.Sprint(n), "r") })
	last := 0
	run(t, load.Plan{URL: url, Clients: 3, Requests: 50, Progress: func(n int) {
		time.Sleep(20 * time.Millisecond) // a run waits for the last one
		last = n
	}})
	should.Be(t, last, 50, "the last progress")
	// One request is held until its progress is there.
	reported := make(chan struct{})
	slow := shop(t, func(w http.ResponseWriter, n int64) {
		if n == 1 {
			select {
			case <-reported:
			case <-time.After(5 * time.Second):
				t.Error("there is no progress before the end")
			}
		}
		sold(w, fmt.Sprint(n), "r")
	})
	run(t, load.Plan{URL: slow, Clients: 1, Requests: 2, Timeout: 10 * time.Second, Progress: func(n int) {
		if n == 1 {
			close(reported)
		}
	}})
}

func TestAURLThatIsNoneIsAnError(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:8080", "ftp://127.0.0.1", "http://", "%"} {
		if _, err := load.Run(t.Context(), load.Plan{URL: url, Clients: 1, Requests: 1}); err == nil {
			t.Errorf("%q is taken for a URL", url)
		}
	}
}
