package demo_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load/verdict"
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
