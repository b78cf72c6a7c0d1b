package handler_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
)

// Each answer says why, and what is allowed, and nothing of another reason.
func TestARejectionSaysItsOwnReason(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = false })
	for query, want := range map[string][]string{
		"goods_id=1&strategy=hope":      {`\"hope\" is unknown; allowed are those of GET /strategies that are available`, "unknown-strategy"},
		"goods_id=1&strategy=redis-lua": {`\"redis-lua\" is not available here; allowed are those of GET /strategies that are available`, "strategy-refused"},
		"goods_id=1&quantity=11":        {"insufficient-stock"},
	} {
		got := a.buy(t, query)
		should.Contain(t, got.text, want...)
		if list, _ := got.body["strategies"].([]any); strings.Contains(query, "strategy=") && len(list) != len(strategy.Registry()) {
			t.Errorf("%s lists %d strategies, want all %d", query, len(list), len(strategy.Registry()))
		}
		if strings.Contains(got.text, "one buyer may have") {
			t.Errorf("%s is answered with a limit: %s", query, got.text)
		}
	}
}

func TestTheTimesOfASaleAreMilliseconds(t *testing.T) {
	a := serveSQLite(t)
	began := time.Now()
	got := a.buy(t, "goods_id=1&strategy=mutex")
	took := float64(time.Since(began).Microseconds()) / 1000
	wait, _ := got.body["wait_ms"].(float64)
	if hold, ok := got.body["hold_ms"].(float64); !ok || hold <= 0 || wait < 0 || wait+hold > took {
		t.Errorf("a sale that took %v ms says %s", took, got.text)
	}
	a, _ = serveTimed(t)
	for _, path := range []string{"/deduct", "/reservations"} {
		got := a.post(t, path+"?goods_id=1&strategy=timed")
		got.is(t, "", "wait_ms", 1.5, "hold_ms", 20.0, "token", 0.0, "replica", "replica-1")
	}
}

func TestAPurchaseWaitsNoLongerThanLockWait(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct {
		query  string
		status int
		detail string
	}{
		{"strategy=mutex&wait_ms=1", http.StatusOK, ""},
		{"strategy=mutex&wait_ms=1000", http.StatusOK, ""},
		{"strategy=mutex&wait_ms=1001", http.StatusBadRequest, "from 1 to 1000, which is lock.wait, not 1001"},
		{"strategy=mutex&group=true&wait_ms=1", http.StatusBadRequest, "with group=true"},
		{"strategy=sql-conditional&wait_ms=1", http.StatusBadRequest, "sql-conditional has no lock"},
	} {
		if got := a.buy(t, "goods_id=1&"+c.query); got.status != c.status || !strings.Contains(got.text, c.detail) {
			t.Errorf("%s is answered with %d, want %d and %q: %s", c.query, got.status, c.status, c.detail, got.text)
		}
	}
}

// Anybody may name a strategy: one that cannot be used here costs no line of the log.
func TestAStrategyWithoutItsBackendIsRejected(t *testing.T) {
	var log bytes.Buffer
	quiet := func(o *handler.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	a := serveSQLite(t).with(t, quiet).withAdmin(t, quiet)
	for name, backend := range map[string]string{
		"redis-decr": "redis", "redis-stock": "redis", "redis-lua": "redis", "redlock": "redlock",
		"zk-sequential": "zookeeper", "etcd": "etcd", "sql-row-lock": "mysql",
	} {
		for what, got := range map[string]answer{
			"a purchase":    a.buy(t, "goods_id=1&strategy="+name),
			"a grouped one": a.buy(t, "goods_id=1&group=true&strategy="+name),
			"a change":      a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "`+name+`"}`, http.StatusForbidden),
			"a creation":    a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 1, "strategy": "`+name+`"}`, http.StatusForbidden),
		} {
			if got.status != http.StatusForbidden || got.problem() != "strategy-refused" || got.body["backend"] != backend ||
				!strings.Contains(got.text, name+", because "+backend+" is not configured") {
				t.Errorf("%s by %s is answered with %d %s", what, name, got.status, got.text)
			}
		}
		if s := a.described(t, name); s["enabled"] != true || s["available"] != false {
			t.Errorf("%s is described as %v", name, s)
		}
	}
	a.public.Close()
	a.admin.Close() // so that all of the log is written
	for line := range strings.Lines(log.String()) {
		should.Contain(t, line, `"admin write"`)
	}
}

// maxProblem is the most bytes of a problem, whatever was sent.
const maxProblem = 6 << 10

// fieldsOf is a JSON object of so many fields that no route has.
func fieldsOf(count int) string {
	list := make([]string, count)
	for i := range list {
		list[i] = fmt.Sprintf(`"%d":0`, i)
	}
	return "{" + strings.Join(list, ",") + "}"
}

func TestAProblemNamesAtMostTenFields(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.MaxBody = 16 << 10 })
	for count, want := range map[int]struct {
		named int
		more  any
	}{1: {2, nil}, 9: {10, nil}, 10: {10, 1.0}, 1500: {10, 1491.0}} { // and goods_id is missing
		got := send(t, request(t, http.MethodPost, a.public.URL+"/deduct", jsonType, fieldsOf(count)))
		named, _ := got.body["errors"].([]any)
		if got.problem() != "invalid-request" || len(named) != want.named || got.body["more_errors"] != want.more || len(got.text) > maxProblem {
			t.Errorf("%d unknown fields are answered with %d bytes: %.300s", count, len(got.text), got.text)
		}
		if detail, _ := got.body["detail"].(string); !strings.HasSuffix(detail, fmt.Sprintf("(and %d more)", count)) {
			t.Errorf("%d unknown fields: the detail is %q", count, detail)
		}
	}
}

// What a request says is quoted shortened, wherever it stands.
func TestAProblemIsShortWhateverIsSent(t *testing.T) {
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) { o.MaxBody, o.Pprof = 64<<10, true })
	a = a.with(t, func(*handler.Options) {})
	for _, unit := range []string{"x", "\x01", "\"", "<", "☂", "\U000e0001"} {
		long := strings.Repeat(unit, 2000/len(unit))
		text := url.QueryEscape(long)
		var many strings.Builder
		for i := range 9 {
			fmt.Fprintf(&many, "&%d%s=0", i, text[:1000])
		}
		for name, r := range map[string]*http.Request{
			"the names of fields":    request(t, http.MethodPost, a.public.URL+"/deduct?"+many.String(), "", ""),
			"a name in JSON":         request(t, http.MethodPost, a.public.URL+"/deduct", jsonType, fmt.Sprintf(`{%q: {}}`, "é"+strings.ToValidUTF8(long, ""))),
			"every field":            request(t, http.MethodPost, a.public.URL+"/deduct", "application/x-www-form-urlencoded", everyField(text)),
			"a strategy":             request(t, http.MethodPost, a.public.URL+"/deduct?goods_id=1&strategy="+text, "", ""),
			"a path":                 request(t, http.MethodGet, a.public.URL+"/"+url.PathEscape(long), "", ""),
			"the id of an item":      request(t, http.MethodGet, a.public.URL+"/goods/"+url.PathEscape(long), "", ""),
			"the number of an order": request(t, http.MethodGet, a.public.URL+"/orders/"+url.PathEscape(long), "", ""),
			"a reservation":          request(t, http.MethodGet, a.public.URL+"/reservations/"+url.PathEscape(long), "", ""),
			"one that is released":   request(t, http.MethodPost, a.public.URL+"/reservations/"+url.PathEscape(long)+"/release", "", ""),
			"one that is paid":       a.ownerRequest(t, http.MethodPost, "/reservations/"+url.PathEscape(long)+"/confirm?payment_reference=p"),
			"a method":               request(t, strings.Repeat("M", 2000), a.public.URL+"/deduct", "", ""),
			"a switch":               a.ownerRequest(t, http.MethodPut, "/strategies/"+url.PathEscape(long)+"?enabled=true"),
			"a choice":               a.ownerRequest(t, http.MethodPatch, "/goods/1?strategy="+text),
			"a profile":              a.ownerRequest(t, http.MethodGet, "/debug/pprof/"+url.PathEscape(long)),
		} {
			got := send(t, r)
			if got.status < 400 || got.status >= 500 || len(got.text) > maxProblem {
				t.Errorf("%s of %q is answered with %d and %d bytes: %.200s", name, unit, got.status, len(got.text), got.text)
			}
		}
	}
}

// everyField is a form with the same text in every field of a purchase.
func everyField(text string) string {
	var form strings.Builder
	for _, name := range []string{"strategy", "group", "fence", "goods_id", "quantity", "user_id", "durable", "wait_ms", text} {
		form.WriteString(name + "=" + text + "&")
	}
	return form.String()
}

func (a api) ownerRequest(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r := request(t, method, a.admin.URL+path, "", "")
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}
