package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
)

// countPings counts the pings of a Redis, each of which takes a while.
func countPings(client redis.UniversalClient, takes time.Duration) *atomic.Int64 {
	count := new(atomic.Int64)
	client.AddHook(locktest.Hook(func(_ context.Context, send func() error, commands ...redis.Cmder) error {
		if commands[0].Name() == "set" {
			count.Add(1)
			time.Sleep(takes)
		}
		return send()
	}))
	return count
}

// However many ask for readiness, each backend is pinged about twice a second.
func TestPingsAreShared(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	locks := lab.Locks(t, d, backend.Redis)
	pings := countPings(locks.Redis, 50*time.Millisecond)
	c := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{Store: labtest.Open(t, d, "replica-1"), Lock: locks}, time.Second)
	should.Close(t, c)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range 200 {
		all.Go(func() {
			if i%2 == 0 {
				c.Describe(t.Context())
				return
			}
			list, err := c.Backends(t.Context())
			if err != nil || len(list) < 2 || list[1].Name != "redis" || list[1].Status != service.Up {
				t.Errorf("the backends are %+v, %v", list, err)
			}
		})
	}
	all.Wait()
	if most := 1 + int64(time.Since(begun)/(500*time.Millisecond)); pings.Load() > most {
		t.Errorf("200 requests at once ping Redis %d times, want %d at most", pings.Load(), most)
	}
	before := pings.Load()
	soon(t, "another ping", func() bool {
		_, err := c.Backends(t.Context())
		return err == nil && pings.Load() > before
	})
}

// One who leaves gets its own error, and spoils nothing for the others.
func TestACallerThatLeavesDoesNotEndTheOthersPing(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	const takes = 300 * time.Millisecond
	locks := lab.Locks(t, d, backend.Redis)
	pings := countPings(locks.Redis, takes)
	c := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{Store: labtest.Open(t, d, "replica-1"), Lock: locks}, time.Second)
	should.Close(t, c)
	hasty, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := c.Backends(hasty); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) >= takes {
		t.Errorf("one in a hurry gets %v after %s", err, time.Since(begun))
	}
	list, err := c.Backends(t.Context())
	if err != nil || list[1].Status != service.Up || pings.Load() != 1 {
		t.Errorf("the next gets %+v, %v after %d pings", list, err, pings.Load())
	}
}

// failing has a Redis answer a ping with an error, or, without one, not at all.
func failing(answer error) locktest.Hook {
	return func(ctx context.Context, send func() error, commands ...redis.Cmder) error {
		if commands[0].Name() != "set" {
			return send()
		}
		if answer != nil {
			return answer
		}
		<-ctx.Done()
		return fmt.Errorf("dial tcp 192.0.2.7:6379: %w", context.Cause(ctx))
	}
}

// answered is an error that is Redis' own answer.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

// A backend that hangs is down within a second, and one that takes no writes says why; neither delays or concerns
// anything else. Who asks does not learn its address.
func TestABackendThatHangsOrRejectsWritesIsNamed(t *testing.T) {
	for want, answer := range map[service.Backend]error{
		{Name: "redis", Status: service.Down, Note: "redis does not answer"}:                         nil,
		{Name: "redis", Status: service.Rejecting, Note: "redis rejects writes: its memory is full"}: answered("OOM command not allowed when used memory > 'maxmemory'."),
	} {
		d := lab.Database(t, servers.SQLite)
		locks := lab.Locks(t, d, backend.Redis)
		locks.Redis.AddHook(failing(answer))
		c := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{Store: labtest.Open(t, d, "replica-1"), Lock: locks}, time.Second)
		should.Close(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		list, err := c.Backends(ctx)
		if err != nil || list[0].Status != service.Up || list[1] != want {
			t.Errorf("the backends are %+v, %v", list, err)
		}
		for _, d := range c.Describe(ctx) {
			if onRedis := slices.Contains(d.Needs, "redis"); onRedis && (d.Available || !d.Enabled || d.Note != want.Note) || d.Name == "sql-conditional" && !d.Available {
				t.Errorf("%s is described as %+v", d.Name, d)
			}
		}
	}
}

// Each row is a strategy of a replica that has SQLite alone and sells what is safe.
func TestAStrategyIsListedAsItCanBeUsed(t *testing.T) {
	c := open(t, lab.Database(t, servers.SQLite), 1).replicas[0]
	must.Do(t, c.Enforce(service.Policy{OnlySafe: true, Deny: []string{"sql-bucket", "redis-reentrant"}}))
	must.Do(t, c.SwitchOff(t.Context(), "sql-optimistic", "too slow"))
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
		must.Do(t, c.SetDefault(service.Mode{Strategy: "sql-version-lock", Fence: fence}))
		if names := c.Names(); slices.Contains(names, "mutex") || slices.Contains(names, "sql-optimistic") || !slices.Contains(names, "sql-conditional") || !slices.Contains(names, "redis-lua") || slices.Contains(names, "redis-setnx") != fence {
			t.Errorf("fenced by default %v, requests may name %v", fence, names)
		}
	}
}

func TestABackendIsUpOrNotConfigured(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	store := labtest.Open(t, d, "replica-1")
	replica := func() *service.Catalogue {
		c := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{Store: store, Lock: lab.Locks(t, d)}, time.Second)
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
	should.Reject(c.Backends(ended))(t, context.Canceled)
	must.Do(t, store.Close())
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
