package handler_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/api/apitest"
	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry/metrics"
)

const (
	publicAPI = "public API"
	adminAPI  = "admin API"
)

// serveAll is a replica with everything that can be turned on, and what the examples
// of the description and the scenarios of this test name.
func serveAll(t *testing.T) api {
	t.Helper()
	d := lab.Database(t, "sqlite")
	a := serveEntries(t, d, lab.Locks(t, d), append(strategy.Registry(), failingEntry()))
	a.options.Routes, a.options.Pprof, a.options.Reveal = openLab(t).Routes(), true, true
	a.options.Room = a.openRoom(t, 3996, 404405)
	a.options.Metrics = metrics.New(metrics.Build{}).Handler()
	must.Do(t, a.options.Catalogue.Enforce(service.Policy{Deny: []string{rejectedHere}}))
	a = a.with(t, func(*handler.Options) {}).withAdmin(t, func(*handler.Options) {})
	a.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 4990}`, http.StatusOK)
	a.buyAs(t, "goods_id=1&quantity=7", "Idempotency-Key", usedKey)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 0}`, http.StatusCreated)
	a.ownerKeyed(t, usedKey, "/goods?goods_id=3999&stock=1")
	a.ownerKeyed(t, usedKey, "/orders/3/return?quantity=2")
	a.reserveAll(t)
	a.order(t, "lines=1:2", "", "Idempotency-Key", "a-basket").is(t, "")
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 3996, "stock": 1}`, http.StatusCreated)
	a.asAdmin(t, http.MethodPost, "/goods", fmt.Sprintf(`{"goods_id": 3998, "stock": %d}`, int64(stock.MaxStock)), http.StatusCreated)
	a.reserveAs(t, 7, 3998, time.Hour)
	a.asAdmin(t, http.MethodPost, "/reservations/"+numberOf(7)+"/confirm", `{"payment_reference": "pay-7"}`, http.StatusOK)
	a.asAdmin(t, http.MethodPost, "/goods/3998/restock", `{"quantity": 1}`, http.StatusOK)
	return a
}

// numberOf is the number of a reservation of serveAll.
func numberOf(n int) string { return fmt.Sprintf("018bcfe5-6800-7000-8000-%012d", n) }

// reserveAll has reservations in every state, with the numbers that the examples name: 1 to 3
// are held, 4 is confirmed, 5 released and 6 expired.
func (a api) reserveAll(t *testing.T) {
	t.Helper()
	for n := 1; n <= 6; n++ {
		ttl := time.Hour
		if n == 6 {
			ttl = time.Microsecond
		}
		a.reserveAs(t, n, 1, ttl)
	}
	a.asAdmin(t, http.MethodPost, "/reservations/"+numberOf(4)+"/confirm", `{"payment_reference": "pay-4"}`, http.StatusOK)
	a.asAdmin(t, http.MethodPost, "/reservations/"+numberOf(5)+"/release", "", http.StatusOK)
}

// reserveAs holds a unit of an item under a number of serveAll.
func (a api) reserveAs(t *testing.T, n int, goodsID int64, ttl time.Duration) {
	t.Helper()
	batch := []stock.Purchase{{RequestID: fmt.Sprint("reserve-", n), Quantity: 1, TTL: ttl, Number: numberOf(n)}}
	err := a.store.As("sql-conditional").InTx(t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: goodsID, Batch: batch}); err != nil {
			return err
		}
		_, _, err := tx.SubtractIfEnough(t.Context(), goodsID, 1)
		return err
	})
	must.Do(t, err)
}

// The description is served as it is embedded, to the clients of each API.
func TestTheDescriptionIsServed(t *testing.T) {
	a := serveAll(t)
	response, err := http.Get(a.public.URL + "/openapi.yaml") //nolint:noctx // a test
	must.Do(t, err)
	defer response.Body.Close() //nolint:errcheck // it has been read
	content, err := io.ReadAll(response.Body)
	if err != nil || response.Header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("it is %s (%v)", response.Header.Get("Content-Type"), err)
	}
	must.Get(apitest.Read(content))(t)
}

// Every route is described for its listener, and no other one is.
func TestEveryRouteIsDescribed(t *testing.T) {
	a := serveAll(t)
	var there, described []string
	for listener, h := range map[string]http.Handler{publicAPI: handler.Public(a.options), adminAPI: handler.Admin(a.options, admintoken.Single(token))} {
		engine, ok := h.(*gin.Engine)
		if !ok {
			t.Fatalf("the listener for %s is no router but %T", listener, h)
		}
		for _, route := range engine.Routes() {
			path := regexp.MustCompile(`[:*](\w+)`).ReplaceAllString(route.Path, "{$1}")
			there = append(there, route.Method+" "+path+" for "+listener)
		}
	}
	for _, o := range contract.Operations() {
		for _, listener := range o.Listeners {
			described = append(described, o.String()+" for "+listener)
		}
	}
	for _, route := range there {
		if !slices.Contains(described, route) {
			t.Errorf("not described: %s", route)
		}
	}
	for _, route := range described {
		if !slices.Contains(there, route) {
			t.Errorf("described, and not there: %s", route)
		}
	}
}

// Every example is sent, to each listener that its operation is on.
func TestExamplesAreAnsweredAsTheySay(t *testing.T) {
	a := serveAll(t)
	sent := 0
	for _, o := range contract.Operations() {
		examples := must.Get(o.Examples())(t)
		for _, e := range examples {
			for _, listener := range o.Listeners {
				sent++
				got := exchange(t, a.ask(t, e, listener))
				should.Be(t, got.Status, e.Status, "example … for …: answered", o, e.Name, listener, got.Body)
			}
		}
	}
	if sent < 30 {
		t.Errorf("%d examples were sent, want all of them", sent)
	}
}

// ask makes the request of an example.
func (a api) ask(t *testing.T, e apitest.Example, listener string) *http.Request {
	t.Helper()
	server := a.public
	if listener == adminAPI {
		server = a.admin
	}
	r := request(t, e.Operation.Method, server.URL+e.Path, e.ContentType, e.Body)
	maps.Copy(r.Header, e.Header)
	if listener == adminAPI {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// exchange sends a request, and holds the answer to the description.
func exchange(t *testing.T, r *http.Request) apitest.Answer {
	t.Helper()
	response := must.Get(http.DefaultClient.Do(r))(t)
	defer response.Body.Close() //nolint:errcheck // it has been read
	body := must.Get(io.ReadAll(response.Body))(t)
	a := apitest.Answer{Status: response.StatusCode, Header: response.Header, Body: body}
	should.Do(t, contract.Judge(r, a))
	return a
}

// Whatever answer is described of an operation is given by it in some scenario. A kind
// of problem without a scenario needs one here.
func TestEveryDescribedAnswerIsGiven(t *testing.T) {
	s := scenarios{api: serveAll(t), down: serveAll(t)}
	must.Do(t, s.down.store.Close())
	for _, o := range contract.Operations() {
		for _, want := range o.Answers() {
			got := s.play(t, o, want)
			if got.Status != want.Status || got.Kind() != want.Kind {
				t.Errorf("%s is described with %d %s, and its scenario ends with %d %.300s", o, want.Status, want.Kind, got.Status, got.Body)
			}
		}
	}
}

// serveScenario serves one listener of a replica with other options and another server.
func (a api) serveScenario(t *testing.T, listener string, options func(*handler.Options), server func(*http.Server)) api {
	t.Helper()
	if options != nil {
		options(&a.options)
	}
	h := handler.Public(a.options)
	if listener == adminAPI {
		h = handler.Admin(a.options, admintoken.Single(token))
	}
	s := httptest.NewUnstartedServer(h)
	if server != nil {
		server(s.Config)
	}
	s.Start()
	t.Cleanup(s.Close)
	if a.public = s; listener == adminAPI {
		a.admin = s
	}
	return a
}

// A request with a field that is not described is answered with those that it may have. An
// operation may have more of them for one listener than for the other.
func TestTheFieldsOfEveryRequestAreDescribed(t *testing.T) {
	a, compared := serveAll(t), 0
	allowed := regexp.MustCompile(`is not a field here; (?:there are none|allowed are ([a-z_, ]+))`)
	for _, o := range contract.Operations() {
		e := must.Get(o.Sample())(t)
		var fields []string
		looks := false // at its fields
		for _, listener := range o.Listeners {
			r := a.ask(t, e, listener)
			query := r.URL.Query()
			query.Set("hope", "1")
			r.URL.RawQuery = query.Encode()
			if found := allowed.FindSubmatch(exchange(t, r).Body); found != nil {
				looks = true
				fields = append(fields, strings.FieldsFunc(string(found[1]), func(c rune) bool { return c == ',' || c == ' ' })...)
			}
		}
		// The fields of a profile are looked at by net/http/pprof, and a page may add to the path of an item what it likes.
		if strings.HasPrefix(o.Path, "/debug/pprof") || o.String() == "GET /goods/{id}" {
			continue
		}
		if looks {
			compared++
		}
		slices.Sort(fields)
		should.Equal(t, slices.Compact(fields), o.Fields(), "the fields of", o)
	}
	if compared < 15 {
		t.Errorf("%d operations look at their fields, want most of them", compared)
	}
}

// A judge that sees nothing would let everything pass.
func TestTheJudgeSees(t *testing.T) {
	const item = `{"goods_id": 1, "stock": 1, "version": 0, "fence": 0, "per_user": 0, "available": true, "availability": "few-left"}`
	const order = `{"order_id": "8", "goods_id": 1, "quantity": 1, "remaining": 1, "strategy": "s", "replica": "replica-1", "token": 0,
		"created_at": "2026-11-11T11:11:11.000123Z", "wait_ms": 0, "hold_ms": 0, "durable": "sql"}`
	problem := func(kind string) string {
		return `{"type": "urn:stockd:problem:` + kind + `", "title": "t", "status": 404, "instance": "urn:stockd:request:1"}`
	}
	for name, c := range map[string]struct {
		request, media, body string
		status               int
		header               http.Header // beside those of every answer
		want                 string
	}{
		"nothing wrong":                   {"GET /goods/1", "application/json", item, 200, nil, ""},
		"a field that is not described":   {"GET /goods/1", "application/json", strings.Replace(item, "{", `{"colour": "red", `, 1), 200, nil, "colour"},
		"a field that is missing":         {"GET /goods/1", "application/json", strings.Replace(item, `"stock": 1, `, "", 1), 200, nil, "stock"},
		"a field of another type":         {"GET /goods/1", "application/json", strings.Replace(item, `"stock": 1`, `"stock": "1"`, 1), 200, nil, "stock"},
		"a status":                        {"GET /goods/1", "application/json", item, 202, nil, "no such status"},
		"a header that is missing":        {"GET /goods/1", "application/json", item, 200, http.Header{"X-Request-Id": nil}, "X-Request-Id"},
		"a header of another value":       {"POST /deduct", "application/json", order, 200, http.Header{"Idempotency-Replayed": {"false"}}, "Idempotency-Replayed"},
		"a type of body":                  {"GET /goods/1", "text/html", item, 200, nil, "text/html"},
		"a problem of another status":     {"GET /goods/1", "application/problem+json", problem("busy"), 404, nil, "busy"},
		"a problem with a field too many": {"GET /goods/1", "application/problem+json", strings.Replace(problem("unknown-goods"), "{", `{"colour": "red", `, 1), 404, nil, "colour"},
		"a body where none is described":  {"DELETE /lab/faults", "application/json", "{}", 204, nil, "no body is described"},
		"a path that is not described":    {"GET /hope", "application/json", item, 200, nil, "is not described"},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		header := http.Header{"Content-Type": {c.media}, "X-Request-Id": {"1"}, "X-Stockd-Replica": {"replica-1"}}
		maps.Copy(header, c.header)
		err := contract.Judge(request(t, method, "http://replica"+path, "", ""), apitest.Answer{Status: c.status, Body: []byte(c.body), Header: header})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the judge says %v, want %q", name, err, c.want)
		}
	}
}
