package handler_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/servers"
)

// remembers is a lab that does nothing.
type remembers struct{ faults []handler.Fault }

func (r *remembers) SetFault(f handler.Fault) { r.faults = append(r.faults, f) }
func (r *remembers) Faults() []handler.Fault  { return r.faults }
func (r *remembers) ClearFaults()             { r.faults = nil }

func serveLab(t *testing.T) (a api, lent *remembers) {
	t.Helper()
	a, lent = serve(t, lab.Database(t, servers.SQLite)), new(remembers)
	a.options.Lab = lent
	a.admin = httptest.NewServer(handler.Admin(a.options, admintoken.Single(token)))
	t.Cleanup(a.admin.Close)
	return a, lent
}

func TestFaultsAreThereOnlyInTheLab(t *testing.T) {
	a := serveSQLite(t)
	a.owner(t, http.MethodPost, "/lab/faults", `{"do": "crash"}`, http.StatusNotFound)
	a.owner(t, http.MethodGet, "/lab/faults", "", http.StatusNotFound)
	a.owner(t, http.MethodDelete, "/lab/faults", "", http.StatusNotFound)
}

func TestFaultsAreForTheOwner(t *testing.T) {
	a, lent := serveLab(t)
	if got := send(t, request(t, http.MethodPost, a.admin.URL+"/lab/faults", jsonType, `{"do": "crash"}`)); got.status != http.StatusUnauthorized {
		t.Errorf("a stranger is answered with %d", got.status)
	}
	if got := send(t, request(t, http.MethodPost, a.public.URL+"/lab/faults", jsonType, `{"do": "crash"}`)); got.status != http.StatusNotFound {
		t.Errorf("a buyer is answered with %d", got.status)
	}
	if len(lent.faults) != 0 {
		t.Errorf("faults are %+v", lent.faults)
	}
}

func TestTheClientSetsFaults(t *testing.T) {
	a, lent := serveLab(t)
	c := client.Client{URL: a.public.URL, AdminURL: a.admin.URL, Token: token}
	for _, f := range []handler.Fault{
		{Do: handler.Hold, GoodsID: 7, Strategy: "redis-lua", For: 2 * time.Second, Deaf: true, Times: 3},
		{Do: handler.Crash},
	} {
		if err := c.SetFault(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	lent.faults[0].Reached = 2
	list, err := c.Faults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []handler.Fault{
		{Do: handler.Hold, GoodsID: 7, Strategy: "redis-lua", For: 2 * time.Second, Deaf: true, Times: 3, Reached: 2},
		{Do: handler.Crash, Times: 1},
	}
	if len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("faults are %+v, want %+v", list, want)
	}
	if err := c.ClearFaults(t.Context()); err != nil || len(lent.faults) != 0 {
		t.Errorf("after they were cleared (%v) faults are %+v", err, lent.faults)
	}
}

func TestAFaultThatIsNotUnderstoodNamesItsField(t *testing.T) {
	a, lent := serveLab(t)
	for body, field := range map[string]string{
		`{}`:                                                        "do",
		`{"do": "stop"}`:                                            "do",
		`{"do": "hold"}`:                                            "for",
		`{"do": "hold", "for": 2}`:                                  "for",
		`{"do": "hold", "for": "0s"}`:                               "for",
		`{"do": "hold", "for": "1h"}`:                               "for",
		`{"do": "pause", "for": "2s"}`:                              "for",
		`{"do": "crash", "deaf": true}`:                             "deaf",
		`{"do": "pause", "deaf": "yes"}`:                            "deaf",
		`{"do": "crash", "goods_id": -1}`:                           "goods_id",
		`{"do": "crash", "times": 0}`:                               "times",
		`{"do": "crash", "strategy": "hope"}`:                       "strategy",
		`{"do": "crash", "where": "there"}`:                         "where",
		`{"do": "crash", "strategy": "naive", "strategy": "naive"}`: "strategy",
	} {
		got := a.owner(t, http.MethodPost, "/lab/faults", body, http.StatusBadRequest)
		if got.problem() != "invalid-request" || got.field() != field {
			t.Errorf("%s is answered with %s, want the field %s", body, got.text, field)
		}
	}
	if len(lent.faults) != 0 {
		t.Errorf("faults are %+v", lent.faults)
	}
}
