package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry/metrics"
	"github.com/stockd/stockd/pkg/client"
)

// wire answers requests without a socket.
type wire func(*http.Request) (*http.Response, error)

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// reply is an answer of a stockd: a body, and headers as pairs.
func reply(status int, body string, headers ...string) *http.Response {
	r := &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func over(w wire) client.Client {
	return client.Client{URL: "http://public", AdminURL: "http://admin", Token: "t", BuyerToken: "b", HTTP: &http.Client{Transport: w}}
}

// Each API gets its own token, and the buyer's header goes with what identifies a buyer alone.
func TestEveryCallIsSentAsDescribedAndReturnsItsFailure(t *testing.T) {
	ctx := t.Context()
	page := func(c client.Client, p client.Pages) error {
		for _, err := range c.Orders(ctx, p) {
			return err
		}
		return nil
	}
	for want, call := range map[string]func(client.Client) error{
		"GET http://public/goods/7":       func(c client.Client) error { _, err := c.Goods(ctx, 7); return err },
		"GET http://public/goods/7/audit": func(c client.Client) error { _, err := c.Audit(ctx, 7); return err },
		"GET http://public/strategies":    func(c client.Client) error { _, err := c.Strategies(ctx); return err },
		"GET http://public/orders?request_id=k%26l%3Dm&user_id=a+b auth=Bearer b session=7": func(c client.Client) error {
			_, err := c.OrderOf(ctx, client.Purchase{RequestID: "k&l=m", UserID: "a b"})
			return err
		},
		"GET http://public/orders?request_id=k auth=Bearer b session=7": func(c client.Client) error {
			_, err := c.OrderOf(ctx, client.Purchase{RequestID: "k"})
			return err
		},
		`POST http://public/deduct auth=Bearer b session=7 key=k {"goods_id":7,"quantity":2,"user_id":"u","strategy":"s","durable":"sql"}`: func(c client.Client) error {
			_, err := c.Deduct(ctx, client.Purchase{RequestID: "k", GoodsID: 7, Quantity: 2, UserID: "u", Strategy: "s", Durable: client.InSQL})
			return err
		},
		`POST http://public/deduct auth=Bearer b session=7 key=k {"goods_id":7,"group":true,"fence":false,"wait_ms":2}`: func(c client.Client) error {
			_, err := c.Deduct(ctx, client.Purchase{RequestID: "k", GoodsID: 7, Group: new(true), Fence: new(false), Wait: 1001 * time.Microsecond})
			return err
		},
		`POST http://public/reservations auth=Bearer b session=7 key=k {"goods_id":7,"quantity":2,"user_id":"u","ttl":90}`: func(c client.Client) error {
			_, err := c.Reserve(ctx, client.Purchase{RequestID: "k", GoodsID: 7, Quantity: 2, UserID: "u"}, 90*time.Second)
			return err
		},
		`GET http://public/reservations/a%2Fb auth=Bearer b session=7`: func(c client.Client) error { _, err := c.Reservation(ctx, "a/b"); return err },
		`POST http://admin/reservations/r/confirm auth=Bearer t {"payment_reference":"p"}`: func(c client.Client) error {
			_, err := c.Confirm(ctx, "r", "p")
			return err
		},
		`POST http://public/reservations/r/release auth=Bearer b session=7`: func(c client.Client) error { _, err := c.Release(ctx, "r"); return err },
		`POST http://public/reservations/r/extend auth=Bearer b session=7 {"ttl":60}`: func(c client.Client) error {
			_, err := c.Extend(ctx, "r", time.Minute)
			return err
		},
		`POST http://admin/orders/7/return auth=Bearer t key=k {"quantity":2}`: func(c client.Client) error { _, err := c.Return(ctx, "7", 2, "k"); return err },
		`POST http://admin/orders/a%2Fb/return auth=Bearer t key=k {}`:         func(c client.Client) error { _, err := c.Return(ctx, "a/b", 0, "k"); return err },
		`POST http://admin/goods auth=Bearer t key=k {"goods_id":7,"stock":5}`: func(c client.Client) error {
			_, err := c.Create(ctx, client.NewItem{GoodsID: 7, Stock: 5, RequestID: "k"})
			return err
		},
		`POST http://admin/goods auth=Bearer t key=k {"goods_id":7,"stock":5,"per_user":2,"max_quantity":3,"strategy":"s","group":true,"fence":null}`: func(c client.Client) error {
			_, err := c.Create(ctx, client.NewItem{
				GoodsID: 7, Stock: 5, PerUser: new(int64(2)), MaxQuantity: 3, Choice: &client.Choice{Strategy: "s", Group: new(true)}, RequestID: "k",
			})
			return err
		},
		`POST http://public/orders auth=Bearer b session=7 key=k {"lines":[{"goods_id":7},{"goods_id":8,"quantity":2}],"user_id":"u","strategy":"s","group":true,"fence":false}`: func(c client.Client) error {
			_, err := c.Buy(ctx, client.Basket{
				RequestID: "k", Lines: []client.Line{{GoodsID: 7}, {GoodsID: 8, Quantity: 2}}, UserID: "u", Strategy: "s", Group: new(true), Fence: new(false),
			})
			return err
		},
		"GET http://admin/orders/a%2Fb auth=Bearer t": func(c client.Client) error { _, err := c.Basket(ctx, "a/b"); return err },
		"GET http://admin/orders/c%2Fd auth=Bearer t": func(c client.Client) error { _, err := c.Order(ctx, "c/d"); return err },
		`POST http://admin/goods/7/restock auth=Bearer t key=k {"quantity":5}`: func(c client.Client) error {
			_, err := c.Restock(ctx, 7, 5, "k")
			return err
		},
		`PATCH http://admin/goods/7 auth=Bearer t {"max_quantity":3,"per_user":0}`: func(c client.Client) error {
			_, err := c.Change(ctx, 7, client.Change{PerUser: new(int64(0)), MaxQuantity: new(int64(3))})
			return err
		},
		`PATCH http://admin/goods/7 auth=Bearer t {"max_quantity":null}`: func(c client.Client) error {
			_, err := c.Change(ctx, 7, client.Change{MaxQuantity: new(int64(0))})
			return err
		},
		`PATCH http://admin/goods/7 auth=Bearer t {"fence":true,"group":null,"strategy":"s"}`: func(c client.Client) error {
			_, err := c.Change(ctx, 7, client.Change{Choice: &client.Choice{Strategy: "s", Fence: new(true)}})
			return err
		},
		"GET http://admin/goods/7/audit?full=true auth=Bearer t": func(c client.Client) error { _, err := c.AuditInFull(ctx, 7); return err },
		`PUT http://admin/strategies/a%2Fb auth=Bearer t {"enabled":false,"reason":"late"}`: func(c client.Client) error {
			return c.SwitchOff(ctx, "a/b", "late")
		},
		`PUT http://admin/strategies/s auth=Bearer t {"enabled":true}`:     func(c client.Client) error { return c.SwitchOn(ctx, "s") },
		"GET http://admin/orders? auth=Bearer t":                           func(c client.Client) error { return page(c, client.Pages{}) },
		"GET http://admin/orders?reader=bi&steps=true auth=Bearer t":       func(c client.Client) error { return page(c, client.Pages{Steps: true, Reader: "bi"}) },
		"GET http://admin/orders?after=c&goods_id=7&limit=2 auth=Bearer t": func(c client.Client) error { return page(c, client.Pages{GoodsID: 7, Cursor: "c", Limit: 2}) },
	} {
		var sent string
		status, body := http.StatusConflict, `{"type": "urn:stockd:problem:key-reused"}`
		c := over(func(r *http.Request) (*http.Response, error) {
			sent = described(t, r)
			return reply(status, body), nil
		})
		c.Header = http.Header{"X-Session": {"7"}}
		if err := call(c); !errors.Is(err, client.ErrKeyReused) || errors.Is(err, client.ErrConcealed) {
			t.Errorf("%s: %v, want the problem of the answer", want, err)
		}
		should.Be(t, sent, want, "what is sent")
		status, body = http.StatusOK, `{"order_id": "o", "reservation_id": "r", "next": "c", "goods_id": 7, "name": "s", "strategies": [{"name": "s"}]}`
		should.Fail(t, call(c), nil, want)
		should.Be(t, len(c.Header), 1, "… leaves the client with the headers …", want, c.Header)
	}
}

func TestTheLargestPageIsRead(t *testing.T) {
	one := fmt.Sprintf(`{"order_id": %q, "request_id": %q, "user_id": %q}`, strings.Repeat("o", 36), strings.Repeat("k", 128), strings.Repeat("库", 64))
	c := over(func(*http.Request) (*http.Response, error) {
		return reply(http.StatusOK, `{"orders": [`+strings.Repeat(one+",", 999)+one+`], "next": "9"}`), nil
	})
	n := 0
	for _, err := range c.Orders(t.Context(), client.Pages{Limit: 1000, Cursor: "9"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	should.Be(t, n, 1000, "orders are read")
}

// A write that has no key of its caller's gets one, so that an unknown outcome can be found
// out: another for each write, and it is that of the error.
func TestAWriteWithoutAKeyGetsOne(t *testing.T) {
	seen := make(map[string]bool)
	for name, write := range map[string]func(client.Client) error{
		"deduct": func(c client.Client) error {
			_, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 7, Quantity: 1})
			return err
		},
		"create": func(c client.Client) error {
			_, err := c.Create(t.Context(), client.NewItem{GoodsID: 7, Stock: 5})
			return err
		},
		"restock": func(c client.Client) error { _, err := c.Restock(t.Context(), 7, 5, ""); return err },
		"return":  func(c client.Client) error { _, err := c.Return(t.Context(), "7", 1, ""); return err },
		"buy":     func(c client.Client) error { _, err := c.Buy(t.Context(), client.Basket{}); return err },
		"reserve": func(c client.Client) error {
			_, err := c.Reserve(t.Context(), client.Purchase{GoodsID: 7}, 0)
			return err
		},
	} {
		var key string
		err := write(over(func(r *http.Request) (*http.Response, error) {
			key = r.Header.Get("Idempotency-Key")
			return reply(http.StatusBadGateway, ""), nil // the balancer has lost it
		}))
		unknown, ok := errors.AsType[*client.UnknownError](err)
		if !ok || key == "" || unknown.RequestID != key || seen[key] {
			t.Errorf("%s was sent under %q and failed with %v", name, key, err)
		}
		seen[key] = true
	}
}

// described is a request with all that stockd looks at.
func described(t *testing.T, r *http.Request) string {
	t.Helper()
	s := r.Method + " " + r.URL.String()
	if auth := r.Header.Get("Authorization"); auth != "" {
		s += " auth=" + auth
	}
	if session := r.Header.Get("X-Session"); session != "" {
		s += " session=" + session
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		s += " key=" + key
	}
	if body, err := io.ReadAll(r.Body); err != nil {
		t.Error(err)
	} else if len(body) > 0 {
		s += " " + string(body)
	}
	should.Be(t, r.Header.Get("Content-Type") == "application/json", strings.HasSuffix(s, "}"), "its content is called JSON", s)
	return s
}

// Each row is what each attempt is answered with, and the bounds of the pauses between them.
func TestAPauseFitsItsReason(t *testing.T) {
	busy := func(after string) func() (*http.Response, error) {
		return func() (*http.Response, error) {
			return reply(http.StatusServiceUnavailable, `{"type": "urn:stockd:problem:busy"}`, "Retry-After", after), nil
		}
	}
	unsent := func() (*http.Response, error) { return nil, errors.New("connection refused") }
	for name, c := range map[string]struct {
		answer func() (*http.Response, error)
		least  []time.Duration // of each pause; it is less than most
		most   []time.Duration
		want   error
	}{
		"busy for two seconds": {
			busy("2"),
			[]time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second},
			[]time.Duration{2100 * time.Millisecond, 2100 * time.Millisecond, 2100 * time.Millisecond},
			client.ErrBusy,
		},
		"no connection": {
			unsent,
			[]time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond},
			[]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond},
			client.ErrUnavailable,
		},
		"busy without a pause":                   {busy("0"), nil, nil, client.ErrBusy},
		"busy with a pause that is no number":    {busy("soon"), nil, nil, client.ErrBusy},
		"busy with a pause longer than any time": {busy("99999999999999999999"), nil, nil, client.ErrBusy},
		"busy with a pause of 317 years":         {busy("9999999999"), nil, nil, client.ErrBusy},
		"busy with a pause below zero":           {busy("-2"), nil, nil, client.ErrBusy},
	} {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			_, err := over(func(*http.Request) (*http.Response, error) {
				at = append(at, time.Now())
				return c.answer()
			}).Deduct(t.Context(), client.Purchase{GoodsID: 1})
			if !errors.Is(err, c.want) || len(at) != len(c.least)+1 {
				t.Fatalf("%s: %v after %d attempts, want %v after %d", name, err, len(at), c.want, len(c.least)+1)
			}
			for i, least := range c.least {
				if pause := at[i+1].Sub(at[i]); pause < least || pause >= c.most[i] {
					t.Errorf("%s: pause %d is %s, want %s to %s", name, i+1, pause, least, c.most[i])
				}
			}
		})
	}
}

// However many attempts there are, a pause stays below a bound.
func TestPausesStopGrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts, began := 0, time.Now()
		c := over(func(*http.Request) (*http.Response, error) {
			attempts++
			return nil, errors.New("connection refused")
		})
		c.Tries = 70
		_, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 1})
		if !errors.Is(err, client.ErrUnavailable) || attempts != 70 {
			t.Errorf("%v after %d attempts, want unavailable after 70", err, attempts)
		}
		if took := time.Since(began); took > 70*6400*time.Millisecond {
			t.Errorf("the pauses take %s, want each under 6.4s", took)
		}
	})
}

func TestACancelledPauseReturnsTheFailureAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		attempts, began := 0, time.Now()
		_, err := over(func(*http.Request) (*http.Response, error) {
			attempts++
			return reply(http.StatusServiceUnavailable, `{"type": "urn:stockd:problem:busy"}`, "Retry-After", "2"), nil
		}).Goods(ctx, 1)
		if !errors.Is(err, client.ErrBusy) || attempts != 1 || time.Since(began) != time.Second {
			t.Errorf("%v after %d attempts and %s, want busy after one and a second", err, attempts, time.Since(began))
		}
	})
}

// Whatever is answered with a status of the server's fault may have happened, and what is
// answered with one of the client's did not.
func TestAStatusThatIsNotFromStockd(t *testing.T) {
	for status, unknown := range map[int]bool{302: false, 404: false, 499: false, 500: true, 502: true, 503: true, 504: true} {
		for _, body := range []string{"<html>", `{"type": "about:blank"}`} {
			_, err := over(func(*http.Request) (*http.Response, error) { return reply(status, body), nil }).Restock(t.Context(), 1, 1, "k")
			if lost, ok := errors.AsType[*client.UnknownError](err); err == nil || ok != unknown || ok && lost.RequestID != "k" {
				t.Errorf("%d with %s: %v, want an unknown outcome: %v", status, body, err, unknown)
			}
		}
	}
}

func TestAFailureReadsAsItsKindAndDetail(t *testing.T) {
	for body, want := range map[string]string{
		`{"type": "urn:stockd:problem:user-limit", "title": "Limit", "detail": "2 of 2", "per_user": 2, "has": 2}`:                                  "stockd: Limit: 2 of 2",
		`{"type": "urn:stockd:problem:user-limit", "title": "Limit", "per_user": 2, "has": 2}`:                                                      "stockd: Limit",
		`{"type": "urn:stockd:problem:user-limit", "title": "The limit is reached", "detail": "item 2: limit is reached", "per_user": 2, "has": 2}`: "stockd: The limit is reached: item 2",
	} {
		_, err := over(func(*http.Request) (*http.Response, error) { return reply(http.StatusConflict, body), nil }).Deduct(t.Context(), client.Purchase{GoodsID: 1})
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || err.Error() != want || p.Status != http.StatusConflict || p.PerUser != 2 || p.Has != 2 {
			t.Errorf("%q of %+v, want %q", err, p, want)
		}
	}
	if _, err := (client.Client{URL: "http://a b"}).Goods(t.Context(), 1); err == nil || errors.Is(err, client.ErrUnavailable) {
		t.Errorf("an address that is none: %v", err)
	}
}

func TestAnUnknownOutcomeNamesTheRequestThatFindsOut(t *testing.T) {
	for id, want := range map[string]string{"k": "stockd: outcome of request k unknown: reset", "": "stockd: outcome unknown: reset"} {
		should.Be(t, error(&client.UnknownError{RequestID: id, Err: errors.New("reset")}).Error(), want)
	}
}

// Where stockd says under which id the outcome is found, that is the one of the error.
func TestTheIDOfAnUnknownOutcomeIsTheOneThatIsAnswered(t *testing.T) {
	for answered, want := range map[string]string{"": "sent", "answered": "answered"} {
		body := fmt.Sprintf(`{"type": "urn:stockd:problem:outcome-unknown", "request_id": %q}`, answered)
		_, err := over(func(*http.Request) (*http.Response, error) {
			return reply(http.StatusServiceUnavailable, body), nil
		}).Deduct(t.Context(), client.Purchase{GoodsID: 7, RequestID: "sent"})
		if unknown, ok := errors.AsType[*client.UnknownError](err); !ok || unknown.RequestID != want {
			t.Errorf("answered with %q it is %v, want %s", answered, err, want)
		}
	}
}

// No answer of a stockd is as long as this: the client reads no more of it, and does not know what came.
func TestAnAnswerWithoutAnEndIsNotReadForEver(t *testing.T) {
	read := 0
	c := over(func(*http.Request) (*http.Response, error) {
		endless := reply(http.StatusOK, "")
		endless.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"order_id": "1", "padding": "`), counting{&read}, strings.NewReader(`"}`)))
		return endless, nil
	})
	should.Reject(c.Deduct(t.Context(), client.Purchase{GoodsID: 7}))(t, client.ErrOutcomeUnknown, "a purchase is answered with")
	if read > 8<<20 {
		t.Errorf("it has read %d bytes", read)
	}
}

// counting is 64 MiB of padding, and counts what is read of it.
type counting struct{ read *int }

func (c counting) Read(b []byte) (int, error) {
	if *c.read >= 64<<20 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = 'x'
	}
	*c.read += len(b)
	return len(b), nil
}

// An error inside stockd may have come after the write; a look changes nothing.
func TestAnInternalErrorMayHaveComeAfterTheWrite(t *testing.T) {
	c := over(func(*http.Request) (*http.Response, error) {
		return reply(http.StatusInternalServerError, `{"type": "urn:stockd:problem:internal", "title": "t", "status": 500}`, "Content-Type", "application/problem+json"), nil
	})
	_, sold := c.Deduct(t.Context(), client.Purchase{GoodsID: 1, RequestID: "k"})
	_, added := c.Restock(t.Context(), 1, 1, "k")
	for _, err := range []error{sold, added} {
		lost, unknown := errors.AsType[*client.UnknownError](err)
		problem, named := errors.AsType[*client.Problem](err)
		if !unknown || lost.RequestID != "k" || !named || problem.Code != "internal" {
			t.Errorf("a write is answered with %v, want an unknown outcome of k", err)
		}
	}
	if _, err := c.Goods(t.Context(), 1); err == nil || errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("a look is answered with %v", err)
	}
}

// openShop serves a replica of its own on SQLite, and puts units of item 1 on sale. The examples run
// on it.
func openShop(units int64) (shop client.Client, shut func()) {
	gin.SetMode(gin.ReleaseMode)
	ctx := context.Background()
	folder := must(os.MkdirTemp("", "stockd-example-"))
	database := backend.SQLOptions{Driver: repo.SQLite, DSN: filepath.Join(folder, "stock.db"), MaxOpen: 4, LockWait: time.Second, ConnectTimeout: time.Second}
	store := must(repo.Open(ctx, database, repo.Options{Replica: "replica-1"}))
	must(store.MigrateUp(ctx))
	deps := strategy.Deps{Store: store, LockWait: time.Second, Group: strategy.Group{Batch: 5, Units: 1000, Queue: 40}}
	deps.Lock.Clients = &backend.Clients{}
	catalogue := service.NewCatalogue(ctx, strategy.Registry(), deps, 5*time.Second)
	must(0, catalogue.SetDefault(service.Mode{Strategy: "sql-conditional"}))
	options := handler.Options{
		Catalogue: catalogue, Inventory: service.NewInventory(store, catalogue), Feed: service.NewFeed(store),
		Reservations: service.NewReservations(store, catalogue, time.Hour, metrics.New(metrics.Build{})),
		TTL:          15 * time.Minute, LongestTTL: time.Hour, Replica: "replica-1", Reveal: true, MaxBody: 4096,
		Log: slog.New(slog.DiscardHandler), Observer: metrics.New(metrics.Build{}),
	}
	const token = "token of the admin"
	public, admin := httptest.NewServer(handler.Public(options)), httptest.NewServer(handler.Admin(options, admintoken.Single(token)))
	shop = client.Client{URL: public.URL, AdminURL: admin.URL, Token: token}
	must(shop.Create(ctx, client.NewItem{GoodsID: 1, Stock: units}))
	return shop, func() {
		public.Close()
		admin.Close()
		for _, part := range []io.Closer{catalogue, store} {
			must(0, part.Close())
		}
		must(0, os.RemoveAll(folder))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// losing loses the next answer, after stockd has sent it.
type losing struct{ lose bool }

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && l.lose {
		l.lose = false
		answer.Body = io.NopCloser(io.MultiReader()) // it is cut off after its header
	}
	return answer, err
}
