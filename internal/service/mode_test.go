package service_test

import (
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

func TestAChoiceHoldsOnEveryReplica(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 3)
	other, late, asked := s.replicas[0], s.replicas[1], s.replicas[2] // the inventory is the last one's
	follow(t, other)
	s.create(t, 1, 10)
	choose := func(c stock.Choice) {
		t.Helper()
		if _, err := s.inventory.Change(t.Context(), 1, service.Change{Choice: func(stock.Choice) stock.Choice { return c }}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range s.replicas {
		if err := c.SetDefault(service.Mode{Strategy: "sql-conditional"}); err != nil {
			t.Fatal(err)
		}
	}
	own := func(c *service.Catalogue) service.Mode {
		_, own := c.Mode(1, stock.Choice{})
		return own
	}
	want := service.Mode{Strategy: "mutex", Group: true}
	choose(stock.Choice{Strategy: "mutex", Group: new(true)})
	if got := own(asked); got != want {
		t.Errorf("the replica that was asked sells by %s, want %s", got, want)
	}
	soon(t, "another replica sells by it", func() bool { return own(other) == want })
	if err := late.LookAtSwitches(t.Context()); err != nil || own(late) != want {
		t.Errorf("one that starts later sells by %s (%v)", own(late), err)
	}
	choose(stock.Choice{})
	soon(t, "another replica sells by the default", func() bool { return own(other) == other.Default() })
}

func TestADefaultThatCannotSell(t *testing.T) {
	c := openAll(t, lab.Database(t, servers.SQLite)).replicas[0]
	if err := c.Enforce(service.Policy{OnlySafe: true}); err != nil {
		t.Fatal(err)
	}
	if err := c.Enforce(service.Policy{Deny: []string{"sql-unit", "hope"}}); !errors.Is(err, service.ErrUnknownStrategy) {
		t.Errorf("a policy that rejects a strategy that there is not: %v, want %v", err, service.ErrUnknownStrategy)
	}
	for mode, want := range map[service.Mode]error{
		{Strategy: "sql-conditional", Group: true}: nil,
		{Strategy: "redis-setnx", Fence: true}:     nil,
		{Strategy: "redis-setnx"}:                  service.ErrStrategyRejected,
		{Strategy: "mutex"}:                        service.ErrStrategyRejected,
		{Strategy: "sql-conditional", Fence: true}: service.ErrNotFenceable,
		{Strategy: "hope"}:                         service.ErrUnknownStrategy,
	} {
		if err := c.SetDefault(mode); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", mode, err, want)
		}
	}
}
