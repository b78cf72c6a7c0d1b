package demo_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// begun keeps how many purchases each run is to have.
type begun struct{ requests []int }

func (*begun) Say(string)                   {}
func (*begun) Begin(int)                    {}
func (b *begun) Run(_ string, requests int) { b.requests = append(b.requests, requests) }
func (*begun) Answered(int)                 {}
func (*begun) Done(verdict.Run)             {}
func (*begun) End()                         {}

// A run that comes out well by luck is made again as it was planned, however few purchases it had time for.
func TestARunIsMadeAgainWithAllItsPurchases(t *testing.T) {
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(handler.ReplicaHeader, "r")
		switch {
		case r.URL.Path == "/strategies":
			fmt.Fprint(w, `{"strategies": [{"name": "s", "claims": {"fenceable": true}, "available": true}]}`) //nolint:errcheck // the test notices
		case r.URL.Path == "/goods":
			w.WriteHeader(http.StatusCreated)
		case r.Method == http.MethodPost:
			time.Sleep(5 * time.Millisecond)
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"type": "urn:stockd:problem:insufficient-stock"}`) //nolint:errcheck // the test notices
		default:
			fmt.Fprint(w, `{"clean": true, "pending": 0}`) //nolint:errcheck // the test notices
		}
	}))
	defer there.Close()
	progress := &begun{}
	r, err := demo.Run(t.Context(), demo.Plan{
		External: shop.Client{URL: there.URL, AdminURL: there.URL}, Stock: 10, Clients: 1, Loops: 1000, LockShare: 1, Repeat: 1,
		LockRun: 50 * time.Millisecond, Progress: progress,
	})
	if err != nil || len(r.Runs) != 1 || r.Runs[0].Verdict != verdict.Unexpected || r.Runs[0].Requests >= 1000 {
		t.Fatalf("%v, %+v", err, r)
	}
	for _, requests := range progress.requests {
		if requests != 1000 {
			t.Fatalf("the tries had %v purchases, want 1000 each", progress.requests)
		}
	}
}

func TestThePageHasARowARun(t *testing.T) {
	var page strings.Builder
	err := demo.Page(&page, &verdict.Report{On: "database: MariaDB 10.11 (local)", Processors: 2, Runs: []verdict.Run{
		{
			Strategy: "naive", Replicas: 1, Stock: 1000, Clients: 50, Requests: 5000, Sold: 5000, Left: 833, Oversold: 4000, Lost: 4833,
			SalesPerSecond: 1587.4, P50: 28, P99: 78.66, Verdict: verdict.Expected,
		},
		{Strategy: "sql-conditional", Replicas: 3, Group: true, Stock: 1000, Sold: 1001, Clean: true, Verdict: verdict.Unexpected, Reason: "1 oversold"},
		{Strategy: "zk-herd", Replicas: 1, Verdict: verdict.NotRun, Reason: "there is no ZooKeeper"},
	}})
	must.Do(t, err)
	should.Contain(t, page.String(),
		"| `naive` | 1 | 5,000 | 833 | 4,000 | 4,833 | 0 | 0 | 1,587 | 28.0 | 78.7 | oversold by 4,000, 4,833 updates lost — expected |\n",
		"| `sql-conditional`, grouped | 3 | 1,001 |", "consistent — not expected |\n",
		"| `zk-herd` | 1 | – |", "- `zk-herd`: there is no ZooKeeper\n", "- `sql-conditional`: 1 oversold\n",
		"database: MariaDB 10.11 (local), 2 processors", "1,000 units, 50 clients, 5,000 purchases",
	)
}
