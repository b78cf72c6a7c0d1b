package handler_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/api/apitest"
	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

const (
	rejectedHere = "redis-setnx" // the strategy that the configuration forbids
	usedKey      = "a-key-that-is-used"
)

// scenarios bring about each answer that is described.
type scenarios struct {
	api
	down api // the same, whose database is gone
}

// play brings an answer about.
func (s scenarios) play(t *testing.T, o apitest.Operation, want apitest.Described) apitest.Answer {
	t.Helper()
	e := must.Get(o.Sample())(t)
	listener := o.Listeners[0]
	scenario, ok := scenarioOfAServer()[want.Kind]
	if ok && (!sells(o) || fails(want.Kind) == nil) {
		a := s.api
		if scenario.down {
			a = s.down
		}
		if slices.Contains(o.Listeners, scenario.listener) {
			listener = scenario.listener
		}
		a = a.serveScenario(t, listener, scenario.options, scenario.server)
		for range scenario.before {
			r := a.ask(t, e, listener)
			r.Header.Set("Authorization", "Bearer wrong")
			exchange(t, r)
		}
		r := a.ask(t, e, listener)
		if scenario.request != nil {
			scenario.request(r)
		}
		return exchange(t, r)
	}
	r := s.another(t, o, e, want.Kind, listener)
	if want.Status == http.StatusNotModified {
		r.Header.Set("If-None-Match", "*")
	}
	return exchange(t, r)
}

// another is a request that has that answer from any replica.
func (s scenarios) another(t *testing.T, o apitest.Operation, e apitest.Example, kind, listener string) *http.Request {
	t.Helper()
	path, known := requests()[o.String()+" "+kind]
	if !known {
		path, known = requests()[o.Path+" "+kind]
	}
	switch {
	case kind == "": // the sample has it
	case known:
		e = bare(e, path)
	case sells(o) && fails(kind) != nil:
		e = bare(e, o.Path+"?goods_id=1&strategy=failing&user_id="+kind)
		if o.Path == "/orders" {
			e = bare(e, "/orders?lines=1&strategy=failing&user_id="+kind)
		}
	case kind == "invalid-request" && strings.Contains(o.Path, "{id}"):
		e.Path = strings.ReplaceAll(o.Path, "{id}", "none")
	case kind == "invalid-request":
		e.Path += "?colour=red"
	case kind == "unknown-goods":
		e.Path = strings.ReplaceAll(o.Path, "{id}", "404404")
	}
	r := s.ask(t, e, listener)
	if kind == "key-reused" {
		r.Header.Set("Idempotency-Key", usedKey)
	}
	return r
}

// sells reports that an operation is served by a strategy, which can fail.
func sells(o apitest.Operation) bool {
	return slices.Contains([]string{"POST /deduct", "POST /reservations", "POST /orders"}, o.String())
}

// requests are those that one operation answers with one kind of problem.
func requests() map[string]string {
	return map[string]string{
		"/deduct unknown-strategy":            "/deduct?goods_id=1&strategy=hope",
		"/deduct strategy-refused":            "/deduct?goods_id=1&strategy=" + rejectedHere,
		"/strategies/{name} unknown-strategy": "/strategies/hope?enabled=true",
		"/strategies/{name} strategy-refused": "/strategies/" + rejectedHere + "?enabled=true",
		"/strategies/{name} default-strategy": "/strategies/sql-conditional?enabled=false&reason=a+test",
		"/orders unknown-order":               "/orders?request_id=never-sent",
		"/orders invalid-request":             "/orders?colour=red",
		"POST /orders invalid-request":        "/orders?lines=0",
		"POST /orders unknown-strategy":       "/orders?lines=1&strategy=hope",
		"POST /orders strategy-refused":       "/orders?lines=1&strategy=" + rejectedHere,
		"POST /orders unknown-goods":          "/orders?lines=404404",
		"/orders/{id} unknown-order":          "/orders/404404",
		"/orders/{id} invalid-request":        "/orders/3?colour=red",

		"/orders/{id}/return unknown-order":   "/orders/404404/return",
		"/orders/{id}/return order-returned":  "/orders/3/return?quantity=1000",
		"/orders/{id}/return invalid-request": "/orders/3/return?quantity=0",
		"/orders/{id}/return stock-limit":     "/orders/" + numberOf(7) + "/return",

		"POST /queue no-waiting-room":                      "/queue?goods_id=1&user_id=u-17",
		"/goods/{id}/queue no-waiting-room":                "/goods/1/queue",
		"POST /queue unknown-goods":                        "/queue?goods_id=404405&user_id=u-17",
		"/queue/{ticket} unknown-ticket":                   "/queue/none",
		"/deduct not-admitted":                             "/deduct?goods_id=3996&user_id=u-never-queued",
		"POST /orders not-admitted":                        "/orders?lines=1,3996&user_id=u-never-queued",
		"/reservations not-admitted":                       "/reservations?goods_id=3996&user_id=u-never-queued",
		"/reservations unknown-strategy":                   "/reservations?goods_id=1&strategy=hope",
		"/reservations strategy-refused":                   "/reservations?goods_id=1&strategy=" + rejectedHere,
		"/reservations unknown-goods":                      "/reservations?goods_id=404404",
		"/reservations/{id} unknown-reservation":           "/reservations/404404",
		"/reservations/{id} invalid-request":               "/reservations/404404?colour=red",
		"/reservations/{id}/confirm unknown-reservation":   "/reservations/404404/confirm?payment_reference=x",
		"/reservations/{id}/confirm invalid-request":       "/reservations/404404/confirm",
		"/reservations/{id}/confirm reservation-confirmed": "/reservations/" + numberOf(4) + "/confirm?payment_reference=x",
		"/reservations/{id}/confirm reservation-released":  "/reservations/" + numberOf(5) + "/confirm?payment_reference=x",
		"/reservations/{id}/confirm reservation-expired":   "/reservations/" + numberOf(6) + "/confirm?payment_reference=x",
		"/reservations/{id}/confirm reference-used":        "/reservations/" + numberOf(1) + "/confirm?payment_reference=pay-4",
		"/reservations/{id}/release unknown-reservation":   "/reservations/404404/release",
		"/reservations/{id}/release invalid-request":       "/reservations/404404/release?colour=red",
		"/reservations/{id}/release reservation-confirmed": "/reservations/" + numberOf(4) + "/release",
		"/reservations/{id}/release reservation-expired":   "/reservations/" + numberOf(6) + "/release",
		"/reservations/{id}/extend unknown-reservation":    "/reservations/404404/extend?ttl=60",
		"/reservations/{id}/extend invalid-request":        "/reservations/404404/extend?ttl=0",
		"/reservations/{id}/extend reservation-confirmed":  "/reservations/" + numberOf(4) + "/extend?ttl=60",
		"/reservations/{id}/extend reservation-released":   "/reservations/" + numberOf(5) + "/extend?ttl=60",
		"/reservations/{id}/extend reservation-expired":    "/reservations/" + numberOf(6) + "/extend?ttl=60",
		"/goods strategy-refused":                          "/goods?goods_id=3004&stock=1&strategy=" + rejectedHere,
		"/goods/{id} strategy-refused":                     "/goods/1?strategy=" + rejectedHere,
		"/goods goods-exist":                               "/goods?goods_id=1&stock=1",
		"/goods key-reused":                                "/goods?goods_id=3003&stock=1",
		"/goods/{id}/restock stock-limit":                  "/goods/1/restock?quantity=1000000000000",
		"/goods/{id}/correct stock-limit":                  "/goods/1/correct?by=1000000000000&reason=x",
		"/goods/{id}/correct below-zero":                   "/goods/1/correct?by=-1000000000000&reason=x",
		"/debug/pprof/{profile} not-found":                 "/debug/pprof/hope",
	}
}

// bare is the example with its fields in the query.
func bare(e apitest.Example, path string) apitest.Example {
	e.Path, e.ContentType, e.Body = path, "", ""
	return e
}

// scenarioServer is a replica, or the server that it runs in, that has one answer.
type scenarioServer struct {
	listener string // where the scenario plays if the operation is there
	down     bool
	options  func(*handler.Options)
	server   func(*http.Server)
	before   int // so many requests go before, with a wrong token
	request  func(*http.Request)
}

func scenarioOfAServer() map[string]scenarioServer {
	return map[string]scenarioServer{
		"choice-refused": {options: func(o *handler.Options) { o.Choose = false }, request: func(r *http.Request) {
			r.URL.RawQuery = "strategy=naive"
		}},
		"unauthorized": {listener: adminAPI, options: verified(buyer.Buyer{}), request: func(r *http.Request) {
			r.Header.Del("Authorization")
			if r.URL.Path == "/queue" { // its sample names a buyer
				r.Body, r.ContentLength, r.URL.RawQuery = http.NoBody, 0, "goods_id=3996"
			}
		}},
		"token-bound":         {options: verified(buyer.Buyer{ID: "u-17", GoodsID: 404404})},
		"misdirected-request": {listener: adminAPI, request: func(r *http.Request) { r.Host = "rebound.example" }},
		"rate-limited": {listener: publicAPI, before: 10, options: func(o *handler.Options) {
			o.Limits.Address = rate.Rate{PerSecond: onceOnly, Burst: 1}
		}, request: func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") }},
		"body-too-large": {options: func(o *handler.Options) { o.MaxBody = 1 }, request: withBody},
		"unsupported-media-type": {request: func(r *http.Request) {
			withBody(r)
			r.Header.Set("Content-Type", "text/plain")
		}},
		"request-timeout": {server: func(s *http.Server) { s.ReadTimeout = 100 * time.Millisecond }, request: func(r *http.Request) {
			never, _ := io.Pipe()
			r.Body, r.ContentLength = never, 100
		}},
		"internal": {options: func(o *handler.Options) { o.Stopping = func() bool { panic("an internal error") } }},
		"stopping": {options: func(o *handler.Options) { o.Stopping = func() bool { return true } }},
		// A drain that is over ends what is in flight with such a cause.
		"busy":        {server: endedBy(stock.ErrBusy)},
		"client-gone": {server: endedBy(context.Canceled)},
		// The real one takes a database that dies in its commit, as the tests of repo have it.
		"outcome-unknown": {server: endedBy(stock.ErrUnknownOutcome)},
		"backend-unavailable": {down: true, options: func(o *handler.Options) {
			o.Room = roomOn(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), *o, 3996)
		}},
	}
}

func withBody(r *http.Request) {
	send := strings.NewReader("more than one byte")
	r.Body, r.ContentLength = io.NopCloser(send), int64(send.Len())
}

// verified has every request come from one buyer, or, where there is none, rejects it.
func verified(who buyer.Buyer) func(*handler.Options) {
	return func(o *handler.Options) { o.Buyers, o.BuyerRequired = sameBuyer(who), true }
}

type sameBuyer buyer.Buyer

func (s sameBuyer) From(*http.Request) (buyer.Buyer, error) { return buyer.Buyer(s), nil }

// endedBy has every request begin when its context has ended already.
func endedBy(cause error) func(*http.Server) {
	return func(s *http.Server) {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(cause)
		s.BaseContext = func(net.Listener) context.Context { return ctx }
	}
}

// failing is a strategy that fails as its buyer wants.
type failing struct{}

func failingEntry() strategy.Entry {
	return strategy.Entry{
		Name: "failing", Family: strategy.None, Summary: "fails", New: func(strategy.Deps) strategy.Strategy { return failing{} },
	}
}

// Deduct fails with the problem that the user is named after.
func (failing) Deduct(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return nil, fails(batch[0].UserID)
}

func fails(kind string) error {
	return map[string]error{
		"insufficient-stock":  stock.ErrInsufficientStock,
		"user-limit":          stock.ErrUserLimit,
		"sale-closed":         stock.ErrSaleClosed,
		"sale-not-started":    stock.ErrSaleNotStarted,
		"hold-limit":          stock.ErrHoldLimit,
		"stock-limit":         stock.ErrStockLimit,
		"items-apart":         stock.ErrApart,
		"unknown-goods":       stock.ErrUnknownGoods,
		"key-reused":          stock.ErrKeyReused,
		"outcome-unknown":     &stock.BackendError{Backend: "mysql", Err: stock.ErrUnknownOutcome},
		"fenced":              stock.ErrFenced,
		"lease-lost":          stock.ErrLeaseLost,
		"busy":                stock.ErrBusy,
		"backend-unavailable": &stock.BackendError{Backend: "redis", Err: errors.New("refused")},
		"client-gone":         context.Canceled,
		"internal":            errors.New("not in the map"),
	}[kind]
}

// A request that reads or writes rows ends with its time limit. Purchases have a limit of their own; the
// rest asks no database.
func TestEveryRequestHasATimeLimit(t *testing.T) {
	a := serveAll(t)
	a.options.Timeout = time.Nanosecond
	a = a.with(t, func(*handler.Options) {}).withAdmin(t, func(*handler.Options) {})
	unlimited := []string{
		"POST /deduct", "POST /orders", "POST /reservations", "GET /strategies", "GET /healthz", "GET /openapi.yaml", "GET /metrics",
		"GET /debug/pprof/{profile}", "GET /lab/faults", "POST /lab/faults", "DELETE /lab/faults",
	}
	for _, o := range contract.Operations() {
		if slices.Contains(unlimited, o.String()) {
			continue
		}
		e := must.Get(o.Sample())(t)
		e.Path = strings.ReplaceAll(e.Path, "full=true", "full=false")
		for _, listener := range o.Listeners {
			if got := exchange(t, a.ask(t, e, listener)); got.Status != http.StatusServiceUnavailable {
				t.Errorf("%s on the %s without any time is answered with %d %.200s", o, listener, got.Status, got.Body)
			}
		}
	}
}
