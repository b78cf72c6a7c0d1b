package main

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
)

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
	s := must.Get(shop.Open(t.Context(), shop.Options{Servers: choice}))(t)
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
