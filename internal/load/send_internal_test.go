package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/stockd/stockd/internal/should"
)

func TestOnlyARequestThatNeverLeftHasAKnownOutcome(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind Kind
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Failed},
		{fmt.Errorf("purchase: %w", fasthttp.ErrDialTimeout), Failed},
		{fasthttp.ErrNoFreeConns, Failed},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, Unknown},
		{fasthttp.ErrTimeout, Unknown},
		{fasthttp.ErrConnectionClosed, Unknown},
		{errors.New("no answer"), Unknown},
	} {
		if got := failed(c.err); got.Kind != c.kind || (got.Problem == "no-connection") != (c.kind == Failed) {
			t.Errorf("%v is %+v, want %v", c.err, got, c.kind)
		}
	}
}

// A name that is not resolved and an IPv6 address where nothing listens are no requests that may have happened.
func TestARequestWithoutAnAddressToGoToWasNeverSent(t *testing.T) {
	for _, address := range []string{"no-such-host.invalid:80", "[::1]:1"} {
		_, err := new(sender).dial(address)
		if got := failed(err); err == nil || got.Kind != Failed || got.Problem != "no-connection" {
			t.Errorf("%s: %v is %+v, want no connection", address, err, got)
		}
	}
}

// A latency that the histogram has no room for counts as its longest, and as one of all.
func TestALatencyWithoutBoundIsCounted(t *testing.T) {
	of := newResult()
	of.add(Answer{Kind: Sold, Order: "1"}, time.Hour)
	of.add(Answer{Kind: Rejected}, 0)
	r := merge([]*Result{of}, time.Now())
	if r.Latency.TotalCount() != 2 || r.Latency.Max() < (4*time.Minute).Microseconds() || r.Latency.Min() > 1 || r.SaleLatency.TotalCount() != 1 {
		t.Errorf("%d latencies of %d to %d us, and %d of sales", r.Latency.TotalCount(), r.Latency.Min(), r.Latency.Max(), r.SaleLatency.TotalCount())
	}
}

// The status of a reservation without its number is none, and an order that names one is an order.
func TestASaleIsAnAnswerWithItsNumber(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   Answer
	}{
		{fasthttp.StatusCreated, `{"reservation_id": "r", "order_id": "o"}`, Answer{Kind: Sold, Order: "r"}},
		{fasthttp.StatusCreated, `{"order_id": "o"}`, Answer{Kind: Failed, Problem: "http-201"}},
		{fasthttp.StatusOK, `{"reservation_id": "r", "order_id": "o"}`, Answer{Kind: Sold, Order: "o"}},
		{fasthttp.StatusOK, `{"reservation_id": "r"}`, Answer{Kind: Failed, Problem: "http-200"}},
	} {
		should.Be(t, read(c.status, []byte(c.body)), c.want, c.status, c.body, "is")
	}
}

// A run that ends sends none of the requests that wait, and leaves nothing locked.
func TestARequestThatWaitsIsNotSentAfterTheEnd(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	s := schedule{plan: Plan{Rate: 1e-3}, start: time.Now()}
	if _, ok := s.next(ctx); !ok {
		t.Error("the first request is not due at once")
	}
	time.AfterFunc(10*time.Millisecond, end)
	if due, ok := s.next(ctx); ok {
		t.Errorf("the second request is sent, due at %s", due)
	}
	var g gate
	g.pass(ctx, func() Kind {
		t.Error("a request is sent after the end")
		return Sold
	})
	if !g.mu.TryLock() {
		t.Error("the gate is locked after the end")
	}
}
