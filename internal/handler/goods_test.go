package handler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
)

func TestABuyerIsLimitedPerItem(t *testing.T) {
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 10, "per_user": 3}`, http.StatusCreated).is(t, "", "per_user", 3.0)
	a.get(t, "/goods/2").is(t, "", "per_user", 3.0)
	got := a.buy(t, "goods_id=2&quantity=2&user_id=a")
	must.Be(t, got.status, http.StatusOK, "within the limit the answer is", got.text)
	got = a.buy(t, "goods_id=2&quantity=2&user_id=a")
	got.is(t, "user-limit", "per_user", 3.0, "has", 2.0)
	should.Be(t, got.header.Get("Retry-After"), "", "waiting does not help")
	a.buy(t, "goods_id=2").names(t, "user_id")
	a.asAdmin(t, http.MethodPatch, "/goods/2", `{"per_user": 4}`, http.StatusOK).is(t, "", "per_user", 4.0, "stock", 8.0)
	if got := a.asAdmin(t, http.MethodGet, "/goods/2/audit?full=true", "", http.StatusOK); got.body["clean"] != true || got.body["buyers"] == nil {
		t.Errorf("the audit is %s", got.text)
	}
	a.asAdmin(t, http.MethodPatch, "/goods/2", `{"per_user": 0}`, http.StatusOK)
	a.buy(t, "goods_id=2&quantity=8").is(t, "")
}

func TestAnItemThatSaysNoLimitHasThatOfTheConfiguration(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) {
		o.PerUser, o.Buyers, o.Log = 4, sameBuyer{ID: "u-1"}, slog.New(slog.NewTextHandler(&log, nil))
	})
	for i, c := range []struct {
		given string
		want  float64
	}{{"", 4}, {`, "per_user": 2`, 2}, {`, "per_user": 0`, 0}} {
		body := fmt.Sprintf(`{"goods_id": %d, "stock": 10%s}`, i+2, c.given)
		a.asAdmin(t, http.MethodPost, "/goods", body, http.StatusCreated).is(t, "", "per_user", c.want)
		should.Be(t, strings.Contains(log.String(), "item without a limit per buyer"), c.want == 0, "after … the log has a warning", body)
	}
}

func TestABadLimitIsNamed(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{http.MethodPost, "/goods", `{"goods_id": 3, "stock": 1, "per_user": -1}`, http.StatusBadRequest, "per_user"},
		{http.MethodPatch, "/goods/1", `{"per_user": "many"}`, http.StatusBadRequest, "per_user"},
		{http.MethodPatch, "/goods/1", `{"per_user": null}`, http.StatusBadRequest, "per_user"},
		{http.MethodPatch, "/goods/1", `{}`, http.StatusBadRequest, "per_user"},
		{http.MethodPatch, "/goods/1", `{"stock": 3}`, http.StatusBadRequest, "stock"},
		{http.MethodPatch, "/goods/x", `{"per_user": 3}`, http.StatusBadRequest, "goods_id"},
		{http.MethodPatch, "/goods/9", `{"per_user": 3}`, http.StatusNotFound, ""},
		{http.MethodPatch, "/goods/1", `{"max_quantity": 0}`, http.StatusBadRequest, "max_quantity"},
		{http.MethodPost, "/goods", `{"goods_id": 3, "stock": 1, "max_quantity": 0}`, http.StatusBadRequest, "max_quantity"},
	} {
		a.asAdmin(t, c.method, c.path, c.body, c.status).names(t, c.field)
	}
	send(t, request(t, http.MethodPatch, a.public.URL+"/goods/1", jsonType, `{"per_user": 3}`)).is(t, "method-not-allowed")
}

// What is allowed is allowed to its edge, and names its field beyond.
func TestTheLargestValueOfAFieldIsAllowed(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct {
		field, method, path string
		largest, more       string
		status              int
	}{
		{"per_user", http.MethodPatch, "/goods/1?per_user=", "1000000000", "1000000001", http.StatusOK},
		{"max_quantity", http.MethodPatch, "/goods/1?max_quantity=", "1000000", "1000001", http.StatusOK},
		{"stock", http.MethodPost, "/goods?goods_id=2&stock=", "1000000000000", "1000000000001", http.StatusCreated},
		{"goods_id", http.MethodPost, "/goods?stock=1&goods_id=", "9223372036854775807", "9223372036854775808", http.StatusCreated},
		{"quantity", http.MethodPost, "/goods/2/restock?quantity=", "1000000000000", "1000000000001", http.StatusConflict},
		{"limit", http.MethodGet, "/orders?limit=", "1000", "1001", http.StatusOK},
		{"reader", http.MethodGet, "/orders?reader=", strings.Repeat("é", 64), strings.Repeat("é", 65), http.StatusOK},
		{"request_id", http.MethodGet, "/orders?request_id=", strings.Repeat("k", 128), strings.Repeat("k", 129), http.StatusNotFound},
		{"payment_reference", http.MethodPost, "/reservations/none/confirm?payment_reference=", strings.Repeat("p", 128), strings.Repeat("p", 129), http.StatusNotFound},
		{"reason", http.MethodPut, "/strategies/mutex?enabled=false&reason=", strings.Repeat("r", 200), strings.Repeat("r", 201), http.StatusOK},
	} {
		a.asAdmin(t, c.method, c.path+url.QueryEscape(c.largest), "", c.status)
		a.asAdmin(t, c.method, c.path+url.QueryEscape(c.more), "", http.StatusBadRequest).names(t, c.field)
	}
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"per_user": 0, "max_quantity": null}`, http.StatusOK)
	for query, problem := range map[string]string{"quantity=1000000": "insufficient-stock", "strategy=" + strings.Repeat("s", 64): "unknown-strategy", "strategy=" + strings.Repeat("s", 65): "invalid-request"} {
		a.buy(t, "goods_id=1&"+query).is(t, problem)
	}
}

func TestReadingAnItem(t *testing.T) {
	a := serveSQLite(t)
	a.buy(t, "goods_id=1&quantity=3")
	a.get(t, "/goods/1").is(t, "", "stock", 7.0, "goods_id", 1.0)
	audit := a.get(t, "/goods/1/audit")
	for field, wanted := range map[string]any{
		"stock": 7.0, "initial": 10.0, "sold": 3.0, "oversold": 0.0, "lost": 0.0, "clean": true,
	} {
		should.Be(t, audit.body[field], wanted, "… is …", field, audit.text)
	}
	for path, wanted := range map[string]int{ // an item has one path, which may be escaped
		"/goods/2": 404, "/goods/2/audit": 404, "/goods/x": 400, "/goods/0": 400, "/goods/-1/audit": 400, "/nothing": 404,
		"/goods/%31": 200, "/goods/01": 400, "/goods/+1": 400, "/goods/%2B1": 400, "/goods/01/audit": 400,
	} {
		if got := a.get(t, path); got.status != wanted || (got.problem() == "") != (wanted == 200) {
			t.Errorf("%s is answered with %d %s, want %d", path, got.status, got.text, wanted)
		}
	}
}

func TestALookShowsALimitThatIsBeingSet(t *testing.T) {
	a := serve(t, lab.Database(t, servers.MariaDB))
	var seen answer
	must.Do(t, a.store.InTx(t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
			return err
		}
		soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		r := request(t, http.MethodPatch, a.admin.URL+"/goods/1", jsonType, `{"per_user": 2}`).WithContext(soon)
		r.Header.Set("Authorization", "Bearer "+token)
		if response, err := http.DefaultClient.Do(r); err == nil {
			t.Errorf("a limit of a locked item is answered with %d", response.StatusCode)
			return response.Body.Close()
		}
		seen = a.get(t, "/goods/1")
		return nil
	}))
	if !strings.Contains(seen.text, `"changes":[{"kind":"limit","state":"in-progress","since":"`) || !strings.Contains(seen.text, `,"per_user":2}]`) {
		t.Errorf("the item is %s, want a limit of 2 in progress", seen.text)
	}
	isSet := func() bool {
		got := a.get(t, "/goods/1")
		return got.body["changes"] == nil && got.body["per_user"] == 2.0
	}
	should.Be(t, labtest.Eventually(20*time.Second, isSet), true, "the item is …, want a limit of 2", a.get(t, "/goods/1").text)
}

func TestTheAdminCreatesAndRestocks(t *testing.T) {
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 0}`, http.StatusCreated)
	a.asAdmin(t, http.MethodPost, "/goods/2/restock", `{"quantity": 5}`, http.StatusOK).is(t, "", "stock", 5.0)
	for _, c := range []struct {
		path, body string
		status     int
		field      string
	}{
		{"/goods", `{"goods_id": 2, "stock": 1}`, http.StatusConflict, ""},
		{"/goods", `{"goods_id": 3}`, http.StatusBadRequest, "stock"},
		{"/goods", `{"goods_id": 3, "stock": -1}`, http.StatusBadRequest, "stock"},
		{"/goods/2/restock", `{"quantity": 0}`, http.StatusBadRequest, "quantity"},
		{"/goods/9/restock", `{"quantity": 1}`, http.StatusNotFound, ""},
	} {
		a.asAdmin(t, http.MethodPost, c.path, c.body, c.status).names(t, c.field)
	}
}

func TestTheAdminCorrectsTheStock(t *testing.T) {
	a := serveSQLite(t) // item 1 has 10
	a.buy(t, "goods_id=1&quantity=2")
	a.asAdmin(t, http.MethodPost, "/goods/1/correct", `{"by": -5, "reason": "water damage"}`, http.StatusOK).is(t, "", "stock", 3.0, "corrected", -5.0)
	a.asAdmin(t, http.MethodPost, "/goods/1/correct", `{"counted": 4, "reason": "inventory"}`, http.StatusOK).is(t, "", "stock", 4.0, "corrected", 1.0)
	below := a.asAdmin(t, http.MethodPost, "/goods/1/correct", `{"by": -5, "reason": "x"}`, http.StatusConflict)
	below.is(t, "below-zero", "stock", 4.0, "held", 0.0, "sold", 2.0)
	for body, field := range map[string]string{
		`{"reason": "x"}`: "by", `{"by": 0, "reason": "x"}`: "by", `{"by": 1}`: "reason", `{"by": 1, "reason": ""}`: "reason",
		`{"by": 1, "counted": 1, "reason": "x"}`: "by", `{"counted": -1, "reason": "x"}`: "counted", `{"by": -1000000000001, "reason": "x"}`: "by",
	} {
		a.asAdmin(t, http.MethodPost, "/goods/1/correct", body, http.StatusBadRequest).names(t, field)
	}
	steps := a.asAdmin(t, http.MethodGet, "/orders?goods_id=1&steps=true", "", http.StatusOK)
	if !strings.Contains(steps.text, `"kind":"correct"`) || !strings.Contains(steps.text, `"reason":"inventory","counted":4`) || strings.Count(steps.text, `"counted"`) != 1 {
		t.Errorf("the steps are %s, want both corrections with their reasons", steps.text)
	}
	a.asAdmin(t, http.MethodGet, "/goods/1/audit", "", http.StatusOK).is(t, "", "corrected", -4.0, "clean", true)
}

// An item that exists keeps its units, and what a line does not say.
func TestAnImportSaysWhatCameOfEachLine(t *testing.T) {
	a := serveSQLite(t) // item 1 has 10
	a.buy(t, "goods_id=1&quantity=2")
	put := func(lines string) (results string) {
		t.Helper()
		got := a.asAdmin(t, http.MethodPost, "/goods/import", `{"lines": [`+lines+`]}`, http.StatusOK)
		var answer struct {
			Lines []struct {
				Line    int            `json:"line"`
				Result  string         `json:"result"`
				Item    map[string]any `json:"item"`
				Problem map[string]any `json:"problem"`
			} `json:"lines"`
		}
		must.Do(t, json.Unmarshal([]byte(got.text), &answer))
		for i, line := range answer.Lines {
			if line.Line != i+1 || (line.Problem != nil) != (line.Result == "failed") || (line.Item != nil) == (line.Problem != nil) {
				t.Errorf("line %d is answered with %+v", i+1, line)
			}
			results += line.Result + ";"
		}
		return results
	}
	const two = `{"goods_id": 21, "stock": 5, "per_user": 2, "strategy": "mutex"}`
	for _, step := range []struct{ lines, want string }{
		{`{"goods_id": 1, "stock": 500}, ` + two, "same;created;"},
		{`{"goods_id": 1, "stock": 500}, ` + two, "same;same;"},
		{`{"goods_id": 1, "stock": 1, "group": true}, {"goods_id": 21, "stock": 5, "per_user": 3}`, "changed;changed;"},
		{`{"goods_id": 22, "stock": -1}, {"goods_id": 23}, {"stock": 1}, {"goods_id": 24, "stock": 1, "colour": "red"}, {"goods_id": 25, "stock": 1, "strategy": "hope"}, 7`, strings.Repeat("failed;", 6)},
		{`{"goods_id": 26, "stock": 1}, {"goods_id": 26, "stock": 2}`, "created;failed;"},
	} {
		should.Be(t, put(step.lines), step.want, step.lines)
	}
	a.asAdmin(t, http.MethodPost, "/goods/import", `{"lines": []}`, http.StatusBadRequest).names(t, "lines")
	var listed []string
	for after := 0.0; ; {
		page := a.asAdmin(t, http.MethodGet, fmt.Sprintf("/goods?limit=2&after=%.0f", after), "", http.StatusOK)
		var answer struct {
			Goods []map[string]any `json:"goods"`
			Next  float64          `json:"next"`
		}
		must.Do(t, json.Unmarshal([]byte(page.text), &answer))
		if after = answer.Next; len(answer.Goods) == 0 {
			break
		}
		for _, i := range answer.Goods {
			listed = append(listed, fmt.Sprintf("%v has %v, %v each, %v %v", i["goods_id"], i["stock"], i["per_user"], i["strategy"], i["group"]))
		}
	}
	should.Equal(t, listed, []string{"1 has 8, 0 each, <nil> true", "21 has 5, 3 each, mutex <nil>", "26 has 1, 0 each, <nil> <nil>"}, "the items are")
}

func TestTheAdminClosesASale(t *testing.T) {
	a := serveSQLite(t) // item 1 has 10
	a.buy(t, "goods_id=1&quantity=2")
	for range 2 {
		closed := a.asAdmin(t, http.MethodPost, "/goods/1/close", "", http.StatusOK)
		audit, _ := closed.body["audit"].(map[string]any)
		if audit["stock"] != 8.0 || audit["sold"] != 2.0 || audit["clean"] != true || audit["pending"] != 0.0 || closed.body["ends_at"] == nil {
			t.Errorf("closed with %s", closed.text)
		}
	}
	a.buy(t, "goods_id=1").is(t, "sale-closed")
	a.post(t, "/reservations?goods_id=1").is(t, "sale-closed")
	a.asAdmin(t, http.MethodPost, "/goods/404404/close", "", http.StatusNotFound).is(t, "unknown-goods")
}

func TestTheAdminSetsTheTimesOfASale(t *testing.T) {
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 31, "stock": 5, "starts_at": "2099-01-01T08:00:00+08:00"}`, http.StatusCreated)
	early := a.buy(t, "goods_id=31")
	early.is(t, "sale-not-started")
	if wait, err := strconv.ParseFloat(early.header.Get("Retry-After"), 64); err != nil || early.body["starts_in"] == nil || wait < 2e9 {
		t.Errorf("before the start, the answer is %s, and Retry-After %q", early.text, early.header.Get("Retry-After"))
	}
	if got := a.asAdmin(t, http.MethodGet, "/goods/31", "", http.StatusOK); got.body["starts_at"] != "2099-01-01T00:00:00Z" || got.body["now"] == nil || got.body["stock"] != 5.0 || got.body["availability"] != "not-started" || got.body["available"] != false {
		t.Errorf("the item is %s", got.text)
	}
	for body, field := range map[string]string{
		`{"starts_at": "tomorrow"}`: "starts_at", `{"ends_at": 7}`: "ends_at", `{"ends_at": "1999-01-01T00:00:00Z"}`: "ends_at",
		`{"starts_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-01T00:00:00Z"}`: "ends_at",
		`{"ends_at": "2098-01-01T00:00:00Z", "strategy": "mutex"}`:                 "ends_at", // before the start that is set
	} {
		a.asAdmin(t, http.MethodPatch, "/goods/31", body, http.StatusBadRequest).names(t, field)
	}
	a.asAdmin(t, http.MethodGet, "/goods/31", "", http.StatusOK).is(t, "", "strategy", nil)
	a.asAdmin(t, http.MethodPost, "/goods/31/close", "", http.StatusOK)
	a.buy(t, "goods_id=31").is(t, "sale-closed") // it will not start
	a.asAdmin(t, http.MethodPatch, "/goods/31", `{"starts_at": "2098-01-01T00:00:00Z"}`, http.StatusBadRequest).names(t, "ends_at")
	a.asAdmin(t, http.MethodPatch, "/goods/31", `{"starts_at": null, "ends_at": "2098-01-01T00:00:00Z"}`, http.StatusOK)
	a.buy(t, "goods_id=31").is(t, "")
	a.asAdmin(t, http.MethodPatch, "/goods/31", `{"ends_at": "2020-01-01T00:00:00Z"}`, http.StatusOK)
	a.buy(t, "goods_id=31").is(t, "sale-closed")
	same := a.asAdmin(t, http.MethodPost, "/goods/import", `{"lines": [{"goods_id": 31, "stock": 5, "ends_at": "2020-01-01T00:00:00Z"}]}`, http.StatusOK)
	should.Contain(t, same.text, `"result":"same"`)
}

func TestAnItemIsAvailableWhileUnitsAreLeft(t *testing.T) {
	for _, reveal := range []bool{true, false} {
		a := serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = reveal })
		for _, left := range []bool{true, false} {
			a.get(t, "/goods/1").is(t, "", "available", left)
			a.buy(t, "goods_id=1&quantity=10")
		}
		a.get(t, "/goods/2").is(t, "unknown-goods")
	}
}

func (a api) assertTooMany(t *testing.T, query, most string) {
	t.Helper()
	got := a.buy(t, query)
	if got.status != http.StatusBadRequest || got.field() != "quantity" || !strings.Contains(got.text, "must be a whole number from 1 to "+most+",") {
		t.Errorf("%s is answered with %d %s, want at most %s", query, got.status, got.text, most)
	}
}

func TestNoKindOfPurchaseHasMoreThanTheMaximum(t *testing.T) {
	a := serveSQLite(t)
	a.options.Catalogue.SetMaxQuantity(3)
	for _, path := range []string{"/reservations?goods_id=1&quantity=4", "/orders?lines=1:4", "/orders?lines=1:2,1:2"} {
		a.post(t, path).names(t, "quantity")
	}
	a.post(t, "/orders?lines=1:1,1:2").is(t, "")
	a.left(t, map[int64]int64{1: 7})
}

func TestAPurchaseHasAtMostTheMaximum(t *testing.T) {
	a := serveSQLite(t)
	a.options.Catalogue.SetMaxQuantity(3)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 10, "max_quantity": 5}`, http.StatusCreated)
	a.assertTooMany(t, "goods_id=1&quantity=4", "3")
	a.assertTooMany(t, "goods_id=2&quantity=6", "5")
	a.buy(t, "goods_id=1&quantity=3").is(t, "")
	a.buy(t, "goods_id=2&quantity=5").is(t, "")
	a.get(t, "/goods/2").is(t, "", "max_quantity", 5.0, "stock", 5.0)
	a.asAdmin(t, http.MethodPatch, "/goods/2", `{"max_quantity": 1}`, http.StatusOK)
	a.assertTooMany(t, "goods_id=2&quantity=2", "1")
	a.asAdmin(t, http.MethodPatch, "/goods/2", `{"strategy": "mutex"}`, http.StatusOK)
	a.assertTooMany(t, "goods_id=2&quantity=2", "1") // what is not named stays
	a.asAdmin(t, http.MethodPatch, "/goods/2", `{"max_quantity": null}`, http.StatusOK).is(t, "", "max_quantity", nil, "strategy", "mutex")
	a.assertTooMany(t, "goods_id=2&quantity=4", "3")
}

func TestAPurchaseOfTooMuchUsesNoRate(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Limits.User = rate.Rate{PerSecond: 0.001, Burst: 1} })
	a.options.Catalogue.SetMaxQuantity(3)
	for range 5 {
		a.assertTooMany(t, "goods_id=1&quantity=4&user_id=u", "3")
	}
	a.buy(t, "goods_id=1&quantity=3&user_id=u").is(t, "")
}

// A full audit has a time limit of its own, and the other one that of every request.
func TestAFullAuditHasATimeLimitOfItsOwn(t *testing.T) {
	a := serveSQLite(t)
	hurried := a.withAdmin(t, func(o *handler.Options) { o.Timeout, o.AuditTimeout = time.Nanosecond, time.Minute })
	hurried.asAdmin(t, http.MethodGet, "/goods/1/audit?full=true", "", http.StatusOK)
	hurried.asAdmin(t, http.MethodGet, "/goods/1/audit", "", http.StatusServiceUnavailable)
	hurried = a.withAdmin(t, func(o *handler.Options) { o.Timeout, o.AuditTimeout = time.Minute, time.Nanosecond })
	hurried.asAdmin(t, http.MethodGet, "/goods/1/audit?full=true", "", http.StatusServiceUnavailable)
	hurried.asAdmin(t, http.MethodGet, "/goods/1/audit", "", http.StatusOK)
}

// deadlined is a writer with a deadline.
type deadlined struct {
	*httptest.ResponseRecorder

	deadline time.Time
}

func (d *deadlined) SetWriteDeadline(at time.Time) error { d.deadline = at; return nil }

// The server's own limit is too short for the answer to a full audit.
func TestAFullAuditExtendsTheTimeToAnswer(t *testing.T) {
	a := serveSQLite(t)
	a.options.Timeout, a.options.AuditTimeout = time.Minute, time.Hour
	admin := handler.Admin(a.options, admintoken.Single(token))
	for path, extended := range map[string]bool{"/goods/1/audit?full=true": true, "/goods/1/audit": false} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+token)
		w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
		admin.ServeHTTP(w, r)
		if w.Code != http.StatusOK || (time.Until(w.deadline) > 59*time.Minute) != extended {
			t.Errorf("%s is answered with %d, and may be sent until %s", path, w.Code, w.deadline)
		}
	}
}

// Every row of the ledger is read for the admin alone: it takes a while.
func TestTheAdminMayRequestAFullAudit(t *testing.T) {
	a := serveSQLite(t)
	a.buy(t, "goods_id=1")
	for _, c := range []struct {
		by, query string
		want      int
	}{
		{a.public.URL, "", http.StatusOK},
		{a.public.URL, "?full=true", http.StatusBadRequest},
		{a.admin.URL, "", http.StatusOK},
		{a.admin.URL, "?full=true", http.StatusOK},
		{a.admin.URL, "?full=very", http.StatusBadRequest},
		{a.admin.URL, "?deep=true", http.StatusBadRequest},
	} {
		asked := request(t, http.MethodGet, c.by+"/goods/1/audit"+c.query, "", "")
		asked.Header.Set("Authorization", "Bearer "+token)
		got := send(t, asked)
		if got.status != c.want || c.want == http.StatusOK && got.body["sold"] != 1.0 {
			t.Errorf("audit%s is answered with %d %s, want %d", c.query, got.status, got.text, c.want)
		}
	}
	a.asAdmin(t, http.MethodGet, "/goods/2/audit", "", http.StatusNotFound)
	a.asAdmin(t, http.MethodGet, "/goods/2/audit?full=true", "", http.StatusNotFound)
}

// page is a page of a shop, which knows the tag of its last answer.
type page struct {
	api

	tag string
}

func (p *page) ask(t *testing.T, query string, want int) answer {
	t.Helper()
	r := request(t, http.MethodGet, p.public.URL+"/goods/1"+query, "", "")
	r.Header.Set("If-None-Match", p.tag)
	got := send(t, r)
	should.Be(t, got.status, want, "with the tag … is answered", query, p.tag, got.text)
	p.tag = got.header.Get("ETag")
	return got
}

// The number of units is concealed: a purchase that changes no word changes no tag. The answer may be kept for a second.
func TestAPageIsShownAWordForWhatIsLeft(t *testing.T) {
	p := &page{api: serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = false })}
	p.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 2}`, http.StatusOK)
	for _, c := range []struct {
		buys int
		want int
		word any
	}{{0, http.StatusOK, "in-stock"}, {1, http.StatusNotModified, nil}, {1, http.StatusOK, "few-left"}, {10, http.StatusOK, "sold-out"}} {
		for range c.buys {
			p.buy(t, "goods_id=1").is(t, "")
		}
		got := p.ask(t, "", c.want)
		should.Be(t, got.body["availability"], c.word, "the answer is", got.text)
		should.Be(t, got.header.Get("Cache-Control"), "public, max-age=1, stale-while-revalidate=1", "of", got.text)
	}
	p.get(t, "/goods/1?wait=21s").names(t, "wait")
}

// It waits for as long as it asks, or until the answer is another one, or the replica is about to stop.
func TestAPageWaitsForAChange(t *testing.T) {
	var stopping atomic.Bool
	p := &page{api: serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal, o.Stopping, o.Timeout = false, stopping.Load, time.Second })}
	waits := func(query string, want int, least, most time.Duration) answer {
		t.Helper()
		began := time.Now()
		got := p.ask(t, query, want)
		if took := time.Since(began); took < least || took > most {
			t.Errorf("%s is answered after %s", query, took)
		}
		return got
	}
	waits("?wait=20s", http.StatusOK, 0, 5*time.Second) // it knows none
	waits("?wait=1500ms", http.StatusNotModified, 1500*time.Millisecond, 10*time.Second)
	time.AfterFunc(time.Second, func() { p.buy(t, "goods_id=1&quantity=10") })
	got := waits("?wait=20s", http.StatusOK, time.Second, 10*time.Second)
	should.Be(t, got.body["availability"], any("sold-out"), "the answer is", got.text)
	should.Be(t, got.header.Get("Cache-Control"), "no-store", "of one that waits")
	p.asAdmin(t, http.MethodPatch, "/goods/1", fmt.Sprintf(`{"ends_at": %q}`, time.Now().Add(2*time.Second).Format(time.RFC3339Nano)), http.StatusOK)
	waits("?wait=20s", http.StatusOK, 0, 10*time.Second) // what is shown has an end now
	got = waits("?wait=20s", http.StatusOK, 0, 10*time.Second)
	should.Be(t, got.body["availability"], any("ended"), "once that has come, the answer is", got.text)
	time.AfterFunc(time.Second, func() { stopping.Store(true) })
	waits("?wait=20s", http.StatusNotModified, time.Second, 10*time.Second)
}
