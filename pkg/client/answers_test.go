package client_test

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// Every field of an answer arrives where it belongs: no two have the same value.
func TestAnAnswerArrivesWhole(t *testing.T) {
	const (
		at, until = "2026-11-11T11:11:11.000123Z", "2026-11-11T11:26:11Z"
		line      = `"order_id": "o", "goods_id": 7, "quantity": 2, "strategy": "s"`
	)
	created, expires := time.Date(2026, 11, 11, 11, 11, 11, 123_000, time.UTC), time.Date(2026, 11, 11, 11, 26, 11, 0, time.UTC)
	order := client.Order{
		Kind: client.StepReturned, OrderID: "o", GoodsID: 7, Quantity: 2, RequestID: "k", UserID: "u", Remaining: 3, Strategy: "s",
		Replica: "r", Token: 4, Durable: client.InSQL, CreatedAt: created,
	}
	const orderJSON = `{` + line + `, "kind": "return", "request_id": "k", "user_id": "u", "remaining": 3, "replica": "r", "token": 4, "durable": "sql", "created_at": "` + at + `"}`
	held := client.Reservation{
		ReservationID: "a", State: client.Confirmed, GoodsID: 7, Quantity: 2, UserID: "u", Strategy: "s", CreatedAt: created, ExpiresAt: expires,
		OrderID: "o", PaymentReference: "p", Replayed: true,
	}
	reserved := held
	reserved.RequestID = "k"
	const heldJSON = `{` + line + `, "reservation_id": "a", "state": "confirmed", "user_id": "u", "created_at": "` + at + `", "expires_at": "` + until + `", "payment_reference": "p"}`
	const auditJSON = `{"goods_id": 7, "stock": 1, "initial": 2, "sold": 3, "orders": 4, "held": 5, "returned": 6, "oversold": 8, "lost": 9, "clean": true, "pending": 10,
		"buyers": {"miscounted": 11, "beyond_limit": 12}}`
	audit := client.Audit{
		GoodsID: 7, Stock: 1, Initial: 2, Sold: 3, Orders: 4, Held: 5, Returned: 6, Oversold: 8, Lost: 9, Clean: true, Pending: new(int64(10)),
		Buyers: &client.Buyers{Miscounted: 11, BeyondLimit: 12},
	}
	for name, c := range map[string]struct {
		answer string
		call   func(client.Client) (any, error)
		want   any
	}{
		"a sale": {
			`{` + line + `, "remaining": 3, "replica": "r", "token": 4, "created_at": "` + at + `", "wait_ms": 5.5, "hold_ms": 6.5, "durable": "redis"}`,
			func(c client.Client) (any, error) { return c.Deduct(t.Context(), client.Purchase{RequestID: "k"}) },
			client.Sale{
				RequestID: "k", OrderID: "o", GoodsID: 7, Quantity: 2, Remaining: 3, Strategy: "s", Replica: "r", Token: 4, CreatedAt: created,
				Wait: 5500 * time.Microsecond, Hold: 6500 * time.Microsecond, Durable: client.InRedis, Replayed: true,
			},
		},
		"a basket": {
			`{"order_id": "b", "lines": [{` + line + `}], "created_at": "` + at + `"}`,
			func(c client.Client) (any, error) { return c.Buy(t.Context(), client.Basket{RequestID: "k"}) },
			client.SoldBasket{
				RequestID: "k", OrderID: "b", Lines: []client.SoldLine{{OrderID: "o", GoodsID: 7, Quantity: 2, Strategy: "s"}}, CreatedAt: created, Replayed: true,
			},
		},
		"a reservation": {
			heldJSON, func(c client.Client) (any, error) { return c.Reserve(t.Context(), client.Purchase{RequestID: "k"}, 0) }, reserved,
		},
		"a step of a reservation": {heldJSON, func(c client.Client) (any, error) { return c.Confirm(t.Context(), "a", "p") }, held},
		"a return":                {`{"order_id": "o", "quantity": 2}`, func(c client.Client) (any, error) { return c.Return(t.Context(), "o", 0, "k") }, int64(2)},
		"an order":                {orderJSON, func(c client.Client) (any, error) { return c.Order(t.Context(), "o") }, order},
		"an order of a page": {
			`{"orders": [` + orderJSON + `], "next": "9"}`,
			func(c client.Client) (any, error) {
				for listed, err := range c.Orders(t.Context(), client.Pages{}) {
					return listed, err
				}
				return nil, nil
			},
			client.ListedOrder{Order: order, Cursor: "9"},
		},
		"an item": {
			`{"goods_id": 7, "stock": 1, "available": true, "version": 2, "fence": 3, "per_user": 4, "strategy": "s", "group": true, "fenced": false, "max_quantity": 5}`,
			func(c client.Client) (any, error) { return c.Goods(t.Context(), 7) },
			client.Goods{ID: 7, Stock: 1, Available: true, Version: 2, Fence: 3, PerUser: 4, Strategy: "s", Group: new(true), Fenced: new(false), MaxQuantity: new(int64(5))},
		},
		"an audit":     {auditJSON, func(c client.Client) (any, error) { return c.Audit(t.Context(), 7) }, audit},
		"a full audit": {auditJSON, func(c client.Client) (any, error) { return c.AuditInFull(t.Context(), 7) }, audit},
		"a place in a line": {
			`{"ticket": "t", "goods_id": 7, "state": "admitted", "place": 2, "wait": 3, "ask_after": 4, "admitted_until": "` + at + `"}`,
			func(c client.Client) (any, error) { return c.Queue(t.Context(), client.Purchase{GoodsID: 7}) },
			client.Ticket{Ticket: "t", GoodsID: 7, State: client.Admitted, Place: 2, Wait: 3 * time.Second, AskAfter: 4 * time.Second, AdmittedUntil: created},
		},
		"no strategies": {`{"strategies": []}`, func(c client.Client) (any, error) { return c.Strategies(t.Context()) }, []client.Strategy{}},
	} {
		got, err := c.call(over(func(*http.Request) (*http.Response, error) {
			return reply(http.StatusOK, c.answer, "Idempotency-Replayed", "true"), nil
		}))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s is\n%+v (%v), want\n%+v", name, got, err, c.want)
		}
	}
}

func TestAProblemArrivesWhole(t *testing.T) {
	const body = `{"type": "urn:stockd:problem:user-limit", "title": "a title", "detail": "a detail", "instance": "i", "backend": "redis", "request_id": "k",
		"errors": [{"field": "quantity", "error": "too many"}], "more_errors": 1, "strategies": ["s"], "per_user": 2, "has": 3, "goods_id": 7}`
	_, err := over(func(*http.Request) (*http.Response, error) {
		return reply(http.StatusConflict, body, "Retry-After", "4"), nil
	}).Deduct(t.Context(), client.Purchase{GoodsID: 7})
	want := &client.Problem{
		Code: "user-limit", Status: http.StatusConflict, Title: "a title", Detail: "a detail", Instance: "i", Backend: "redis", RequestID: "k",
		Errors: []client.FieldError{{Field: "quantity", Error: "too many"}}, MoreErrors: 1, Strategies: []string{"s"}, PerUser: 2, Has: 3, GoodsID: 7,
		RetryAfter: 4 * time.Second,
	}
	if got, ok := errors.AsType[*client.Problem](err); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("the problem is\n%+v, want\n%+v", got, want)
	}
}

// A captive portal, or a service at another address, answers with a status of success, too.
func TestAnAnswerThatNamesNothingIsNoSaleAndNoOrder(t *testing.T) {
	c := over(func(*http.Request) (*http.Response, error) { return reply(http.StatusOK, `{"status": "ok"}`), nil })
	for name, call := range map[string]func() error{
		"a sale":        func() error { _, err := c.Deduct(t.Context(), client.Purchase{GoodsID: 7}); return err },
		"a basket":      func() error { _, err := c.Buy(t.Context(), client.Basket{}); return err },
		"a reservation": func() error { _, err := c.Reserve(t.Context(), client.Purchase{GoodsID: 7}, 0); return err },
		"a payment":     func() error { _, err := c.Confirm(t.Context(), "a", "p"); return err },
		"a new item":    func() error { _, err := c.Create(t.Context(), client.NewItem{GoodsID: 7, Stock: 1}); return err },
		"a restock":     func() error { _, err := c.Restock(t.Context(), 7, 1, ""); return err },
		"a limit":       func() error { _, err := c.Change(t.Context(), 7, client.Change{PerUser: new(int64(1))}); return err },
		"a return":      func() error { _, err := c.Return(t.Context(), "o", 1, ""); return err },
		"a switch":      func() error { return c.SwitchOff(t.Context(), "naive", "it oversells") },
	} {
		should.Fail(t, call(), client.ErrOutcomeUnknown, name)
	}
	for name, call := range map[string]func() error{
		"an order":            func() error { _, err := c.Order(t.Context(), "o"); return err },
		"the order of a key":  func() error { _, err := c.OrderOf(t.Context(), client.Purchase{RequestID: "k"}); return err },
		"an item":             func() error { _, err := c.Goods(t.Context(), 7); return err },
		"a basket that was":   func() error { _, err := c.Basket(t.Context(), "o"); return err },
		"a reservation's":     func() error { _, err := c.Reservation(t.Context(), "a"); return err },
		"a ticket":            func() error { _, err := c.Ticket(t.Context(), "t"); return err },
		"an audit":            func() error { _, err := c.Audit(t.Context(), 7); return err },
		"a full audit":        func() error { _, err := c.AuditInFull(t.Context(), 7); return err },
		"the strategies":      func() error { _, err := c.Strategies(t.Context()); return err },
		"a page of the order": func() error { return firstOf(c.Orders(t.Context(), client.Pages{})) },
	} {
		should.Fail(t, call(), client.ErrUnavailable, name)
	}
}

// net/http would follow it with a GET, whose answer is an item that has no limit.
func TestARedirectOfAWriteIsAFailure(t *testing.T) {
	asked := ""
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked += r.Method + " " + r.URL.Path + "\n"
		_, _ = io.WriteString(w, `{"goods_id": 7, "name": "naive"}`)
	}))
	defer elsewhere.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusPermanentRedirect} {
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		}))
		c := client.Client{URL: front.URL, AdminURL: front.URL, Token: "secret"}
		for name, call := range map[string]func() error{
			"a limit":  func() error { _, err := c.Change(t.Context(), 7, client.Change{PerUser: new(int64(1))}); return err },
			"a switch": func() error { return c.SwitchOn(t.Context(), "naive") },
			"an item":  func() error { _, err := c.Goods(t.Context(), 7); return err },
		} {
			if err := call(); err == nil || asked != "" {
				t.Errorf("%d of %s: %v, and elsewhere is asked for %q", status, name, err, asked)
			}
		}
		front.Close()
	}
}

// A part of a second is not nothing, which is as long as stockd likes.
func TestUnitsAreHeldForWholeSecondsRoundedUp(t *testing.T) {
	var body string
	c := over(func(r *http.Request) (*http.Response, error) {
		content, err := io.ReadAll(r.Body)
		body = string(content)
		return reply(http.StatusOK, `{"reservation_id": "a"}`), err
	})
	for ttl, want := range map[time.Duration]string{0: "", time.Nanosecond: `"ttl":1}`, 1500 * time.Millisecond: `"ttl":2}`, 2 * time.Second: `"ttl":2}`, -time.Millisecond: `"ttl":-1}`, -time.Second: `"ttl":-1}`} {
		if _, err := c.Reserve(t.Context(), client.Purchase{GoodsID: 7}, ttl); err != nil || !strings.Contains(body, want) || want == "" && strings.Contains(body, "ttl") {
			t.Errorf("%s is sent as %s (%v)", ttl, body, err)
		}
		if _, err := c.Extend(t.Context(), "a", ttl); err != nil || !strings.Contains(body, want) {
			t.Errorf("%s more is sent as %s (%v)", ttl, body, err)
		}
	}
}

// firstOf is the error of the first order of a listing; one that goes on without an order has none.
func firstOf(orders iter.Seq2[client.ListedOrder, error]) error {
	for _, err := range orders {
		return err
	}
	return nil
}

// A field of an unexpected type hides no other: a newer stockd may have it, or a gateway.
func TestAFieldOfAnotherTypeHidesNoProblem(t *testing.T) {
	_, err := over(func(*http.Request) (*http.Response, error) {
		return reply(http.StatusConflict, `{"per_user": "two", "errors": 1, "type": "urn:stockd:problem:insufficient-stock", "goods_id": 7}`), nil
	}).Deduct(t.Context(), client.Purchase{GoodsID: 7})
	if got, ok := errors.AsType[*client.Problem](err); !ok || !errors.Is(err, client.ErrSoldOut) || got.GoodsID != 7 {
		t.Errorf("it is %v", err)
	}
}

func TestEveryProblemHasItsKind(t *testing.T) {
	for code, want := range map[string]error{
		"insufficient-stock": client.ErrSoldOut, "user-limit": client.ErrUserLimit, "rate-limited": client.ErrRateLimited,
		"busy": client.ErrBusy, "fenced": client.ErrBusy, "lease-lost": client.ErrBusy,
		"backend-unavailable": client.ErrUnavailable, "stopping": client.ErrUnavailable, "outcome-unknown": client.ErrOutcomeUnknown,
		"unknown-goods": client.ErrUnknownGoods, "unknown-order": client.ErrUnknownOrder, "unknown-reservation": client.ErrUnknownReservation,
		"unknown-strategy": client.ErrUnknownStrategy, "reservation-expired": client.ErrReservationExpired,
		"reservation-released": client.ErrReservationReleased, "reservation-confirmed": client.ErrReservationConfirmed,
		"reference-used": client.ErrReferenceUsed, "order-returned": client.ErrOrderReturned, "goods-exist": client.ErrGoodsExist,
		"stock-limit": client.ErrStockLimit, "below-zero": client.ErrBelowZero, "sale-closed": client.ErrSaleClosed, "sale-not-started": client.ErrSaleNotStarted, "key-reused": client.ErrKeyReused, "strategy-refused": client.ErrRefused,
		"choice-refused": client.ErrChoiceRefused, "default-strategy": client.ErrDefaultStrategy, "invalid-request": client.ErrInvalid,
		"unauthorized": client.ErrUnauthorized, "token-bound": client.ErrTokenBound, "not-admitted": client.ErrNotAdmitted,
		"no-waiting-room": client.ErrNoRoom, "unknown-ticket": client.ErrUnknownTicket, "items-apart": client.ErrItemsApart,
	} {
		if got := (&client.Problem{Code: code}).Unwrap(); got != want { //nolint:errorlint // the very one
			t.Errorf("%s is %v, want %v", code, got, want)
		}
	}
}

// A body that is not closed keeps its connection.
func TestTheBodyOfEveryAnswerIsClosed(t *testing.T) {
	for name, answer := range map[string]*http.Response{
		"a sale": reply(http.StatusOK, `{}`), "a problem": reply(http.StatusConflict, `{"type": "urn:stockd:problem:key-reused"}`),
		"no JSON": reply(http.StatusBadGateway, "<html>"),
	} {
		body := &closable{Reader: answer.Body}
		answer.Body = body
		_, _ = over(func(*http.Request) (*http.Response, error) { return answer, nil }).Deduct(t.Context(), client.Purchase{GoodsID: 7})
		if !body.closed {
			t.Errorf("the body of %s is open", name)
		}
	}
}

type closable struct {
	io.Reader

	closed bool
}

func (c *closable) Close() error {
	c.closed = true
	return nil
}
