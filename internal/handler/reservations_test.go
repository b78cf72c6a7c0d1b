package handler_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// reserve reserves, and wants a status.
func (a api) reserve(t *testing.T, query string, wanted int, header ...string) (got answer, number string) {
	t.Helper()
	got = a.post(t, "/reservations?"+query, header...)
	must.Be(t, got.status, wanted, "a reservation of", query, "is answered with", got.text)
	number, _ = got.body["reservation_id"].(string)
	return got, number
}

func (a api) post(t *testing.T, path string, header ...string) answer {
	t.Helper()
	return a.as(t, http.MethodPost, path, header...)
}

func (a api) audit(t *testing.T, wanted map[string]float64) {
	t.Helper()
	got := a.asAdmin(t, http.MethodGet, "/goods/1/audit?full=true", "", http.StatusOK)
	for field, units := range wanted {
		if got.body[field] != units || got.body["clean"] != true {
			t.Errorf("%s of the audit is not %v: %s", field, units, got.text)
		}
	}
}

func TestABuyerHoldsAsMuchAsItMay(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.MaxHeld = 3 })
	_, number := a.reserve(t, "goods_id=1&quantity=2&user_id=u-1", http.StatusCreated)
	for _, path := range []string{"/reservations?goods_id=1&quantity=2&user_id=u-1", "/orders?lines=1:2&user_id=u-1"} {
		got := a.post(t, path)
		if got.status != http.StatusConflict || got.problem() != "hold-limit" || got.body["max_held"] != 3.0 || got.body["has"] != 2.0 || got.header.Get("Retry-After") != "" {
			t.Errorf("%s beyond the limit is answered with %d %s", path, got.status, got.text)
		}
		if got = a.with(t, func(o *handler.Options) { o.Reveal = false }).post(t, path); got.body["has"] != nil || got.body["max_held"] != 3.0 {
			t.Errorf("%s beyond the limit says %s to a client that may be another buyer", path, got.text)
		}
	}
	a.post(t, "/reservations?goods_id=1").names(t, "user_id")
	a.reserve(t, "goods_id=1&quantity=3&user_id=u-2", http.StatusCreated)
	a.audit(t, map[string]float64{"stock": 5, "held": 5})
	got := a.post(t, "/reservations/"+number+"/release")
	must.Be(t, got.status, http.StatusOK, "a release is answered with", got.text)
	a.reserve(t, "goods_id=1&quantity=3&user_id=u-1", http.StatusCreated)
}

func TestAReservationIsPaidOrGivenBack(t *testing.T) {
	a := serveSQLite(t)
	held, paid := a.reserve(t, "goods_id=1&quantity=2&user_id=u-1&ttl=60", http.StatusCreated)
	_, released := a.reserve(t, "goods_id=1&quantity=3&strategy=naive&group=true", http.StatusCreated)
	begun := must.Get(time.Parse(time.RFC3339Nano, fmt.Sprint(held.body["created_at"])))(t)
	ends, err := time.Parse(time.RFC3339Nano, fmt.Sprint(held.body["expires_at"]))
	if err != nil || held.body["state"] != "held" || held.body["remaining"] != 8.0 || held.body["order_id"] != nil || held.body["payment_reference"] != nil || ends.Sub(begun).Round(time.Second) != time.Minute {
		t.Errorf("a reservation for a minute is answered with %s", held.text)
	}
	a.audit(t, map[string]float64{"stock": 5, "held": 5, "sold": 0})
	for _, again := range []string{"", "true"} {
		got := a.post(t, "/reservations/"+paid+"/confirm?payment_reference=pay-1")
		if got.status != http.StatusOK || got.body["state"] != "confirmed" || got.body["order_id"] != paid || got.body["payment_reference"] != "pay-1" || got.header.Get("Idempotency-Replayed") != again {
			t.Errorf("paid: %d %s, replayed %q", got.status, got.text, got.header.Get("Idempotency-Replayed"))
		}
	}
	for _, again := range []string{"", "true"} {
		got := a.post(t, "/reservations/"+released+"/release")
		if got.status != http.StatusOK || got.body["state"] != "released" || got.header.Get("Idempotency-Replayed") != again {
			t.Errorf("released: %d %s", got.status, got.text)
		}
	}
	a.get(t, "/orders/"+paid).is(t, "", "quantity", 2.0)
	a.get(t, "/orders/"+released).is(t, "unknown-order")
	a.asAdmin(t, http.MethodPost, "/orders/"+paid+"/return", `{"quantity": 1}`, http.StatusOK).is(t, "", "quantity", 1.0, "order_id", paid)
	a.audit(t, map[string]float64{"initial": 10, "stock": 9, "held": 0, "sold": 2, "returned": 1, "orders": 1})
}

// A TTL beyond what is configured names the field and what is allowed, and holds nothing.
func TestATTLIsBounded(t *testing.T) {
	a := serveSQLite(t)
	for _, ttl := range []string{"0", "-1", "3601", "1.5", "x"} {
		a.post(t, "/reservations?goods_id=1&ttl="+ttl).names(t, "ttl")
	}
	_, held := a.reserve(t, "goods_id=1&ttl=60", http.StatusCreated)
	a.post(t, "/reservations/"+held+"/extend?ttl=3601").names(t, "ttl")
	a.audit(t, map[string]float64{"stock": 9, "held": 1})
	for ttl, want := range map[string]time.Duration{"&ttl=1": time.Second, "&ttl=3600": time.Hour, "": 15 * time.Minute} {
		_, number := a.reserve(t, "goods_id=1"+ttl, http.StatusCreated)
		should.Be(t, must.Get(a.store.Reservation(t.Context(), number))(t).TTL, want, "held with", ttl)
	}
}

func TestAReservationIsExtendedByWhatIsAskedFor(t *testing.T) {
	a := serveSQLite(t)
	for query, want := range map[string]time.Duration{"?ttl=600": 10 * time.Minute, "": 15 * time.Minute} {
		_, number := a.reserve(t, "goods_id=1&ttl=60", http.StatusCreated)
		got := a.post(t, "/reservations/"+number+"/extend"+query)
		if again, ok := got.header["Idempotency-Replayed"]; ok { // each time from now on, and never again the same
			t.Errorf("extended by %q it says that it was so before: %q", query, again)
		}
		ends, err := time.Parse(time.RFC3339Nano, fmt.Sprint(got.body["expires_at"]))
		if err != nil || got.body["state"] != "held" || time.Until(ends) > want || time.Until(ends) < want-time.Minute {
			t.Errorf("extended by %q it is answered with %d %s, want it held for %s from now", query, got.status, got.text, want)
		}
	}
}

// The admin API is for all buyers, also where they are verified.
func TestTheAdminSeesWhatVerifiedBuyersHave(t *testing.T) {
	a := serveSQLite(t)
	ann := a.with(t, verified(buyer.Buyer{ID: "ann"}))
	bob := a.with(t, verified(buyer.Buyer{ID: "bob"})).withAdmin(t, func(*handler.Options) {})
	_, reservation := ann.reserve(t, "goods_id=1", http.StatusCreated)
	order := fmt.Sprint(ann.keyed(t, "k", "goods_id=1").body["order_id"])
	basket := fmt.Sprint(ann.order(t, "lines=1:2", "").body["order_id"])
	for _, path := range []string{"/reservations/" + reservation, "/orders/" + order, "/orders?request_id=k", "/orders/" + basket} {
		ann.get(t, path).is(t, "")
		got := bob.get(t, path)
		should.Be(t, got.status, http.StatusNotFound, "another buyer gets", path, "as", got.text)
		bob.asAdmin(t, http.MethodGet, path, "", http.StatusOK)
	}
	ann.get(t, "/reservations/"+reservation).is(t, "", "user_id", nil)
	bob.asAdmin(t, http.MethodGet, "/reservations/"+reservation, "", http.StatusOK).is(t, "", "user_id", "ann")
	bob.asAdmin(t, http.MethodPost, "/reservations/"+reservation+"/confirm", `{"payment_reference": "p"}`, http.StatusOK)
}

func TestTheAdminAloneConfirmsWhereThePublicMayNot(t *testing.T) {
	a := serveSQLite(t)
	closed := a.with(t, func(o *handler.Options) { o.PublicConfirm = false })
	_, number := closed.reserve(t, "goods_id=1", http.StatusCreated)
	closed.post(t, "/reservations/"+number+"/confirm?payment_reference=p").is(t, "not-found")
	a.asAdmin(t, http.MethodPost, "/reservations/"+number+"/confirm", `{"payment_reference": "p"}`, http.StatusOK)
}

// What a reservation has conceals what its item does.
func TestAReservationRevealsNoStock(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = false })
	got, _ := a.reserve(t, "goods_id=1", http.StatusCreated)
	for _, field := range []string{"remaining", "replica", "token", "wait_ms", "hold_ms", "user_id"} {
		should.Be(t, got.body[field], nil, "it reveals …: …", field, got.text)
	}
}
