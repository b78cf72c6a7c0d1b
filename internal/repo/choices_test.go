package repo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// set makes a change of a function that cannot fail.
func set(change func(*stock.Choice)) func(stock.Choice) (stock.Choice, error) {
	return func(c stock.Choice) (stock.Choice, error) {
		change(&c)
		return c, nil
	}
}

func TestChoices(t *testing.T) {
	errWrong := errors.New("wrong")
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "one")
		own := stock.Choice{Strategy: "mutex", Group: new(true), Fence: new(false), MaxQuantity: new(int64(3))}
		all := stock.Choice{Strategy: "etcd", Group: new(false), Fence: new(true), MaxQuantity: new(int64(7))}
		must.Do(t, errors.Join(s.CreateGoods(t.Context(), 1, 5, "1"), s.Create(t.Context(), stock.NewItem{GoodsID: 2, Units: 5, Choice: own}, "2")))
		for _, step := range []struct {
			name   string
			item   int64
			change func(stock.Choice) (stock.Choice, error)
			err    error
			want   map[int64]stock.Choice
		}{
			{"a change that is no change", 1, set(func(*stock.Choice) {}), nil, map[int64]stock.Choice{2: own}},
			{"a first choice", 1, set(func(c *stock.Choice) { c.Fence = new(false) }), nil, map[int64]stock.Choice{1: {Fence: new(false)}, 2: own}},
			{"an error", 2, func(c stock.Choice) (stock.Choice, error) { return c, errWrong }, errWrong, map[int64]stock.Choice{1: {Fence: new(false)}, 2: own}},
			{"no change of all", 2, set(func(*stock.Choice) {}), nil, map[int64]stock.Choice{1: {Fence: new(false)}, 2: own}},
			{"a change of all", 2, set(func(c *stock.Choice) { *c = all }), nil, map[int64]stock.Choice{1: {Fence: new(false)}, 2: all}},
			{"a change back", 2, set(func(c *stock.Choice) { *c = own }), nil, map[int64]stock.Choice{1: {Fence: new(false)}, 2: own}},
			{"cleared", 1, set(func(c *stock.Choice) { *c = stock.Choice{} }), nil, map[int64]stock.Choice{2: own}},
			{"an unknown item", 3, set(func(c *stock.Choice) { *c = own }), stock.ErrUnknownGoods, map[int64]stock.Choice{2: own}},
		} {
			should.Fail(t, s.ChangeChoice(t.Context(), step.item, step.change), step.err, step.name)
			if got, err := s.Choices(t.Context()); err != nil || !reflect.DeepEqual(got, step.want) {
				t.Errorf("%s: %v (%v), want %v", step.name, got, err, step.want)
			}
		}
	})
}

// Each of many changes begins with what the one before it has left.
func TestChangesOfOneChoiceFollowEachOther(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		one, other := labtest.Open(t, d, "one"), labtest.Open(t, d, "other")
		must.Do(t, one.CreateGoods(t.Context(), 1, 5, ""))
		const changes = 10
		var changing sync.WaitGroup
		for _, s := range []*repo.Store{one, other} {
			changing.Go(func() {
				for range changes {
					should.Do(t, s.ChangeChoice(t.Context(), 1, set(func(c *stock.Choice) { c.Strategy += "x" })))
				}
			})
		}
		changing.Wait()
		if got, err := one.Choices(t.Context()); err != nil || len(got[1].Strategy) != 2*changes {
			t.Errorf("%d changes have left %q (%v)", 2*changes, got[1].Strategy, err)
		}
	})
}

func TestSwitches(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		one, other := labtest.Open(t, d, "one"), labtest.Open(t, d, "other")
		for _, step := range []struct {
			name string
			do   func() error
			want map[string]string
		}{
			{"nothing is off at first", func() error { return nil }, map[string]string{}},
			{"off", func() error { return one.SwitchOff(t.Context(), "mutex", "it oversells, 库存 < 0") }, map[string]string{"mutex": "it oversells, 库存 < 0"}},
			{"another one off", func() error { return other.SwitchOff(t.Context(), "naive", "so it does") }, map[string]string{"mutex": "it oversells, 库存 < 0", "naive": "so it does"}},
			{"off again, for another reason", func() error { return other.SwitchOff(t.Context(), "mutex", "as ever") }, map[string]string{"mutex": "as ever", "naive": "so it does"}},
			{"on", func() error { return one.SwitchOn(t.Context(), "mutex") }, map[string]string{"naive": "so it does"}},
			{"on again", func() error { return other.SwitchOn(t.Context(), "mutex") }, map[string]string{"naive": "so it does"}},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.name, err)
			}
			if got, err := one.SwitchedOff(t.Context()); err != nil || !maps.Equal(got, step.want) {
				t.Errorf("%s: %v are off (%v), want %v", step.name, got, err, step.want)
			}
		}
	})
}

// Each is in the feed once, in the order of the changes, for those that ask; what changes nothing is not. Audits are as
// without them.
func TestChangesOfAnItemAreInTheFeed(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "one")
		create(t, s, 1, 5)
		must.Do(t, s.CreateGoods(t.Context(), 2, 5, "another"))
		own := stock.Choice{Strategy: "mutex", Group: new(true), Fence: new(false), MaxQuantity: new(int64(3))}
		must.Do(t, s.SetLimit(t.Context(), 1, 4), s.SetLimit(t.Context(), 1, 4), s.SetLimit(t.Context(), 1, 2), s.SetLimit(t.Context(), 2, 1))
		for _, to := range []stock.Choice{own, own, {}} {
			must.Do(t, s.ChangeChoice(t.Context(), 1, set(func(c *stock.Choice) { *c = to })))
		}
		must.Get(s.Restock(t.Context(), 1, 7, stock.RestockKey.Of("more")))(t)
		must.Do(t, s.SetLimit(t.Context(), 1, 0))
		late, ever := time.Date(2099, 1, 2, 3, 4, 5, 6e6, time.UTC), time.Time{}
		for _, to := range []stock.SaleChange{{EndsAt: &late}, {EndsAt: &late}, {StartsAt: &ever}, {EndsAt: &ever}} {
			must.Do(t, s.SetSale(t.Context(), 1, to), s.TurnSale(t.Context(), 1))
		}
		must.Do(t, s.CloseSale(t.Context(), 1), s.CloseSale(t.Context(), 1))
		orders := allPages(t, s, 1, 2, stock.LimitSet, stock.ChoiceSet, stock.SaleSet, stock.Restock)
		closed := must.Get(s.GoodsOnSale(t.Context(), 1))(t).EndsAt.Format(time.RFC3339Nano)
		got := make([]string, 0, len(orders))
		for _, o := range orders {
			set, err := json.Marshal(o.Settings)
			must.Do(t, err)
			got = append(got, fmt.Sprint(o.Kind, " ", o.Quantity, " ", o.Strategy, " ", string(set)))
		}
		want := []string{
			`restock 5  null`, `limit 0  {"per_user":4}`, `limit 0  {"per_user":2}`,
			`strategy 0 mutex {"strategy":"mutex","group":true,"fenced":false,"max_quantity":3}`, `strategy 0  {}`,
			`restock 7  null`, `limit 0  {"per_user":0}`,
			`sale 0  {"ends_at":"2099-01-02T03:04:05.006Z"}`, `sale 0  {}`, `sale 0  {"ends_at":"` + closed + `"}`,
		}
		should.Equal(t, got, want, "the feed has")
		should.Be(t, len(allPages(t, s, 1, 10, stock.Steps()...)), 0, "rows for those that do not ask")
		if quick, full := bothAudits(t, s, 1); !quick.Clean || !full.Clean || quick.Stock != 12 {
			t.Errorf("the audits are %+v and %+v", quick, full)
		}
	})
}
