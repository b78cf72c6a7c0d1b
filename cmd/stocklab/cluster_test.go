package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
)

// Three real replicas of this program on real servers, behind nginx.
func TestACluster(t *testing.T) {
	t.Parallel()
	cmdtest.NeedLocal(t)
	l := startLabOf(t, servers.Choice{Mode: servers.Local}, shop.Replicas{Count: 3, Env: []string{
		"STOCKD_LOCK_TTL=2s", // a holder that is killed keeps its lock for so long
		"STOCKD_LOCK_RETRY=10ms", "STOCKD_LOCK_WAIT=45s", "STOCKD_DEDUCT_TIMEOUT=90s", "STOCKD_REDIS_TIMEOUT=5s",
	}})
	t.Run("CopiesAreOneSale", func(t *testing.T) {
		for _, strategy := range []string{"sql-conditional", "redis-lua", "redis-stock"} {
			copiesAreOneSale(t, l, strategy)
		}
	})
	t.Run("AStrategyIsSwitchedOffOnAll", func(t *testing.T) { aStrategyIsSwitchedOffOnAll(t, l) })
	t.Run("AKilledReplicaDoesNotStopTheSale", func(t *testing.T) { aKilledReplicaDoesNotStopTheSale(t, l) })
}

// testLab is a cluster and what is under it.
type testLab struct {
	cluster  *shop.Cluster
	database *servers.Database
	missing  map[string]string // why a backend is not there, by its name
	local    bool              // everything is there that this machine has
	goods    *atomic.Int64     // the last that was created
}

// create makes an item for one test.
func (l testLab) create(t testing.TB, units int64) (goods int64) {
	t.Helper()
	goods = l.goods.Add(1)
	must.Do(t, l.cluster.Client().CreateGoods(t.Context(), goods, units))
	return goods
}

// startLabOf starts every backend of the choice that this machine has, and
// replicas on them.
func startLabOf(t testing.TB, choice servers.Choice, r shop.Replicas) testLab {
	t.Helper()
	return startReplicas(t, openShop(t, choice), r)
}

// openShop starts every backend of the choice that this machine has. They end with the test.
func openShop(t testing.TB, choice servers.Choice) *shop.Shop {
	t.Helper()
	choice.Volatile = true
	s := must.Get(shop.Open(t.Context(), shop.Options{Binary: os.Args[0], Servers: choice}))(t)
	t.Cleanup(func() { must.Do(t, s.Close(t.Context())) })
	return s
}

func startReplicas(t testing.TB, s *shop.Shop, r shop.Replicas) testLab {
	t.Helper()
	c := must.Get(s.Start(t.Context(), r))(t)
	return testLab{c, s.Servers.Database, s.Servers.Missing, !s.Embedded(), new(atomic.Int64)}
}

// needBackend skips a test whose backend is not on this machine, or fails it where the
// backend is required.
func (l testLab) needBackend(t *testing.T, backend string) {
	t.Helper()
	reason, missing := l.missing[backend]
	if missing && l.local {
		labtest.Need(t, strings.Replace(backend, "redlock", "redis", 1), false, reason)
	}
	if missing {
		t.Skip(reason)
	}
}

// Copies of one purchase arrive at three replicas at once.
func copiesAreOneSale(t *testing.T, l testLab, strategy string) {
	t.Helper()
	goods := l.create(t, 100)
	url := fmt.Sprintf("%s/deduct?goods_id=%d&strategy=%s", l.cluster.URL, goods, strategy)
	var mu sync.Mutex
	orders := make(map[string]int)
	var copies sync.WaitGroup
	for range 100 {
		copies.Go(func() {
			r := cmdtest.Ask(t, http.MethodPost, url)
			r.Header.Set("Idempotency-Key", "checkout-"+strategy)
			got := cmdtest.Do(r)
			var answer struct {
				OrderID   string `json:"order_id"`
				Remaining int64  `json:"remaining"`
				Detail    string `json:"detail"`
			}
			if err := json.Unmarshal([]byte(got.Text), &answer); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			orders[fmt.Sprint(got.Status, got.Kind, answer)]++
		})
	}
	copies.Wait()
	audit, err := l.cluster.Client().Audit(t.Context(), goods)
	if err != nil || audit.Orders != 1 || audit.Stock != 99 || len(orders) != 1 {
		t.Errorf("%s: %d orders, %d left (%v); the answers were %v", strategy, audit.Orders, audit.Stock, err, orders)
	}
}

// crashed are the locks whose holders die here, one of each backend: locktest kills a holder of every lock.
var crashed = []string{"sql-insert-lock", "redis-reentrant", "zk-sequential", "etcd"}

// When a replica dies in the middle of a sale, the others sell on, and what was
// sold is true: that is the claim that a crash is survived. They die in turn.
func aKilledReplicaDoesNotStopTheSale(t *testing.T, l testLab) {
	list := must.Get(l.cluster.Client().Strategies(t.Context()))(t)
	for turn, s := range list {
		if s.Guarantees.Fenceable && !slices.Contains(crashed, s.Name) {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			for _, backend := range s.Needs {
				l.needBackend(t, backend)
			}
			if !s.Available { // though what it needs is there
				t.Fatal(s.Note)
			}
			sellWhileAReplicaDies(t, l, s, l.cluster.Replicas[turn%3])
		})
	}
}

func sellWhileAReplicaDies(t *testing.T, l testLab, s service.Description, victim *shop.Replica) {
	t.Helper()
	units, requests := int64(200), 450
	if s.Guarantees.Fenceable { // several round trips a sale
		units, requests = 100, 180
	}
	goods := l.create(t, units)
	result := must.Get(load.Run(t.Context(), load.Plan{
		URL: l.cluster.URL, Strategy: s.Name, GoodsID: goods, Clients: 20, Requests: requests, Timeout: time.Minute,
		Progress: killOnce(t, victim, 30),
	}))(t)
	must.Do(t, victim.Start(t.Context()))
	audit := must.Get(l.cluster.Client().Audit(t.Context(), goods))(t)
	if audit.Orders < int64(result.Sold) || audit.Orders > int64(result.Sold+result.Unknown) {
		t.Errorf("%d orders, %d answers to buyers, %d unknown", audit.Orders, result.Sold, result.Unknown)
	}
	if s.Guarantees.ExclusiveAcrossReplicas && (!audit.Clean || s.Guarantees.SurvivesCrash && audit.Sold != units) {
		t.Errorf("guarantees to survive: %+v; %+v", audit, result)
	}
	if len(result.Replicas) < 2 || result.Sold < 60 {
		t.Errorf("the others did not sell on: %+v", result)
	}
}

// killOnce kills a replica when so many requests have been answered.
func killOnce(t *testing.T, victim *shop.Replica, after int) func(answered int) {
	t.Helper()
	var once sync.Once
	return func(answered int) {
		if answered < after {
			return
		}
		once.Do(func() {
			if err := victim.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the owner switches through one replica holds on all of them: on that one at
// once, on the others soon.
func aStrategyIsSwitchedOffOnAll(t *testing.T, l testLab) {
	t.Helper()
	goods := l.create(t, 100)
	owner := l.cluster.ClientOf(0)
	buy := func(replica int) cmdtest.Answer {
		return cmdtest.Do(cmdtest.Ask(t, http.MethodPost, fmt.Sprintf("%s/deduct?strategy=naive&goods_id=%d", l.cluster.ClientOf(replica).URL, goods)))
	}
	for _, c := range []struct {
		query string
		is    func(cmdtest.Answer) bool
	}{
		{"enabled=false&reason=it+oversells", func(got cmdtest.Answer) bool {
			return got.Kind == "strategy-refused" && strings.Contains(got.Text, "it is switched off: it oversells")
		}},
		{"enabled=true", func(got cmdtest.Answer) bool { return got.Status == http.StatusOK }},
	} {
		if got := cmdtest.Do(putSwitch(t, owner, "naive", c.query)); got.Status != http.StatusOK {
			t.Fatalf("%s is answered with %d %s", c.query, got.Status, got.Text)
		}
		if got := buy(0); !c.is(got) {
			t.Errorf("after %s the replica that was asked answers %d %s", c.query, got.Status, got.Text)
		}
		for replica := range l.cluster.Replicas {
			cmdtest.Await(t, fmt.Sprintf("replica %d after %s", replica+1, c.query), 5*time.Second, func() bool { return c.is(buy(replica)) })
		}
	}
}

func putSwitch(t *testing.T, owner shop.Client, name, query string) *http.Request {
	t.Helper()
	r := cmdtest.Ask(t, http.MethodPut, owner.AdminURL+"/strategies/"+name+"?"+query)
	r.Header.Set("Authorization", "Bearer "+owner.Token)
	return r
}
