package service_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func TestAChoiceHoldsOnEveryReplica(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 3)
	other, late, asked := s.replicas[0], s.replicas[1], s.replicas[2] // the inventory is the last one's
	follow(t, other)
	s.create(t, 1, 10)
	choose := func(c stock.Choice) {
		t.Helper()
		must.Get(s.inventory.Change(t.Context(), 1, service.Change{Choice: func(stock.Choice) stock.Choice { return c }}))(t)
	}
	for _, c := range s.replicas {
		must.Do(t, c.SetDefault(service.Mode{Strategy: "sql-conditional"}))
	}
	own := func(c *service.Catalogue) service.Mode {
		_, own := c.Mode(1, stock.Choice{})
		return own
	}
	want := service.Mode{Strategy: "mutex", Group: true}
	choose(stock.Choice{Strategy: "mutex", Group: new(true)})
	should.Be(t, own(asked), want, "the replica that was asked sells by")
	soon(t, "another replica sells by it", func() bool { return own(other) == want })
	must.Do(t, late.LookAtSwitches(t.Context()))
	should.Be(t, own(late), want, "one that starts later sells by")
	choose(stock.Choice{})
	soon(t, "another replica sells by the default", func() bool { return own(other) == other.Default() })
}

func TestADefaultThatCannotSell(t *testing.T) {
	c := openAll(t, lab.Database(t, servers.SQLite)).replicas[0]
	must.Do(t, c.Enforce(service.Policy{OnlySafe: true}))
	should.Fail(t, c.Enforce(service.Policy{Deny: []string{"sql-unit", "hope"}}), service.ErrUnknownStrategy) // a policy that rejects a strategy that there is not
	for mode, want := range map[service.Mode]error{
		{Strategy: "sql-conditional", Group: true}: nil,
		{Strategy: "redis-setnx", Fence: true}:     nil,
		{Strategy: "redis-setnx"}:                  service.ErrStrategyRejected,
		{Strategy: "mutex"}:                        service.ErrStrategyRejected,
		{Strategy: "sql-conditional", Fence: true}: service.ErrNotFenceable,
		{Strategy: "hope"}:                         service.ErrUnknownStrategy,
	} {
		should.Fail(t, c.SetDefault(mode), want, mode)
	}
}

// rejected tells whether a replica rejects a strategy for a reason.
func rejected(c *service.Catalogue, name, reason string) bool {
	_, err := c.In(service.Mode{Strategy: name})
	return errors.Is(err, service.ErrStrategyRejected) && strings.Contains(err.Error(), reason)
}

func sells(c *service.Catalogue, name string) bool {
	_, err := c.In(service.Mode{Strategy: name})
	return err == nil
}

// follow has a replica follow the switches until the test is over.
func follow(t *testing.T, c *service.Catalogue) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() { c.KeepSwitches(ctx) })
	t.Cleanup(func() {
		cancel()
		keeping.Wait()
	})
}

// soon waits for what another replica has to learn.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	should.Be(t, labtest.Eventually(5*time.Second, is), true, what)
}

func TestASwitchHoldsOnEveryReplica(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 3)
	asked, other, late := s.replicas[0], s.replicas[1], s.replicas[2]
	follow(t, other)
	must.Do(t, asked.SwitchOff(t.Context(), "mutex", "it oversells"))
	if !rejected(asked, "mutex", "it oversells") {
		t.Error("the asked replica does not reject at once")
	}
	soon(t, "another replica rejects", func() bool { return rejected(other, "mutex", "it oversells") })
	if err := late.LookAtSwitches(t.Context()); err != nil || !rejected(late, "mutex", "it oversells") {
		t.Errorf("one that starts later sells all the same (%v)", err)
	}
	if !sells(other, "naive") {
		t.Error("a strategy is rejected that is not switched off")
	}
	if err := asked.SwitchOn(t.Context(), "mutex"); err != nil || !sells(asked, "mutex") {
		t.Errorf("the replica that switched it on rejects it (%v)", err)
	}
	soon(t, "another replica sells", func() bool { return sells(other, "mutex") })
}

// An item may have got its strategy through a replica that has the backend.
func TestItemsWithoutTheirBackendAreCounted(t *testing.T) {
	store, c := openEntries(t, strategy.Registry()...)
	must.Do(t, c.SetDefault(service.Mode{Strategy: "sql-conditional"}))
	for id, name := range map[int64]string{11: "redis-lua", 12: "redis-lua", 13: "mutex", 14: ""} {
		must.Do(t, store.Create(t.Context(), stock.NewItem{GoodsID: id, Units: 1, Choice: stock.Choice{Strategy: name}}, "create-"+strconv.FormatInt(id, 10)))
	}
	must.Do(t, c.LookAtSwitches(t.Context()))
	want := map[string]int{"strategy is rejected here: redis-lua, because redis is not configured": 2}
	if got := c.Unserved(); !maps.Equal(got, want) {
		t.Errorf("not served are %v, want %v", got, want)
	}
}

func TestNoSwitchChangesWhatTheConfigurationForbids(t *testing.T) {
	c := open(t, lab.Database(t, servers.SQLite), 1).replicas[0]
	must.Do(t, c.Enforce(service.Policy{OnlySafe: true, Deny: []string{"redis-setnx"}}))
	for name, because := range map[string]string{"naive": "strategies.only_safe", "redis-setnx": "strategies.deny"} {
		err := c.SwitchOn(t.Context(), name)
		if !errors.Is(err, service.ErrStrategyRejected) || !strings.Contains(err.Error(), because) || sells(c, name) {
			t.Errorf("%s is switched on (%v)", name, err)
		}
	}
	for _, err := range []error{c.SwitchOn(t.Context(), "hope"), c.SwitchOff(t.Context(), "hope", "it is none")} {
		should.Fail(t, err, service.ErrUnknownStrategy, "a name that is none")
	}
}

// The race detector watches.
func TestASwitchAmongPurchases(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 1)
	s.create(t, 1, 1000)
	c := s.replicas[0]
	follow(t, c)
	var buyers sync.WaitGroup
	for range 4 {
		buyers.Go(func() {
			for range 30 {
				_, err := buyersOf(c, nil, service.Mode{Strategy: "sql-conditional"}).Deduct(t.Context(), 1, keyed("", 1))
				if errors.Is(err, service.ErrStrategyRejected) {
					c.Describe(t.Context())
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		should.Do(t, errors.Join(c.SwitchOff(t.Context(), "sql-conditional", "a test"), c.SwitchOn(t.Context(), "sql-conditional")))
	}
	buyers.Wait()
}
