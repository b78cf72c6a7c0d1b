package handler_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry"
)

func TestAnItemIsSoldThroughItsOwnStrategy(t *testing.T) {
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 10, "strategy": "mutex", "group": true}`, http.StatusCreated).is(t, "", "strategy", "mutex", "group", true, "fence", 0.0)
	for _, c := range []struct{ change, query, want string }{
		{"", "", "mutex"},
		{"", "&strategy=naive", "naive"},
		{`{"strategy": "sql-insert-lock", "fence": true}`, "", "sql-insert-lock"},
		{`{"fence": null}`, "", "sql-insert-lock"},
		{`{"strategy": "channel", "per_user": 5}`, "&user_id=u", "channel"},
		{`{"strategy": "", "per_user": 0}`, "", "sql-conditional"},
	} {
		if c.change != "" {
			a.asAdmin(t, http.MethodPatch, "/goods/2", c.change, http.StatusOK)
		}
		before := a.claimed(t, "/goods/2")
		got := a.buy(t, "goods_id=2"+c.query)
		should.Be[any](t, got.body["strategy"], c.want, "after … a purchase with … is answered with …", c.change, c.query, got.text)
		should.Be(t, a.claimed(t, "/goods/2") > before, strings.Contains(c.change, `true`), c.change)
	}
	a.get(t, "/goods/2").is(t, "", "strategy", nil, "group", true, "per_user", 0.0)
}

// A field of the choice is cleared by null, and the strategy by an empty text as well; what is not
// given stays.
func TestEachFieldOfAChoiceIsClearedByItself(t *testing.T) {
	a := serveSQLite(t)
	shown := map[string]string{"strategy": "strategy", "group": "group", "fence": "fenced", "max_quantity": "max_quantity"}
	for field, body := range map[string]string{
		"strategy": `{"strategy": null}`, "group": `{"group": null}`, "fence": `{"fence": null}`, "max_quantity": `{"max_quantity": null}`,
		"strategy, by an empty text": `{"strategy": ""}`,
	} {
		field, _, _ := strings.Cut(field, ",")
		all := a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "mutex", "group": true, "fence": false, "max_quantity": 5}`, http.StatusOK)
		left := a.asAdmin(t, http.MethodPatch, "/goods/1", body, http.StatusOK)
		read := a.get(t, "/goods/1")
		for other, key := range shown {
			want := all.body[key]
			if other == field {
				want = nil
			}
			if all.body[key] == nil || left.body[key] != want || read.body[key] != want {
				t.Errorf("%s of %s leaves %s %v, and %v when it is read; want %v", body, all.text, key, left.body[key], read.body[key], want)
			}
		}
	}
}

// claimed is the highest fencing token that has claimed an item.
func (a api) claimed(t *testing.T, path string) float64 {
	t.Helper()
	fence, _ := a.get(t, path).body["fence"].(float64)
	return fence
}

func TestAChoiceThatCannotBeChangesNothing(t *testing.T) {
	a := serveSQLite(t)
	must.Do(t, a.options.Catalogue.Enforce(service.Policy{Deny: []string{"naive"}}))
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "sql-insert-lock", "fence": true}`, http.StatusOK)
	for _, c := range []struct {
		body           string
		status         int
		problem, field string
	}{
		{`{"strategy": "hope"}`, http.StatusBadRequest, "invalid-request", "strategy"},
		{`{"strategy": 7}`, http.StatusBadRequest, "invalid-request", "strategy"},
		{`{"strategy": "naive"}`, http.StatusForbidden, "strategy-refused", ""},
		{`{"strategy": "sql-conditional"}`, http.StatusBadRequest, "invalid-request", "fence"},
		{`{"strategy": ""}`, http.StatusBadRequest, "invalid-request", "fence"},
		{`{"group": "yes"}`, http.StatusBadRequest, "invalid-request", "group"},
		{`{"fence": 1}`, http.StatusBadRequest, "invalid-request", "fence"},
		{`{}`, http.StatusBadRequest, "invalid-request", "per_user"},
	} {
		got := a.asAdmin(t, http.MethodPatch, "/goods/1", c.body, c.status)
		got.is(t, c.problem)
		got.names(t, c.field)
	}
	a.asAdmin(t, http.MethodGet, "/goods/1", "", http.StatusOK).is(t, "", "strategy", "sql-insert-lock", "fenced", true)
	a.asAdmin(t, http.MethodPatch, "/goods/404404", `{"strategy": "mutex"}`, http.StatusNotFound)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 9, "stock": 1, "strategy": "hope"}`, http.StatusBadRequest)
	a.asAdmin(t, http.MethodGet, "/goods/9", "", http.StatusNotFound)
}

func TestAPurchaseMayNotChooseWhereThatIsOff(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Choose = false })
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "sql-insert-lock", "group": true}`, http.StatusOK)
	for _, query := range []string{"", "&strategy=sql-insert-lock", "&group=true", "&fence=false", "&strategy=sql-insert-lock&group=true&fence=false"} {
		a.buy(t, "goods_id=1"+query).is(t, "")
	}
	for _, query := range []string{"&strategy=sql-conditional", "&strategy=naive", "&strategy=hope", "&group=false", "&fence=true"} {
		got := a.buy(t, "goods_id=1"+query)
		if got.status != http.StatusForbidden || got.problem() != "choice-refused" ||
			!strings.Contains(got.text, "sql-insert-lock") || !strings.Contains(got.text, "deduct.choose") || !strings.Contains(got.text, "PATCH /goods/1") {
			t.Errorf("%q is answered with %d %s", query, got.status, got.text)
		}
		a.order(t, "lines=1"+query, "").is(t, "choice-refused")
	}
}

func TestThePublicLearnsNoMoreThanItMust(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = false }).withAdmin(t, func(*handler.Options) {})
	for path, want := range map[string]string{
		"/deduct?goods_id=1&strategy=mutex": `"order_id" "goods_id" "quantity" "strategy" "durable" "created_at"`,
		"/goods/1":                          `"goods_id" "per_user" "available" "availability"`,
	} {
		method := http.MethodGet
		if strings.HasPrefix(path, "/deduct") {
			method = http.MethodPost
		}
		got := send(t, request(t, method, a.public.URL+path, "", ""))
		if fields := len(strings.Fields(want)); got.status != http.StatusOK || len(got.body) != fields {
			t.Errorf("%s is answered with %d %s, want %s", path, got.status, got.text, want)
		}
		for field := range strings.FieldsSeq(want) {
			should.Contain(t, got.text, field)
		}
		should.Be(t, got.header.Get(handler.ReplicaHeader), "", "names the replica", path)
	}
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"per_user": 3, "strategy": "mutex", "max_quantity": 2}`, http.StatusOK)
	a.get(t, "/goods/1").is(t, "", "per_user", 3.0, "strategy", "mutex", "max_quantity", 2.0)
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"per_user": 0, "strategy": null, "max_quantity": null}`, http.StatusOK)
	a.buyAs(t, "goods_id=1", "Idempotency-Key", "a-key")
	if got := a.get(t, "/orders?request_id=a-key"); got.body["order_id"] == nil || got.body["replica"] != nil || got.body["token"] != nil || got.body["remaining"] != nil {
		t.Errorf("an order is answered with %s", got.text)
	}
	a.get(t, "/goods/1/audit").is(t, "not-found")
	shown := a.asAdmin(t, http.MethodGet, "/goods/1", "", http.StatusOK)
	if shown.body["stock"] != 8.0 || shown.body["available"] != true || shown.header.Get(handler.ReplicaHeader) != "replica-1" {
		t.Errorf("the admin gets %s", shown.text)
	}
	a.asAdmin(t, http.MethodGet, "/goods/1/audit", "", http.StatusOK)
	a.asAdmin(t, http.MethodGet, "/orders?request_id=a-key", "", http.StatusOK).is(t, "", "remaining", 8.0, "replica", "replica-1")
}

func TestTheAdminSwitchesAStrategyOffAndOn(t *testing.T) {
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "naive"}`, http.StatusOK)
	a.asAdmin(t, http.MethodPut, "/strategies/naive", `{"enabled": false, "reason": "it oversells"}`, http.StatusOK)
	got := a.buy(t, "goods_id=1&strategy=naive")
	if got.status != http.StatusForbidden || got.problem() != "strategy-refused" || !strings.Contains(got.text, "it oversells") {
		t.Errorf("a purchase is answered with %d %s", got.status, got.text)
	}
	if s := a.described(t, "naive"); s["enabled"] != false || s["available"] != false || s["note"] != "rejected here: it is switched off: it oversells" {
		t.Errorf("it is described as %v", s)
	}
	s := a.described(t, "mutex")
	should.Be(t, s["enabled"], true, "mutex is described as", s)
	a.buy(t, "goods_id=1").is(t, "strategy-refused") // no other strategy takes the place of an item's own
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 3, "stock": 10, "strategy": "naive"}`, http.StatusForbidden).is(t, "strategy-refused")
	a.asAdmin(t, http.MethodPut, "/strategies/naive?enabled=true", "", http.StatusOK)
	a.buy(t, "goods_id=1").is(t, "")
}

// described is a strategy as the admin sees it.
func (a api) described(t *testing.T, name string) map[string]any {
	t.Helper()
	list, _ := a.asAdmin(t, http.MethodGet, "/strategies", "", http.StatusOK).body["strategies"].([]any)
	for _, s := range list {
		if s, ok := s.(map[string]any); ok && s["name"] == name {
			return s
		}
	}
	t.Fatalf("%s is not described", name)
	return nil
}

// Who looks into the log for why a strategy is off finds the request that did it.
func TestTheLogNamesTheRequestOfASwitch(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) { o.Log = slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, nil))) })
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "naive"}`, http.StatusOK)
	got := a.asAdmin(t, http.MethodPut, "/strategies/naive", `{"enabled": false, "reason": "it oversells"}`, http.StatusOK)
	a.admin.Close() // so that all of the log is written
	should.Contain(t, log.String(), `msg="strategy switched"`, "strategy=naive enabled=false", `reason="it oversells"`, "items=1", "request_id="+got.header.Get("X-Request-ID"))
}

func TestSwitchesThatAreRejected(t *testing.T) {
	a := serveSQLite(t)
	must.Do(t, a.options.Catalogue.Enforce(service.Policy{Deny: []string{"naive"}}))
	for _, c := range []struct {
		name, strategy, body string
		status               int
		problem, says        string
	}{
		{"the default", "sql-conditional", `{"enabled": false, "reason": "r"}`, http.StatusConflict, "default-strategy", "deduct.strategy"},
		{"off: no such strategy", "hope", `{"enabled": false, "reason": "r"}`, http.StatusBadRequest, "unknown-strategy", "hope"},
		{"on: no such strategy", "hope", `{"enabled": true}`, http.StatusBadRequest, "unknown-strategy", "hope"},
		{"on: the configuration forbids it", "naive", `{"enabled": true}`, http.StatusForbidden, "strategy-refused", "strategies.deny"},
		{"neither on nor off", "mutex", `{"reason": "r"}`, http.StatusBadRequest, "invalid-request", "enabled"},
		{"off for no reason", "mutex", `{"enabled": false}`, http.StatusBadRequest, "invalid-request", "reason"},
		{"on for a reason", "mutex", `{"enabled": true, "reason": "r"}`, http.StatusBadRequest, "invalid-request", "reason"},
	} {
		got := a.asAdmin(t, http.MethodPut, "/strategies/"+c.strategy, c.body, c.status)
		if got.problem() != c.problem || !strings.Contains(got.text, c.says) {
			t.Errorf("%s: answered with %s, want %s that tells of %s", c.name, got.text, c.problem, c.says)
		}
	}
	s := a.described(t, "mutex")
	should.Be(t, s["enabled"], true, "a rejected request has switched", s)
}

// The answer says where the order is written down. durable=sql waits for the
// ledger; the strategies that write it themselves always have.
func TestTheAnswerSaysHowDurableItIs(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveWith(t, d, lab.Locks(t, d, backend.Redis))
	for i, c := range []struct{ query, durable string }{
		{"strategy=redis-stock", "redis"},
		{"strategy=redis-stock&durable=redis", "redis"},
		{"strategy=redis-stock&durable=sql", "sql"},
		{"strategy=sql-conditional", "sql"},
		{"strategy=sql-conditional&durable=redis", "sql"},
	} {
		a.asAdmin(t, http.MethodPost, "/goods", fmt.Sprintf(`{"goods_id":%d,"stock":10}`, i+2), http.StatusCreated)
		got := a.buy(t, fmt.Sprintf("goods_id=%d&%s", i+2, c.query))
		got.is(t, "", "durable", c.durable)
	}
	got := a.asAdmin(t, http.MethodGet, "/goods/2/drift", "", http.StatusOK)
	should.Be(t, got.body["installed"], true, "the drift is …", got.body)
}

func TestGroupIsAFlagThatComposesWithFence(t *testing.T) {
	a := serveSQLite(t)
	a.buy(t, "goods_id=1&group=maybe").names(t, "group")
	a.buy(t, "goods_id=1&group=true&fence=true").names(t, "fence")
	got := a.buy(t, "goods_id=1&group=true&fence=true&strategy=sql-version-lock")
	if token, _ := got.body["token"].(float64); got.status != http.StatusOK || token < 1 {
		t.Errorf("grouped and fenced is answered with %d %s", got.status, got.text)
	}
}
