package handler_test

import (
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/api/apitest"
	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry/metrics"
)

var (
	lab      *labtest.Lab
	contract *apitest.Contract // every answer is held to it
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	var err error
	if contract, err = apitest.Load(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(labtest.Main(m, &lab))
}

const token = "a token of the admin"

// api is a replica on a database, with goods 1 of which there are ten.
type api struct {
	public, admin *httptest.Server
	options       handler.Options
	store         *repo.Store
}

func serve(t *testing.T, d *servers.Database) api {
	t.Helper()
	return serveWith(t, d, lab.Locks(t, d))
}

// queue is the most that wait for one item where they are grouped.
const queue = 40

// lockWait is the wait limit for a lock.
const lockWait = time.Second

func serveWith(t *testing.T, d *servers.Database, locks lock.Deps) api {
	t.Helper()
	return serveEntries(t, d, locks, strategy.Registry())
}

func serveEntries(t *testing.T, d *servers.Database, locks lock.Deps, entries []strategy.Entry) api {
	t.Helper()
	return serveRedisStock(t, d, locks, entries, redisstock.Options{})
}

// serveRedisStock has keys of its own in Redis, which tests on other databases share.
func serveRedisStock(t *testing.T, d *servers.Database, locks lock.Deps, entries []strategy.Entry, o redisstock.Options) api {
	t.Helper()
	o.Prefix = "test-" + crand.Text()
	store := labtest.Open(t, d, "replica-1")
	catalogue := service.NewCatalogue(t.Context(), entries, strategy.Deps{
		Store: store, LockWait: lockWait, Lock: locks, Retry: strategy.Retry{Tries: 10, Max: time.Millisecond},
		Group:      strategy.Group{Batch: 5, Units: 1000, Queue: queue},
		RedisStock: o,
	}, 5*time.Second)
	t.Cleanup(func() {
		if err := catalogue.Close(); err != nil {
			t.Log(err) // a server that the test has ended does not answer
		}
	})
	must.Do(t, catalogue.SetDefault(service.Mode{Strategy: "sql-conditional"}))
	options := handler.Options{
		Catalogue: catalogue,
		Inventory: service.NewInventory(store, catalogue), Feed: service.NewFeed(store),
		Reservations: service.NewReservations(store, catalogue, time.Hour, metrics.New(metrics.Build{})),
		TTL:          15 * time.Minute, LongestTTL: time.Hour, PublicConfirm: true, Replica: "replica-1", Choose: true, Reveal: true,
		MaxBody: 4096, Log: slog.New(slog.DiscardHandler), Observer: metrics.New(metrics.Build{}),
	}
	a := api{public: httptest.NewServer(handler.Public(options)), admin: httptest.NewServer(handler.Admin(options, admintoken.Single(token))), options: options, store: store}
	t.Cleanup(a.public.Close)
	t.Cleanup(a.admin.Close)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 1, "stock": 10}`, http.StatusCreated)
	return a
}

func serveSQLite(t *testing.T) api { return serve(t, lab.Database(t, servers.SQLite)) }

// answer is what came back.
type answer struct {
	asked  string
	status int
	header http.Header
	body   map[string]any
	text   string
}

// problem is the last part of the problem's type.
func (a answer) problem() string {
	kind, _ := a.body["type"].(string)
	return strings.TrimPrefix(kind, "urn:stockd:problem:")
}

// field is the first field that the problem names.
func (a answer) field() string {
	list, _ := a.body["errors"].([]any)
	if len(list) == 0 {
		return ""
	}
	first, _ := list[0].(map[string]any)
	name, _ := first["field"].(string)
	return name
}

// is checks the problem of an answer, or, where that is empty, that there is none, and fields of its body: pairs
// of name and value.
func (a answer) is(t *testing.T, problem string, pairs ...any) {
	t.Helper()
	ok := a.problem() == problem && (a.status >= http.StatusBadRequest) == (problem != "")
	for pair := range slices.Chunk(pairs, 2) {
		ok = ok && a.body[fmt.Sprint(pair[0])] == pair[1]
	}
	if !ok {
		t.Errorf("%s is answered with %d %s, want %q %v", a.asked, a.status, a.text, problem, pairs)
	}
}

// names checks the first field that an answer rejects, or, where that is empty, that there is none.
func (a answer) names(t *testing.T, field string) {
	t.Helper()
	if a.field() != field || field != "" && a.status != http.StatusBadRequest {
		t.Errorf("%s is answered with %d %s, want %q named", a.asked, a.status, a.text, field)
	}
}

func send(t *testing.T, r *http.Request) answer {
	t.Helper()
	response := must.Get(http.DefaultClient.Do(r))(t)
	defer response.Body.Close() //nolint:errcheck // it has been read
	content := must.Get(io.ReadAll(response.Body))(t)
	a := answer{asked: r.Method + " " + r.URL.String(), status: response.StatusCode, header: response.Header, text: string(content)}
	if err := json.Unmarshal(content, &a.body); err != nil && a.status != http.StatusNotModified {
		t.Fatalf("%s is answered with %.200q, which is no JSON: %v", r.URL, content, err)
	}
	should.Do(t, contract.Judge(r, apitest.Answer{Status: a.status, Header: a.header, Body: content}))
	return a
}

func request(t *testing.T, method, url, contentType, body string) *http.Request {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func (a api) asAdmin(t *testing.T, method, path, body string, wanted int) answer {
	t.Helper()
	r := request(t, method, a.admin.URL+path, "application/json", body)
	r.Header.Set("Authorization", "Bearer "+token)
	got := send(t, r)
	must.Be(t, got.status, wanted, method, path, "is answered with", got.text)
	return got
}

func (a api) buy(t *testing.T, query string) answer {
	t.Helper()
	return send(t, request(t, http.MethodPost, a.public.URL+"/deduct?"+query, "", ""))
}

func (a api) get(t *testing.T, path string) answer {
	t.Helper()
	return send(t, request(t, http.MethodGet, a.public.URL+path, "", ""))
}

const (
	jsonType = "application/json"
	formType = "application/x-www-form-urlencoded"
)

func TestASaleInEachForm(t *testing.T) {
	a := serveSQLite(t)
	left := 10.0
	for _, c := range []struct{ name, query, kind, body string }{
		{"query", "?strategy=naive&goods_id=1&quantity=2&user_id=u-1", "", ""},
		{"form", "?strategy=naive", formType, "goods_id=1&quantity=2&user_id=u-1"},
		{"JSON", "?strategy=naive", jsonType, `{"goods_id": 1, "quantity": 2, "user_id": "u-1"}`},
		{"JSON with a charset", "?strategy=naive", jsonType + "; charset=utf-8", `{"goods_id": 1, "quantity": 2, "user_id": 7}`},
	} {
		got := send(t, request(t, http.MethodPost, a.public.URL+"/deduct"+c.query, c.kind, c.body))
		left -= 2
		for field, wanted := range map[string]any{
			"goods_id": 1.0, "quantity": 2.0, "remaining": left, "strategy": "naive", "replica": "replica-1",
			"token": 0.0, "wait_ms": 0.0, "hold_ms": 0.0,
		} {
			should.Be(t, got.body[field], wanted, "… is …: …", c.name, field, got.text)
		}
		if id, _ := got.body["order_id"].(string); id == "" || got.status != http.StatusOK {
			t.Errorf("%s is answered with %d and order %q", c.name, got.status, id)
		}
	}
}

// Bad input is a problem that names the field, and leaves no row in the ledger.
func TestBadInput(t *testing.T) {
	a := serveSQLite(t)
	const valid = `"goods_id": 1, "quantity": 1`
	for _, c := range []struct {
		name, query, kind, body string
		status                  int
		problem, field          string
	}{
		{"negative quantity", "?goods_id=1&quantity=-1", "", "", 400, "invalid-request", "quantity"},
		{"zero quantity", "?goods_id=1&quantity=0", "", "", 400, "invalid-request", "quantity"},
		{"quantity an object", "", jsonType, `{"goods_id": 1, "quantity": {"a": 1}}`, 400, "invalid-request", "quantity"},
		{"no goods", "", "", "", 400, "invalid-request", "goods_id"},
		{"unknown goods", "?goods_id=99", "", "", 404, "unknown-goods", ""},
		{"unknown strategy", "?goods_id=1&strategy=hope", "", "", 400, "unknown-strategy", "strategy"},
		{"fence that is no flag", "?goods_id=1&fence=maybe", "", "", 400, "invalid-request", "fence"},
		{"fence where there is none", "?goods_id=1&fence=true", "", "", 400, "invalid-request", "fence"},
		{"a wait of nothing", "?goods_id=1&strategy=mutex&wait_ms=0", "", "", 400, "invalid-request", "wait_ms"},
		{"a wait of more than an hour", "?goods_id=1&strategy=mutex&wait_ms=3600001", "", "", 400, "invalid-request", "wait_ms"},
		{"durable as nowhere", "?goods_id=1&durable=paper", "", "", 400, "invalid-request", "durable"},
		{"user that is no text", "?goods_id=1&user_id=%ff", "", "", 400, "invalid-request", "user_id"},
		{"unknown field in the query", "?goods_id=1&colour=red", "", "", 400, "invalid-request", "colour"},
		{"unknown field in JSON", "", jsonType, `{` + valid + `, "colour": "red"}`, 400, "invalid-request", "colour"},
		{"unknown field in a form", "", formType, "goods_id=1&colour=red", 400, "invalid-request", "colour"},
		{"one value in each", "?goods_id=1", jsonType, `{"goods_id": 1}`, 400, "invalid-request", "goods_id"},
		{"broken query", "?goods_id=%zz", "", "", 400, "invalid-request", "query"},
		{"broken JSON", "", jsonType, `{"goods_id": 1`, 400, "invalid-request", "body"},
		{"JSON that is no UTF-8", "", jsonType, "{\"user_id\": \"\xff\"}", 400, "invalid-request", "body"},
		{"broken form", "", formType, "goods_id=%zz", 400, "invalid-request", "body"},
		{"a body that is too large", "", jsonType, `{"user_id": "` + strings.Repeat("u", 5000) + `"}`, 413, "body-too-large", ""},
		{"a body of another kind", "", "text/xml", "<goods/>", 415, "unsupported-media-type", "Content-Type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := send(t, request(t, http.MethodPost, a.public.URL+"/deduct"+c.query, c.kind, c.body))
			if got.status != c.status || got.problem() != c.problem || got.field() != c.field {
				t.Errorf("answered with %d %s naming %q, want %d %s naming %q: %s",
					got.status, got.problem(), got.field(), c.status, c.problem, c.field, got.text)
			}
			if got.body["status"] != float64(c.status) || got.body["title"] == "" || got.body["detail"] == nil {
				t.Errorf("the problem is not complete: %s", got.text)
			}
			should.Be(t, got.header.Get("X-Content-Type-Options"), "nosniff", "a browser may take a problem, which quotes the request, for a page")
		})
	}
	a.get(t, "/goods/1/audit").is(t, "", "orders", 0.0, "stock", 10.0)
}

// No route takes half of a query for the whole.
func TestABrokenQueryIsRejectedByEveryRouteThatReadsOne(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct{ method, url string }{
		{http.MethodPost, a.public.URL + "/deduct"},
		{http.MethodGet, a.public.URL + "/orders"},
		{http.MethodGet, a.public.URL + "/orders/1"},
		{http.MethodGet, a.public.URL + "/goods/1/audit"},
		{http.MethodGet, a.admin.URL + "/orders"},
		{http.MethodGet, a.admin.URL + "/goods/1/audit"},
		{http.MethodPost, a.admin.URL + "/goods"},
		{http.MethodPatch, a.admin.URL + "/goods/1"},
		{http.MethodPost, a.admin.URL + "/goods/1/restock"},
	} {
		r := request(t, c.method, c.url+"?goods_id=1&stock=1&request_id=1&per_user=%zz", "", "")
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Idempotency-Key", "k")
		send(t, r).names(t, "query")
	}
}

func TestStrategiesAreListedWithTheirGuarantees(t *testing.T) {
	a := serveSQLite(t)
	list, _ := a.get(t, "/strategies").body["strategies"].([]any)
	must.Be(t, len(list), len(strategy.Registry()), "the strategies")
	for i, entry := range strategy.Registry() {
		got, _ := list[i].(map[string]any)
		claims, _ := got["claims"].(map[string]any)
		if got["name"] != entry.Name || claims["exclusive_across_replicas"] != entry.Guarantees.ExclusiveAcrossReplicas ||
			claims["fenceable"] != entry.Guarantees.Fenceable || claims["signals_loss"] != entry.Guarantees.SignalsLoss {
			t.Errorf("%s is described as %v", entry.Name, got)
		}
		// There is a SQLite here, and nothing else.
		available := !slices.ContainsFunc(entry.Needs, func(b backend.Name) bool { return b != backend.Database })
		if note, _ := got["note"].(string); got["available"] != available || !available && !strings.Contains(note, "not configured") {
			t.Errorf("%s needs %v, and is described as %v", entry.Name, entry.Needs, got)
		}
	}
}

func ExampleTypePrefix() {
	fmt.Println(handler.TypePrefix + "insufficient-stock")
	// Output: urn:stockd:problem:insufficient-stock
}

// What is sent with a GET is no part of it, whatever its type and its size.
func TestTheBodyOfAGetIsNotRead(t *testing.T) {
	a := serveSQLite(t)
	for path, want := range map[string]int{"/goods/1": http.StatusOK, "/orders?request_id=k": http.StatusNotFound} {
		got := send(t, request(t, http.MethodGet, a.public.URL+path, "text/plain", strings.Repeat("x", 20_000)))
		should.Be(t, got.status, want, path, "with a body is answered with", got.text)
	}
}
