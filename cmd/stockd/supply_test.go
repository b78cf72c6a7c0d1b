package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/pkg/client"
)

// A replica that answers, and is not ready, is not healthy.
func TestHealthIsReadiness(t *testing.T) {
	for status, want := range map[int]int{http.StatusOK: cli.OK, http.StatusServiceUnavailable: cli.Failure, http.StatusNoContent: cli.Failure} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/readyz" {
				t.Errorf("asked for %s %s", r.Method, r.URL)
			}
			w.WriteHeader(status)
		}))
		if got, _, errOut := stockd("healthcheck", "--http-listen", strings.TrimPrefix(s.URL, "http://")); got != want {
			t.Errorf("%d: exit status %d (%s), want %d", status, got, errOut, want)
		}
		s.Close()
	}
	for listen, want := range map[string]string{":8080": "localhost:8080", "0.0.0.0:1": "localhost:1", "[::]:1": "localhost:1", "10.0.0.1:1": "10.0.0.1:1", "shop:1": "shop:1"} {
		if got := nearby(listen); got != want {
			t.Errorf("%s is asked at %s, want %s", listen, got, want)
		}
	}
}

// A replica that does not answer is not healthy: the check of a container gets its answer in time.
func TestAReplicaThatDoesNotAnswerIsNotHealthy(t *testing.T) {
	t.Parallel() // it waits
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*readyWithin)
	defer cancel()
	if err := askReady(ctx, s.URL+"/readyz"); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("it is asked until %v, want no longer than %s", err, readyWithin)
	}
}

// Each row is what an item has at each look, and what becomes of the run.
func TestASupplyRestocksWhatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		restock    bool
		stock      []int64 // of the item
		more       []bool
		restocked  int64
		goneAndSay string
	}{
		"gone":                       {false, []int64{0}, []bool{false}, 0, "a; the stock was gone after 2ms, and the run ended; --restock adds units"},
		"some came back":             {false, []int64{3, 0}, []bool{true, false}, 0, "a; the stock was gone after 2ms, and the run ended; --restock adds units"},
		"what is left is not sold":   {false, []int64{3, 3}, []bool{true, false}, 0, "a; the stock was gone after 2ms, and the run ended; --restock adds units"},
		"restocked":                  {true, []int64{0, 0}, []bool{true, true}, 2 * unitsPerRestock, "a; restocked with 200000 units"},
		"restocked when it was gone": {true, []int64{3, 0}, []bool{true, true}, unitsPerRestock, "a; restocked with 100000 units"},
	} {
		looks, restocks := 0, int64(0)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && r.URL.Path == "/goods/7/restock" {
				restocks++
			}
			fmt.Fprintf(w, `{"goods_id": 7, "stock": %d}`, c.stock[min(looks, len(c.stock)-1)]) //nolint:errcheck // the client notices
		}))
		of := supply{client: client.Client{URL: s.URL, AdminURL: s.URL}, goodsID: 7, restock: c.restock}
		for _, want := range c.more {
			if more, err := of.soldOut(t.Context()); err != nil || more != want {
				t.Errorf("%s: at look %d more %v (%v), want %v", name, looks+1, more, err, want)
			}
			looks++
		}
		if note := of.note([]string{"", "a"}, 2*time.Millisecond+time.Microsecond); of.restocked != c.restocked || restocks != c.restocked/unitsPerRestock || note != c.goneAndSay {
			t.Errorf("%s: restocked with %d in %d requests, %q; want %d, %q", name, of.restocked, restocks, note, c.restocked, c.goneAndSay)
		}
		s.Close()
	}
}

// Each user buys as much as the limit allows, and no run has the users of another one.
func TestUsersOfABenchHaveTheirLimit(t *testing.T) {
	if buyers(load.Plan{}, 0) != nil || buyers(load.Plan{BuyerToken: "t"}, 2) != nil {
		t.Error("there are users where there is no limit, or a token names the buyer")
	}
	next, other, bought := buyers(load.Plan{}, 2), buyers(load.Plan{}, 2), make(map[string]int)
	for range 100 {
		bought[next()]++
	}
	for user, n := range bought {
		if n != 2 || len(user) > 64 {
			t.Errorf("%s buys %d times, want 2", user, n)
		}
	}
	if len(bought) != 50 || bought[other()] != 0 {
		t.Errorf("%d users buy 100 units, want 50 that are this run's", len(bought))
	}
}

func TestWhatABenchExpectsOfAStrategy(t *testing.T) {
	within, across := client.Strategy{Claims: client.Claims{ExclusiveInProcess: true}}, client.Strategy{Claims: client.Claims{ExclusiveAcrossReplicas: true}}
	for _, c := range []struct {
		s    client.Strategy
		run  verdict.Run
		want bool
	}{
		{within, verdict.Run{Replicas: 1}, true},
		{within, verdict.Run{Replicas: 2}, false},
		{within, verdict.Run{Replicas: 2, Group: true}, false},
		{across, verdict.Run{Replicas: 2}, true},
		{client.Strategy{}, verdict.Run{Replicas: 1}, false},
		{client.Strategy{}, verdict.Run{Replicas: 1, Group: true}, true},
		{within, verdict.Run{}, true},
	} {
		if got := exclusive(c.s, c.run); got != c.want {
			t.Errorf("%+v on %d replicas, grouped %v: %v, want %v", c.s.Claims, c.run.Replicas, c.run.Group, got, c.want)
		}
	}
	known := []client.Strategy{{Name: "a"}, {Name: "b"}}
	if list, err := pick(known, "b", "", "a"); err != nil || len(list) != 2 || list[0].Name != "b" {
		t.Errorf("picked %+v (%v)", list, err)
	}
	if _, err := pick(known, "a", "c"); err == nil || err.Error() != `"c" is not a strategy; there are a, b` {
		t.Errorf("an unknown one: %v", err)
	}
}

// A bench of which nothing came says what most of its requests got.
func TestABenchOfWhichNothingCame(t *testing.T) {
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n++
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, `{"type": "urn:stockd:problem:%s"}`, []string{"busy", "internal", "busy"}[n%3]) //nolint:errcheck // the client notices
	}))
	defer s.Close()
	_, err := runLoad(t.Context(), load.Plan{URL: s.URL, GoodsID: 1, Clients: 1, Requests: 6, Timeout: time.Second})
	if err == nil || err.Error() != "none of 6 requests was sold: 4 × busy" {
		t.Errorf("%v, want what most of them got", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := runLoad(ctx, load.Plan{URL: s.URL, GoodsID: 1, Clients: 1, Requests: 6, Timeout: time.Second}); err != nil || r.Sent != 0 {
		t.Errorf("where none was sent: %+v, %v", r, err)
	}
}
