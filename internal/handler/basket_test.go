package handler_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// serveItems is an API with further items.
func serveItems(t *testing.T, d *servers.Database, stock map[int64]int64) api {
	t.Helper()
	a := serve(t, d)
	for id, units := range stock {
		must.Do(t, a.store.CreateGoods(t.Context(), id, units, fmt.Sprint("item ", id)))
	}
	return a
}

// order sends a basket as JSON.
func (a api) order(t *testing.T, query, body string, header ...string) answer {
	t.Helper()
	r := request(t, http.MethodPost, a.public.URL+"/orders?"+query, jsonType, body)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return send(t, r)
}

// left compares what is left of items, and that nothing is held.
func (a api) left(t *testing.T, want map[int64]int64) {
	t.Helper()
	labtest.Eventually(30*time.Second, func() bool {
		n, err := a.store.Reservations(t.Context())
		return err != nil || n.Open == 0
	})
	for id, units := range want {
		audit, err := a.store.AuditInFull(t.Context(), id)
		if err != nil || !audit.Clean || audit.Held != 0 || audit.Stock != units {
			t.Errorf("item %d: %+v (%v), want %d left and nothing held", id, audit, err, units)
		}
	}
}

func TestABasketIsSoldWholeOrNotAtAll(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := serveItems(t, d, map[int64]int64{2: 5, 3: 1})
		sold := a.order(t, "", `{"lines": [{"goods_id": 3}, {"goods_id": 1, "quantity": 2}, {"goods_id": 2, "quantity": 1}, {"goods_id": 1}], "user_id": "ann"}`,
			"Idempotency-Key", "basket")
		lines, _ := sold.body["lines"].([]any)
		if sold.status != http.StatusCreated || len(lines) != 3 || !strings.Contains(fmt.Sprint(lines[0]), "goods_id:1") || !strings.Contains(fmt.Sprint(lines[0]), "quantity:3") {
			t.Fatalf("a basket of three items is answered with %d %s", sold.status, sold.text)
		}
		a.left(t, map[int64]int64{1: 7, 2: 4, 3: 0})
		for _, line := range lines {
			line, _ := line.(map[string]any)
			order := a.get(t, fmt.Sprint("/orders/", line["order_id"]))
			if line["order_id"] == sold.body["order_id"] || order.body["goods_id"] != line["goods_id"] || order.body["quantity"] != line["quantity"] || order.body["strategy"] != line["strategy"] {
				t.Errorf("the line %v is the order %s", line, order.text)
			}
		}
		if created, err := time.Parse(time.RFC3339Nano, fmt.Sprint(sold.body["created_at"])); err != nil || time.Since(created) < -time.Second || time.Since(created) > 30*time.Second {
			t.Errorf("it was created at %v (%v)", created, err)
		}
		number := fmt.Sprint(sold.body["order_id"])
		a.get(t, "/orders/"+number+"-2-3").is(t, "", "goods_id", 2.0)
		for what, answer := range map[string]answer{
			"without its user":  a.get(t, "/orders?request_id=basket"),
			"of another user":   a.get(t, "/orders?request_id=basket&user_id=bob"),
			"by another key":    a.get(t, "/orders?request_id=bask&user_id=ann"),
			"of all, the admin": a.asAdmin(t, http.MethodGet, "/orders?request_id=basket", "", http.StatusNotFound),
		} {
			should.Be(t, answer.problem(), "unknown-order", "the basket under a key is found", what, answer.text)
		}
		found := a.get(t, "/orders?request_id=basket&user_id=ann")
		should.Be(t, found.text, sold.text, "the basket under its key is answered with", found.status)
		if whole := a.get(t, "/orders/"+number); whole.status != http.StatusOK || whole.text != sold.text {
			t.Errorf("the basket is found as %d %s, want %s", whole.status, whole.text, sold.text)
		}
		for _, part := range []string{number[:8], number[:len(number)-1], number + "-2", strings.ToUpper(number), number + "-"} {
			should.Be(t, a.get(t, "/orders/"+part).status, http.StatusNotFound, "a basket is found by …, a part of its number", part)
		}
		for query, body := range map[string]string{
			"":                                   `{"lines": [{"goods_id": 1}, {"goods_id": 2}, {"goods_id": 3}]}`,
			"lines=2:1,1:1,3":                    "",
			"group=true&strategy=sql-optimistic": `{"lines": "3,1:7"}`,
		} {
			a.order(t, query, body).is(t, "insufficient-stock", "goods_id", 3.0)
			a.left(t, map[int64]int64{1: 7, 2: 4, 3: 0})
		}
	})
}

func TestABasketThatIsNotOneNamesItsField(t *testing.T) {
	a := serveSQLite(t)
	many := strings.Repeat(`{"goods_id": 1}, `, 40)
	for body, status := range map[string]int{
		`{}`: 400, `{"lines": []}`: 400, `{"lines": null}`: 400, `{"lines": {"goods_id": 1}}`: 400, `{"lines": 1}`: 400,
		`{"lines": [{"goods_id": 0}]}`: 400, `{"lines": [{"goods_id": 1, "quantity": 0}]}`: 400, `{"lines": [{"goods_id": 1, "colour": 1}]}`: 400,
		`{"lines": [{"quantity": 1}]}`: 400, `{"lines": [{"goods_id": "1"}]}`: 400, `{"lines": "1:"}`: 400, `{"lines": "1,,2"}`: 400,
		`{"lines": "1:0"}`: 400, `{"lines": "1:-5"}`: 400, `{"lines": "1:5,1:-3"}`: 400,
		`{"lines": [{"goods_id": 2, "goods_id": 1}]}`: 400, `{"lines": [{"Goods_ID": 1}]}`: 400, `{"lines": [{"goods_id": 1, "quantity": null}]}`: 400,
		`{"lines": [null]}`: 400, `{"lines": [[1]]}`: 400, `{"lines": [{"goods_id": [1]}]}`: 400,
		fmt.Sprintf(`{"lines": [{"goods_id": 1, "quantity": %d}, {"goods_id": 1}]}`, int64(stock.MaxQuantity)):       400,
		fmt.Sprintf(`{"lines": [{"goods_id": 404, "quantity": %d}, {"goods_id": 404}]}`, int64(stock.MaxQuantity)-1): 404, // as much as there may be
		`{"lines": [` + many + `{"goods_id": 1, "quantity": 9223372036854775807}]}`:                                  400,
		`{"lines": "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33"}`:     400,
		`{"lines": [{"goods_id": 1}, {"goods_id": 404}]}`:                                                            404,
		`{"lines": "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32"}`:        404, // as many as there may be
	} {
		if got := a.order(t, "", body); got.status != status || status == 400 && got.field() != "lines" {
			t.Errorf("%s is answered with %d %s", body, got.status, got.text)
		}
	}
	a.order(t, "", `{"goods_id": [1]}`).is(t, "invalid-request")                                  // a list where none is wanted
	a.order(t, "", `{"lines": [`+strings.TrimSuffix(many, ", ")+`]}`).is(t, "insufficient-stock") // 40 of 10
	a.left(t, map[int64]int64{1: 10})
}

// A basket is sold in the mode that it asks for, as a purchase is.
func TestABasketIsSoldInTheModeThatItAsksFor(t *testing.T) {
	a := serveSQLite(t)
	for _, fence := range []bool{true, false} {
		before := a.claimed(t, "/goods/1")
		got := a.order(t, fmt.Sprint("strategy=sql-insert-lock&lines=1&fence=", fence), "")
		if got.status != http.StatusCreated || !strings.Contains(got.text, `"strategy":"sql-insert-lock"`) || a.claimed(t, "/goods/1") > before != fence {
			t.Errorf("with fence=%v it is answered with %d %s, and the fence is %g after %g", fence, got.status, got.text, a.claimed(t, "/goods/1"), before)
		}
	}
}

// A key of a verified buyer is its own, of a basket as of a purchase.
func TestTheBasketOfAVerifiedBuyerIsUnderItsOwnKey(t *testing.T) {
	a := serveSQLite(t)
	numbers := make(map[any]bool)
	for _, name := range []string{"ann", "bob"} {
		of := a.with(t, verified(buyer.Buyer{ID: name}))
		sold := of.order(t, "lines=1:2", "", "Idempotency-Key", "k")
		again, found := of.order(t, "lines=1:2", "", "Idempotency-Key", "k"), of.get(t, "/orders?request_id=k")
		if sold.status != http.StatusCreated || again.text != sold.text || found.text != sold.text {
			t.Errorf("%s is answered with %s, again with %s, and finds %d %s", name, sold.text, again.text, found.status, found.text)
		}
		numbers[sold.body["order_id"]] = true
	}
	should.Be(t, len(numbers), 2, "two buyers have the baskets … under one key", numbers)
	a.left(t, map[int64]int64{1: 6})
}

// A token for one item buys no basket with another one.
func TestATokenForOneItemBuysNoOther(t *testing.T) {
	a := serveItems(t, lab.Database(t, servers.SQLite), map[int64]int64{2: 5}).with(t, verified(buyer.Buyer{ID: "ann", GoodsID: 1}))
	for lines, problem := range map[string]string{"1": "", "1,1:2": "", "1,2": "token-bound", "2,1": "token-bound", "2": "token-bound"} {
		a.order(t, "lines="+lines, "").is(t, problem)
	}
	a.left(t, map[int64]int64{1: 6, 2: 5})
}

// Whatever was bought, the answer names the key to find out with.
func TestAnUnknownOutcomeOfEachKindOfPurchaseNamesItsKey(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveEntries(t, d, lab.Locks(t, d), append(strategy.Registry(), failingEntry()))
	for _, path := range []string{"/deduct?goods_id=1", "/reservations?goods_id=1", "/orders?lines=1"} {
		path += "&strategy=failing&user_id=outcome-unknown"
		a.post(t, path, "Idempotency-Key", "mine").is(t, "outcome-unknown", "request_id", "mine")
		got := a.post(t, path)
		if key, _ := got.body["request_id"].(string); got.problem() != "outcome-unknown" || len(key) < 16 {
			t.Errorf("%s without a key is answered with %d %s", path, got.status, got.text)
		}
	}
}

// timed is a strategy that sells as another one does, whose times are known.
type timed struct {
	strategy.Strategy

	deadlines *[]time.Time
}

func (s timed) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	deadline, _ := ctx.Deadline()
	*s.deadlines = append(*s.deadlines, deadline)
	outcomes, err := s.Strategy.Deduct(ctx, goodsID, batch)
	for i := range outcomes {
		outcomes[i].Wait, outcomes[i].Hold = 1500*time.Microsecond, 20*time.Millisecond
	}
	return outcomes, err
}

// serveTimed serves a replica that has a timed strategy.
func serveTimed(t *testing.T) (a api, deadlines *[]time.Time) {
	t.Helper()
	d := lab.Database(t, servers.SQLite)
	entry := strategy.Registry()[slices.IndexFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name == "sql-conditional" })]
	deadlines = new([]time.Time)
	sells := entry.New
	entry.Name, entry.New = "timed", func(d strategy.Deps) strategy.Strategy { return timed{sells(d), deadlines} }
	return serveEntries(t, d, lab.Locks(t, d), append(strategy.Registry(), entry)), deadlines
}

// deduct.timeout bounds a purchase of each kind, also that of a client that waits for ever: a basket as a whole.
func TestAPurchaseHasATimeLimit(t *testing.T) {
	a, deadlines := serveTimed(t)
	must.Do(t, a.store.CreateGoods(t.Context(), 2, 5, "item 2"))
	for path, lines := range map[string]int{"/deduct?goods_id=1": 1, "/reservations?goods_id=1": 1, "/orders?lines=1,2": 2} {
		*deadlines = nil
		a.post(t, path+"&strategy=timed").is(t, "")
		if each := *deadlines; len(each) != lines || each[0].IsZero() || !each[0].Equal(each[lines-1]) || time.Until(each[0]) > 5*time.Second {
			t.Errorf("%s may take until %v", path, each)
		}
	}
}

// The rate of a buyer counts baskets, and not their lines.
func TestABasketCountsOnceForTheRateOfItsBuyer(t *testing.T) {
	a := serveItems(t, lab.Database(t, servers.SQLite), map[int64]int64{2: 5, 3: 5}).with(t, func(o *handler.Options) {
		o.Limits.User = rate.Rate{PerSecond: onceOnly, Burst: 2}
	})
	for i, want := range []int{http.StatusCreated, http.StatusCreated, http.StatusTooManyRequests} {
		got := a.order(t, "", `{"lines": "1,2,3", "user_id": "ann"}`)
		if got.status != want || want == http.StatusTooManyRequests && got.problem() != "rate-limited" {
			t.Errorf("basket %d is answered with %d %s, want %d", i+1, got.status, got.text, want)
		}
	}
	a.left(t, map[int64]int64{1: 8, 2: 3, 3: 3})
}

// A line that was held before costs nothing, and so does a line that finds no slot: but each try of another line
// counts.
func TestABasketThatIsNotSoldCountsForTheRateOfItsBuyer(t *testing.T) {
	a := serveItems(t, lab.Database(t, servers.SQLite), map[int64]int64{2: 1}).with(t, func(o *handler.Options) {
		o.Limits.User = rate.Rate{PerSecond: onceOnly, Burst: 1}
	})
	for _, want := range []string{"insufficient-stock", "rate-limited", "rate-limited"} {
		a.order(t, "", `{"lines": "1,2:2", "user_id": "ann"}`, "Idempotency-Key", "k").is(t, want)
	}
	a.left(t, map[int64]int64{1: 10, 2: 1})
}

// What is shed at once has cost nothing. A basket that is shed at a later line has held those before
// it, so that a flood of such baskets would sell the other items out for a while.
func TestABasketThatIsShedCountsWhereItHasHeldLines(t *testing.T) {
	const most = 45 // more than serveFlooded sends at once
	for name, limit := range map[string]func(*handler.Limits){
		"its buyer":   func(l *handler.Limits) { l.User = rate.Rate{PerSecond: onceOnly, Burst: 1} },
		"its address": func(l *handler.Limits) { l.Address = rate.Rate{PerSecond: onceOnly, Burst: most} },
	} {
		t.Run(name, func(t *testing.T) {
			a, release := serveFlooded(t, 3, func(o *handler.Options) {
				o.MaxDeductions = 24
				limit(&o.Limits)
			})
			defer release()
			for range most {
				if got := a.order(t, "lines=3&user_id=ann", ""); got.problem() != "busy" || got.body["goods_id"] != 3.0 {
					t.Fatalf("beyond the slots of its first item a basket is answered with %d %s", got.status, got.text)
				}
			}
			for i := range most + 1 {
				got := a.order(t, "", `{"lines": "1,3", "user_id": "ann"}`)
				if got.problem() == "rate-limited" && i > 0 {
					return
				}
				if got.problem() != "busy" || got.body["goods_id"] != 3.0 {
					t.Fatalf("beyond the slots of its second item a basket is answered with %d %s", got.status, got.text)
				}
			}
			t.Errorf("%d baskets were shed after their first line, and the rate was not used up", most+1)
		})
	}
}
