package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/api/apitest"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// stub answers each request with the next of its answers, and the last again and
// again; it remembers the request ids and the bodies.
type stub struct {
	*httptest.Server

	mu      sync.Mutex
	answers []http.HandlerFunc
	keys    []string
	bodies  []string
}

func serve(t *testing.T, answers ...http.HandlerFunc) *stub {
	t.Helper()
	s := &stub{answers: answers}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// unserved is a client of answers that come over no socket.
func unserved(answers ...http.HandlerFunc) (*stub, client.Client) {
	s := &stub{answers: answers}
	return s, over(func(r *http.Request) (*http.Response, error) {
		answer := httptest.NewRecorder()
		s.ServeHTTP(answer, r)
		return answer.Result(), nil
	})
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // one that is cut off differs from the others
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	answer := s.answers[min(len(s.keys), len(s.answers)-1)]
	s.keys, s.bodies = append(s.keys, r.Header.Get("Idempotency-Key")), append(s.bodies, string(body))
	s.mu.Unlock()
	answer(w, r)
}

func (s *stub) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys)
}

func sold(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"order_id": "7", "goods_id": 1, "quantity": 1, "remaining": 4, "strategy": "s", "replica": "r", "token": 0, "wait_ms": 0, "hold_ms": 0, "durable": "sql"}`)
}

func problem(code string, status int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"type": "urn:stockd:problem:%s", "title": "a title", "status": %d, "detail": "a detail", "instance": "urn:stockd:request:9"}`, code, status)
	}
}

func busy(w http.ResponseWriter, r *http.Request) { problem("busy", 503, "1")(w, r) }

// cut ends the connection without an answer, after the request was read.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// cutShort ends the connection in the middle of an answer.
func cutShort(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "999")
		answer(w, r)
	}
}

func TestABusyStockdIsAskedAgainUnderTheSameRequestID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := unserved(busy, sold)
		sale, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1})
		want := `{"goods_id":1}`
		should.Equal(t, s.bodies, []string{want, want}, "asked for")
		keys := s.seen()
		if err != nil || sale.OrderID != "7" || sale.Replayed || len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] || keys[0] != sale.RequestID {
			t.Errorf("sold %+v (%v) after requests %q", sale, err, keys)
		}
	})
}

func TestTriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for tries, want := range map[int]int{0: 4, 1: 1, 2: 2} {
			s, c := unserved(busy)
			c.Tries = tries
			if _, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1}); !errors.Is(err, client.ErrBusy) || len(s.seen()) != want {
				t.Errorf("%v after %d requests with Tries %d, want busy after %d", err, len(s.seen()), tries, want)
			}
		}
	})
}

// A wait that the context would cut short is not begun.
func TestBusyIsTheAnswerWhereThereIsNoTimeToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := unserved(busy)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := c.Deduct(ctx, client.Purchase{GoodsID: 1}); !errors.Is(err, client.ErrBusy) || time.Since(start) > 0 || len(s.seen()) != 1 {
			t.Errorf("%v after %s and %d requests", err, time.Since(start), len(s.seen()))
		}
	})
}

// The connection of an earlier call is cut when the next one was read: net/http does not send that again
// either, although it has a key.
func TestACallThatIsCutOnAUsedConnectionIsNotSentAgain(t *testing.T) {
	s := serve(t, sold, cut, sold)
	c := client.Client{URL: s.URL}
	if _, err := c.Deduct(t.Context(), client.Purchase{RequestID: "first", GoodsID: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Deduct(t.Context(), client.Purchase{RequestID: "mine", GoodsID: 1}); !errors.Is(err, client.ErrOutcomeUnknown) || len(s.seen()) != 2 {
		t.Errorf("%v after requests %q, want an unknown outcome after two", err, s.seen())
	}
}

// What may have happened, and what will not change, is never sent again.
func TestNothingElseIsSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"sold out":                    {problem("insufficient-stock", 409, ""), client.ErrSoldOut},
		"the limit of a buyer":        {problem("user-limit", 409, ""), client.ErrUserLimit},
		"asked too often":             {problem("rate-limited", 429, "1"), client.ErrRateLimited},
		"an unknown order":            {problem("unknown-order", 404, ""), client.ErrUnknownOrder},
		"a backend is down":           {problem("backend-unavailable", 503, "1"), client.ErrUnavailable},
		"the outcome is unknown":      {problem("outcome-unknown", 503, "1"), client.ErrOutcomeUnknown},
		"the connection is cut":       {cut, client.ErrOutcomeUnknown},
		"the balancer lost it":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, client.ErrOutcomeUnknown},
		"the answer is cut":           {cutShort(sold), client.ErrOutcomeUnknown},
		"a problem is cut":            {cutShort(problem("insufficient-stock", 409, "")), client.ErrOutcomeUnknown},
		"the answer is no sale":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, client.ErrOutcomeUnknown},
		"a code that is new to us":    {problem("brand-new", 418, "1"), nil},
		"a rejection by the balancer": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.answer)
			_, err := client.Client{URL: s.URL}.Deduct(t.Context(), client.Purchase{RequestID: "mine", GoodsID: 1})
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			unknown, ok := errors.AsType[*client.UnknownError](err)
			if ok != errors.Is(c.want, client.ErrOutcomeUnknown) || ok && unknown.RequestID != "mine" {
				t.Errorf("%v: its outcome is unknown: %v", err, ok)
			}
			if keys := s.seen(); len(keys) != 1 || keys[0] != "mine" {
				t.Errorf("requests %q, want one", keys)
			}
		})
	}
}

// A question has no outcome: that there is no answer is all there is to tell.
func TestAQuestionWithoutAnAnswerIsUnavailable(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"the connection is cut":              cut,
		"the balancer lost it":               func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"the balancer answers it as a write": problem("outcome-unknown", http.StatusServiceUnavailable, "1"),
		"a backend is down":                  problem("backend-unavailable", http.StatusServiceUnavailable, "1"),
	} {
		s := serve(t, answer)
		_, err := client.Client{URL: s.URL}.Goods(t.Context(), 1)
		_, unknown := errors.AsType[*client.UnknownError](err)
		if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) || unknown {
			t.Errorf("%s: %v, want %v", name, err, client.ErrUnavailable)
		}
		should.Be(t, len(s.seen()), 1, "it is asked … times", name)
	}
}

// A stock that is concealed from the public is distinguished from an unknown item.
func TestAConcealedStock(t *testing.T) {
	s := serve(t, problem("not-found", http.StatusNotFound, ""), problem("unknown-goods", http.StatusNotFound, ""), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"goods_id": 1, "per_user": 0, "available": true, "strategy": "mutex", "fenced": false}`)
	})
	c := client.Client{URL: s.URL}
	if _, err := c.Audit(t.Context(), 1); !errors.Is(err, client.ErrConcealed) || errors.Is(err, client.ErrUnknownGoods) {
		t.Errorf("the audit is answered with %v, want %v", err, client.ErrConcealed)
	}
	if _, err := c.Audit(t.Context(), 2); !errors.Is(err, client.ErrUnknownGoods) || errors.Is(err, client.ErrConcealed) {
		t.Errorf("the audit of no item is answered with %v, want %v", err, client.ErrUnknownGoods)
	}
	goods, err := c.Goods(t.Context(), 1)
	if err != nil || !goods.Available || goods.Strategy != "mutex" || goods.Group != nil || goods.Fenced == nil || *goods.Fenced {
		t.Errorf("the item is %+v (%v)", goods, err)
	}
}

func TestATimeoutAfterSendingIsAnUnknownOutcome(t *testing.T) {
	held := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) { <-held })
	defer close(held)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client.Client{URL: s.URL}.Deduct(ctx, client.Purchase{GoodsID: 1})
	unknown, ok := errors.AsType[*client.UnknownError](err)
	if !errors.Is(err, client.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) || !ok || unknown.RequestID != s.seen()[0] {
		t.Errorf("%v; the request was %q", err, s.seen())
	}
}

// Where no connection is made nothing has happened: it is tried again.
func TestAStockdThatIsNotThereYet(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	c := client.Client{URL: "http://" + address, Tries: 2}
	if _, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1}); !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("no server listens: %v", err)
	}
	dials := 0
	late := serve(t, sold)
	c = client.Client{URL: "http://" + address, HTTP: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			if dials++; dials < 3 {
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}
			return new(net.Dialer).DialContext(ctx, network, strings.TrimPrefix(late.URL, "http://"))
		},
	}}}
	if sale, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1}); err != nil || sale.OrderID != "7" || dials != 3 {
		t.Errorf("a server that starts late is not found: %+v, %v after %d tries", sale, err, dials)
	}
}

// Every field that is described has its place here, and every problem its name.
func TestTheClientKnowsWhatIsDescribed(t *testing.T) {
	contract, err := apitest.Load()
	if err != nil {
		t.Fatal(err)
	}
	for schema, of := range map[string]any{
		"Purchase": client.Purchase{}, "Sold": client.Sale{}, "Goods": client.Goods{}, "Audit": client.Audit{},
		"Reservation": client.Reservation{}, "Strategy": client.Strategy{}, "Claims": client.Claims{},
	} {
		should.Equal(t, tags(of), contract.Fields(schema), "the fields of", schema)
	}
	// They report a malformed request, or a client that has gone.
	plain := []string{"body-too-large", "request-timeout", "unsupported-media-type", "not-found", "method-not-allowed", "misdirected-request", "internal", "client-gone"}
	for code := range contract.Problems() {
		named := (&client.Problem{Code: code}).Unwrap() != nil
		if named == slices.Contains(plain, code) {
			t.Errorf("the problem %s has a name: %v", code, named)
		}
	}
}

// tags lists the JSON fields of a struct.
func tags(of any) []string {
	var names []string
	for field := range reflect.TypeOf(of).Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// What identifies a purchase is its own, whatever a Client sends with each.
func TestAHeaderOfAClientReplacesNoneOfACall(t *testing.T) {
	c := over(func(r *http.Request) (*http.Response, error) {
		should.Be(t, described(t, r), `POST http://public/deduct auth=Bearer b key=mine {"goods_id":1}`, "sent")
		return reply(http.StatusOK, `{"order_id": "o"}`), nil
	})
	c.Header = http.Header{"Idempotency-Key": {"another"}, "Content-Type": {"text/plain"}, "Authorization": {"Basic another"}}
	if _, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1, RequestID: "mine"}); err != nil {
		t.Error(err)
	}
}

// ledger serves pages of a ledger of so many orders, whose cursors are their numbers.
func ledger(orders int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		after, limit := 0, 100
		_, _ = fmt.Sscan(r.URL.Query().Get("after"), &after) // none is 0
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &limit)
		last := min(after+limit, orders)
		page := ""
		for id := after + 1; id <= last; id++ {
			page += fmt.Sprintf(`, {"order_id": "%d", "created_at": "2026-11-11T11:11:11.000123Z"}`, id)
		}
		if page != "" {
			page = page[2:]
		}
		_, _ = fmt.Fprintf(w, `{"orders": [%s], "next": "%d"}`, page, last)
	}
}

func TestOrdersAreListedPageByPage(t *testing.T) {
	s := serve(t, ledger(7))
	c := client.Client{AdminURL: s.URL}
	var ids, cursors string
	for order, err := range c.Orders(t.Context(), client.Pages{Limit: 3}) {
		if err != nil || order.CreatedAt.Nanosecond() != 123_000 {
			t.Fatal(order, err)
		}
		ids, cursors = ids+order.OrderID, cursors+"["+order.Cursor+"]"
	}
	if ids != "1234567" || cursors != "[][][3][3][3][6][7]" {
		t.Errorf("listed %s with the cursors %s", ids, cursors)
	}
	for order, err := range c.Orders(t.Context(), client.Pages{Limit: 3, Cursor: "6"}) {
		if err != nil || order.OrderID != "7" {
			t.Errorf("after 6 comes %+v, %v; want 7", order, err)
		}
	}
}

// A page of one item may be empty where many orders of other items come before its next
// one: the listing goes on for as long as the cursor does.
func TestAnEmptyPageIsNotTheEnd(t *testing.T) {
	page := func(orders, next string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"orders": [%s], "next": %q}`, orders, next)
		}
	}
	s := serve(t, page("", "10000"), page(`{"order_id": "10007"}`, "10008"), page("", "10008"))
	var ids string
	for order, err := range (client.Client{AdminURL: s.URL}).Orders(t.Context(), client.Pages{GoodsID: 7}) {
		if err != nil {
			t.Fatal(err)
		}
		ids += order.OrderID
	}
	should.Be(t, ids, "10007", "listed")
}

// Every page is asked for as the first, but for its cursor.
func TestEveryPageIsOfTheSameOrders(t *testing.T) {
	var asked []string
	c := over(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.RawQuery+" "+r.Header.Get("Authorization"))
		return reply(http.StatusOK, fmt.Sprintf(`{"orders": [{}], "next": "%d"}`, min(len(asked), 2))), nil
	})
	for _, err := range c.Orders(t.Context(), client.Pages{GoodsID: 7, Steps: true, Reader: "bi", Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	const same = "goods_id=7&limit=2&reader=bi&steps=true Bearer t"
	should.Equal(t, asked, []string{same, "after=1&" + same, "after=2&" + same}, "asked for")
}

// A listing that follows asks at once for what is there already, and after its pause for what is new.
func TestAListingThatFollowsPausesWhereNothingIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		closing, began := errors.New("the reader closes"), time.Now()
		time.AfterFunc(2*time.Minute+time.Second, func() { cancel(closing) })
		var at []time.Duration
		s, c := unserved(ledger(2), ledger(2), ledger(2), ledger(3))
		c.HTTP.Transport = wire(func(r *http.Request) (*http.Response, error) {
			if at = append(at, time.Since(began)); len(at) > 9 {
				return reply(http.StatusTeapot, ""), nil // it pauses no more
			}
			answer := httptest.NewRecorder()
			s.ServeHTTP(answer, r)
			return answer.Result(), nil
		})
		var ids string
		var last error
		for order, err := range c.Orders(ctx, client.Pages{Follow: time.Minute}) {
			ids, last = ids+order.OrderID, err
		}
		if want := []time.Duration{0, 0, time.Minute, 2 * time.Minute, 2 * time.Minute}; !slices.Equal(at, want) || ids != "123" {
			t.Errorf("listed %s with requests after %v, want 123 after %v", ids, at, want)
		}
		if took := time.Since(began); !errors.Is(last, closing) || took != 2*time.Minute+time.Second {
			t.Errorf("it ends with %v after %s, want the cause at once", last, took)
		}
	})
}

func TestAFailureEndsTheListing(t *testing.T) {
	s := serve(t, ledger(3), problem("backend-unavailable", 503, "1"))
	var seen []error
	for _, err := range (client.Client{AdminURL: s.URL}).Orders(t.Context(), client.Pages{}) {
		seen = append(seen, err)
	}
	if len(seen) != 4 || !errors.Is(seen[3], client.ErrUnavailable) {
		t.Errorf("the listing is %v, want three orders and a failure", seen)
	}
}
