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
		if want := `{"goods_id":1}`; !slices.Equal(s.bodies, []string{want, want}) {
			t.Errorf("asked for %q, want %s both times", s.bodies, want)
		}
		keys := s.seen()
		if err != nil || sale.OrderID != "7" || len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] || keys[0] != sale.RequestID {
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
		if n := len(s.seen()); n != 1 {
			t.Errorf("%s: it is asked %d times, want once: only what was not sent is sent again", name, n)
		}
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

// answering gives every request the same answer, and keeps the bodies.
func answering(t *testing.T, asked *[]string, answer string) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*asked = append(*asked, string(body))
		_, _ = io.WriteString(w, answer)
	}
}

// What an item has set can be asked for otherwise, in both directions.
func TestAPurchaseSaysHowItIsSold(t *testing.T) {
	var asked []string
	s := serve(t, answering(t, &asked, `{"order_id": "1"}`))
	for _, p := range []client.Purchase{
		{GoodsID: 1},
		{GoodsID: 1, Group: true, Fence: true},
		{GoodsID: 1, Ungrouped: true, Unfenced: true},
		{GoodsID: 1, Group: true, Ungrouped: true, Fence: true, Unfenced: true},
	} {
		if _, err := (client.Client{URL: s.URL}).Deduct(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	want := []string{`{"goods_id":1}`, `{"goods_id":1,"group":true,"fence":true}`, `{"goods_id":1,"group":false,"fence":false}`, `{"goods_id":1,"group":false,"fence":false}`}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

// An item is created with its limit and how it is sold in one request.
func TestAnItemIsCreatedAsItIsSold(t *testing.T) {
	var asked []string
	s := serve(t, answering(t, &asked, `{"goods_id": 1, "strategy": "sql-bucket", "group": true}`))
	item, err := (client.Client{AdminURL: s.URL}).CreateChosen(t.Context(), 1, 5, 2, client.Choice{Strategy: "sql-bucket", Group: new(true)}, "")
	if err != nil || item.Strategy != "sql-bucket" || item.Group == nil || !*item.Group {
		t.Errorf("%+v, %v", item, err)
	}
	if want := `{"goods_id":1,"stock":5,"per_user":2,"strategy":"sql-bucket","group":true,"fence":null}`; !slices.Equal(asked, []string{want}) {
		t.Errorf("asked for %s, want %s", asked, want)
	}
}

// A maximum is set and cleared by itself, and Choose leaves it as it is.
func TestTheUnitsOfAPurchaseAreLimited(t *testing.T) {
	var asked []string
	s := serve(t, answering(t, &asked, `{"goods_id": 1, "max_quantity": 3}`))
	c := client.Client{AdminURL: s.URL}
	for _, units := range []int64{3, 0} {
		if item, err := c.LimitPurchase(t.Context(), 1, units); err != nil || item.MaxQuantity == nil || *item.MaxQuantity != 3 {
			t.Errorf("%+v, %v", item, err)
		}
	}
	if _, err := c.Choose(t.Context(), 1, client.Choice{}); err != nil {
		t.Error(err)
	}
	if want := []string{`{"max_quantity":3}`, `{"max_quantity":null}`, `{"strategy":"","group":null,"fence":null}`}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
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

func TestTheAdminTokenIsSentToTheAdminAPIAlone(t *testing.T) {
	var said sync.Map
	note := func(name string) *stub {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			said.Store(name+" "+r.Header.Get("Authorization"), true)
			_, _ = io.WriteString(w, `{"order_id": "o", "goods_id": 1, "name": "naive"}`)
		})
	}
	c := client.Client{URL: note("buyers").URL, AdminURL: note("owner").URL, Token: "secret"}
	_, one := c.Goods(t.Context(), 1)
	_, two := c.Deduct(t.Context(), client.Purchase{GoodsID: 1})
	_, three := c.Create(t.Context(), 1, 1, "")
	_, four := c.AuditInFull(t.Context(), 1)
	if err := errors.Join(one, two, three, four, c.SwitchOn(t.Context(), "naive")); err != nil {
		t.Fatal(err)
	}
	var received []string
	said.Range(func(what, _ any) bool {
		received = append(received, fmt.Sprint(what))
		return true
	})
	slices.Sort(received)
	if !slices.Equal(received, []string{"buyers ", "owner Bearer secret"}) {
		t.Errorf("they received %q", received)
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
		if got, want := tags(of), contract.Fields(schema); !slices.Equal(got, want) {
			t.Errorf("%T has %v, and %s is described with %v", of, got, schema, want)
		}
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

// A buyer's token and header go where the buyer is asked for, and nowhere else.
func TestABuyerIsSentToThePublicAPI(t *testing.T) {
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path+"?"+r.URL.RawQuery+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Session"))
		_, _ = w.Write([]byte(`{"order_id": "o", "reservation_id": "r"}`)) // the client shows what went wrong
	}))
	defer s.Close()
	c := client.Client{URL: s.URL, AdminURL: s.URL + "/admin", Token: "admin", BuyerToken: "buyer", Header: http.Header{"X-Session": {"7"}}}
	_, bought := c.Deduct(t.Context(), client.Purchase{GoodsID: 1})
	_, found := c.OrderOf(t.Context(), client.Purchase{RequestID: "k", UserID: "a b"})
	_, byRequest := c.OrderByRequest(t.Context(), "k")
	_, byNumber := c.Order(t.Context(), "1")
	_, basket := c.Buy(t.Context(), client.Basket{Lines: []client.Line{{GoodsID: 1}}})
	_, reserved := c.Reserve(t.Context(), client.Purchase{GoodsID: 1}, 0)
	_, seenHeld := c.Reservation(t.Context(), "r")
	_, released := c.Release(t.Context(), "r")
	_, extended := c.Extend(t.Context(), "r", time.Minute)
	if err := errors.Join(bought, found, byRequest, byNumber, basket, reserved, seenHeld, released, extended); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/deduct? Bearer buyer 7", "/orders?request_id=k&user_id=a+b Bearer buyer 7", "/orders?request_id=k Bearer buyer 7", "/admin/orders/1? Bearer admin ",
		"/orders? Bearer buyer 7", "/reservations? Bearer buyer 7", "/reservations/r? Bearer buyer 7", "/reservations/r/release? Bearer buyer 7",
		"/reservations/r/extend? Bearer buyer 7",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("sent %q, want %q", seen, want)
	}
}

// The headers of a Client are its caller's: a call adds its own to a copy.
func TestACallLeavesTheHeadersOfAClientAsTheyWere(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"order_id": "o"}`) })
	c := client.Client{URL: s.URL, BuyerToken: "secret", Header: http.Header{"X-Shop": {"one"}}}
	if _, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1, RequestID: "key-1"}); err != nil {
		t.Fatal(err)
	}
	if len(c.Header) != 1 || c.Header.Get("X-Shop") != "one" {
		t.Errorf("it has the headers %v now", c.Header)
	}
}

// What identifies a purchase is its own, whatever a Client sends with each.
func TestAHeaderOfAClientReplacesNoneOfACall(t *testing.T) {
	c := over(func(r *http.Request) (*http.Response, error) {
		if sent, want := described(t, r), `POST http://public/deduct auth=Bearer b key=mine {"goods_id":1}`; sent != want {
			t.Errorf("sent %s, want %s", sent, want)
		}
		return reply(http.StatusOK, `{"order_id": "o"}`), nil
	})
	c.Header = http.Header{"Idempotency-Key": {"another"}, "Content-Type": {"text/plain"}, "Authorization": {"Basic another"}}
	if _, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1, RequestID: "mine"}); err != nil {
		t.Error(err)
	}
}
