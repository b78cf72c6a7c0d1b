package handler_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
)

// openLab opens failpoints for a replica.
func openLab(t *testing.T) *failpoint.Registry {
	t.Helper()
	l := must.Get(failpoint.Open(failpoint.Options{Replica: "replica-1", Log: slog.New(slog.DiscardHandler)}))(t)
	return l
}

func serveLab(t *testing.T) (a api, failpoints *failpoint.Registry) {
	t.Helper()
	a, failpoints = serve(t, lab.Database(t, servers.SQLite)), openLab(t)
	a.options.Routes = failpoints.Routes()
	a.admin = httptest.NewServer(handler.Admin(a.options, admintoken.Single(token)))
	t.Cleanup(a.admin.Close)
	return a, failpoints
}

func TestFaultsAreThereOnlyInTheLab(t *testing.T) {
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodPost, "/lab/faults", `{"do": "crash"}`, http.StatusNotFound)
	a.asAdmin(t, http.MethodGet, "/lab/faults", "", http.StatusNotFound)
	a.asAdmin(t, http.MethodDelete, "/lab/faults", "", http.StatusNotFound)
}

func TestFaultsAreForTheAdmin(t *testing.T) {
	a, failpoints := serveLab(t)
	if got := send(t, request(t, http.MethodPost, a.admin.URL+"/lab/faults", jsonType, `{"do": "crash"}`)); got.status != http.StatusUnauthorized {
		t.Errorf("a stranger is answered with %d", got.status)
	}
	if got := send(t, request(t, http.MethodPost, a.public.URL+"/lab/faults", jsonType, `{"do": "crash"}`)); got.status != http.StatusNotFound {
		t.Errorf("a buyer is answered with %d", got.status)
	}
	if len(failpoints.Faults()) != 0 {
		t.Errorf("faults are %+v", failpoints.Faults())
	}
}

func TestTheClientSetsFaults(t *testing.T) {
	a, failpoints := serveLab(t)
	c := shop.Client{URL: a.public.URL, AdminURL: a.admin.URL, Token: token}
	for _, f := range []failpoint.Fault{
		{Do: failpoint.Hold, GoodsID: 7, Strategy: "redis-lua", For: 2 * time.Millisecond, IgnoreCancel: true, Times: 3},
		{Do: failpoint.Crash},
	} {
		must.Do(t, c.SetFault(t.Context(), f))
	}
	for range 2 {
		failpoints.Between(t.Context(), "redis-lua", 7)
	}
	list := must.Get(c.Faults(t.Context()))(t)
	want := []failpoint.Fault{
		{Do: failpoint.Hold, GoodsID: 7, Strategy: "redis-lua", For: 2 * time.Millisecond, IgnoreCancel: true, Times: 3, Reached: 2},
		{Do: failpoint.Crash, Times: 1},
	}
	if len(list) != 2 || list[0] != want[0] || list[1] != want[1] {
		t.Errorf("faults are %+v, want %+v", list, want)
	}
	if err := c.ClearFaults(t.Context()); err != nil || len(failpoints.Faults()) != 0 {
		t.Errorf("after they were cleared (%v) faults are %+v", err, failpoints.Faults())
	}
}
