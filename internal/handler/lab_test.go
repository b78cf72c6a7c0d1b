package handler_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// openLab opens failpoints for a replica.
func openLab(t *testing.T) *failpoint.Registry {
	t.Helper()
	return must.Get(failpoint.Open(failpoint.Options{Replica: "replica-1", Log: slog.New(slog.DiscardHandler)}))(t)
}

func TestTheClientSetsFaults(t *testing.T) {
	failpoints := openLab(t)
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) { o.Routes = failpoints.Routes() })
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
	must.Do(t, c.ClearFaults(t.Context()))
	should.Be(t, len(failpoints.Faults()), 0, "once they were cleared, faults are", failpoints.Faults())
}
