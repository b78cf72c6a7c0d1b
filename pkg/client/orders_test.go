package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/pkg/client"
)

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
	if ids != "10007" {
		t.Errorf("listed %q, want the order after the empty page", ids)
	}
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
	if want := []string{same, "after=1&" + same, "after=2&" + same}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

func TestOrdersAreFollowedUntilTheContextEnds(t *testing.T) {
	s := serve(t, ledger(0), ledger(1), ledger(1), ledger(2))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ids string
	var last error
	for order, err := range (client.Client{AdminURL: s.URL}).Orders(ctx, client.Pages{Follow: time.Millisecond}) {
		if last = err; err != nil {
			continue
		}
		if ids += order.OrderID; ids == "12" {
			cancel()
		}
	}
	if ids != "12" || !errors.Is(last, context.Canceled) {
		t.Errorf("followed %s until %v, want 12 until it was cancelled", ids, last)
	}
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
