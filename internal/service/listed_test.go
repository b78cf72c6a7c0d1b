package service_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
)

// Each row is a strategy of a replica that has SQLite alone and sells what is safe.
func TestAStrategyIsListedAsItCanBeUsed(t *testing.T) {
	c := open(t, lab.Database(t, servers.SQLite), 1).replicas[0]
	if err := c.Enforce(service.Policy{OnlySafe: true, Deny: []string{"sql-bucket", "redis-reentrant"}}); err != nil {
		t.Fatal(err)
	}
	if err := c.SwitchOff(t.Context(), "sql-optimistic", "too slow"); err != nil {
		t.Fatal(err)
	}
	listed := map[string]service.Description{}
	for _, d := range c.Describe(t.Context()) {
		listed[d.Name] = d
		if d.Note == "" && !d.Available {
			t.Errorf("%s is not available, and does not say why", d.Name)
		}
	}
	for name, want := range map[string]struct {
		enabled, available, fence bool
		needs, note               string
	}{
		"sql-conditional": {true, true, false, "sqlite", ""},
		"sql-bucket":      {false, false, false, "sqlite", "rejected here: strategies.deny names it"},
		"sql-optimistic":  {false, false, false, "sqlite", "rejected here: it is switched off: too slow"},
		"mutex":           {false, false, false, "sqlite", "rejected here: strategies.only_safe is set, and it does not guarantee"},
		"redis-reentrant": {false, false, false, "sqlite redis", "rejected here: strategies.deny names it"},
		"redis-lua":       {true, false, false, "sqlite redis", "redis"},
		"redis-setnx":     {true, false, true, "sqlite redis", "redis"},
		"etcd":            {true, false, false, "sqlite etcd", "etcd"},
	} {
		d, ok := listed[name]
		if !ok || d.Enabled != want.enabled || d.Available != want.available || d.RequiresFence != want.fence || strings.Join(d.Needs, " ") != want.needs || !strings.Contains(d.Note, want.note) || (d.Note == "") != (want.note == "") {
			t.Errorf("%s is listed as %+v, want %+v", name, d, want)
		}
	}
	for _, e := range strategy.Registry() {
		caveat := e.Caveat("sqlite")
		if d := listed[e.Name]; d.Damage != e.Damage || d.SeveralItems != e.SeveralItems || d.Hidden != caveat.Hides || d.Available && d.Note != caveat.Words {
			t.Errorf("%s is listed as %+v, and registered as %+v", e.Name, d, e)
		}
		if d := listed[e.Name]; d.Summary != e.Summary || d.Family != e.Family || d.Guarantees != e.Guarantees {
			t.Errorf("%s is listed as %+v, and registered as %+v", e.Name, d, e)
		}
		if d := listed[e.Name]; slices.Contains(d.Needs, "mysql") || slices.Contains(d.Needs, "database") {
			t.Errorf("%s needs %v beside the database", e.Name, d.Needs)
		}
	}
	assertNames(t, c)
}

// assertNames looks at what requests may name, fenced by default and not.
func assertNames(t *testing.T, c *service.Catalogue) {
	t.Helper()
	for _, fence := range []bool{false, true} { // redis-setnx needs one
		if err := c.SetDefault(service.Mode{Strategy: "sql-version-lock", Fence: fence}); err != nil {
			t.Fatal(err)
		}
		if names := c.Names(); slices.Contains(names, "mutex") || slices.Contains(names, "sql-optimistic") || !slices.Contains(names, "sql-conditional") || !slices.Contains(names, "redis-lua") || slices.Contains(names, "redis-setnx") != fence {
			t.Errorf("fenced by default %v, requests may name %v", fence, names)
		}
	}
}

func TestABackendIsUpOrNotConfigured(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	store := labtest.Open(t, d, "replica-1")
	replica := func() *service.Catalogue {
		c, err := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{Store: store, Lock: lab.Locks(t, d)}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // its database is gone
		return c
	}
	c := replica()
	list, err := c.Backends(t.Context())
	if err != nil || len(list) < 4 {
		t.Fatalf("the backends are %+v, %v", list, err)
	}
	for i, b := range list {
		if want := map[bool]string{true: service.Up, false: service.NotConfigured}[i == 0]; b.Status != want || b.Note != "" {
			t.Errorf("%+v, want %s", b, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Backends(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended gets %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	gone := replica()
	list, err = gone.Backends(t.Context())
	if err == nil || list[1].Status != service.NotConfigured {
		t.Errorf("without its database: %+v, %v", list, err)
	}
	for _, d := range gone.Describe(t.Context()) {
		if d.Available || d.Note == "" {
			t.Errorf("without its database %s is available, or does not say why not: %+v", d.Name, d)
		}
	}
}

func TestASaleIsInTheLedgerUnderItsStrategy(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 1)
	for i, name := range s.names() {
		goods := int64(i + 1)
		s.create(t, goods, 2)
		sold, err := s.strategy(t, 0, name).Deduct(t.Context(), goods, keyed(name, 1))
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.replicas[0].Order(t.Context(), sold.Order.ID)
		if err != nil || found.Strategy != name || sold.Order.Strategy != name || found.Replica != "replica-1" || found.GoodsID != goods {
			t.Errorf("%s: sold as %+v, and found as %+v (%v)", name, sold.Order, found, err)
		}
	}
}
