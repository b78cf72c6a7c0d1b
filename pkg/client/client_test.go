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
