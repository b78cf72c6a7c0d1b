package redisstock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// returned is a shop with three units, all of which 小明 bought, who may have no more, and gave back. Only the ledger
// knows of that yet. The replica reaches Redis and the database through proxies.
type returned struct {
	*shop
	replica, other *redisstock.Stock
	redis, sql     *servers.Proxy
	sold           []stock.Order
}

func openReturned(t *testing.T) *returned {
	t.Helper()
	server := lab.Redis(t)
	r := &returned{shop: open(t, server, 3), redis: labtest.NewProxy(t, server.Address)}
	r.replica, r.sql = r.replicaThrough(t, "a", at(r.redis.Address))
	r.other = r.shop.replica(t, "b")
	r.limit(t, r.other, 3)
	r.sold = orders(sell(t, r.other, by("小明", 3)))
	settle(t, r.other)
	r.giveBack(t, r.sold[0], 3)
	return r
}

// giveBack gives units of an order back in the ledger alone.
func (s *shop) giveBack(t *testing.T, o stock.Order, units int64) {
	t.Helper()
	must.Get(s.store.GiveBack(t.Context(), o.ID, units, stock.ReturnKey.Of(rand.Text()), false))(t)
}

func (r *returned) notify(t *testing.T, by *redisstock.Stock) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return by.Restocked(ctx, goods, 3, "小明")
}

// assertOnce sells exactly what came back: to its buyer, up to the limit, and nothing more to another one.
func (r *returned) assertOnce(t *testing.T) {
	t.Helper()
	r.sold = append(r.sold, sell(t, r.other, by("小明", 3)))
	assertHas(t, r.other, "小明", 3)
	rejects(t, r.replica, by("other", 1), stock.ErrInsufficientStock)
	r.assertExact(t, r.other, r.sold)
	r.assertBuyers(t, r.other)
}

// What comes back is sold again, once, whatever happens on its way to Redis, and wherever it stops.
func TestUnitsComeBackOnce(t *testing.T) {
	for name, happens := range map[string]func(*testing.T, *returned){
		"on time":                     func(t *testing.T, r *returned) { must.Do(t, r.notify(t, r.replica)) },
		"and the message never comes": func(*testing.T, *returned) {},
		"reported by all, again and again": func(t *testing.T, r *returned) {
			for range 3 {
				must.Do(t, r.notify(t, r.replica), r.notify(t, r.other))
			}
		},
		"reported before the buyer is known": func(t *testing.T, r *returned) {
			must.Do(t, r.other.Restocked(t.Context(), goods, 3), r.notify(t, r.replica))
		},
		"and the replica dies before they are allocated": func(t *testing.T, r *returned) {
			labtest.Lose(r.sql, "added = added", false)
			if r.notify(t, r.replica) == nil {
				t.Error("it was notified")
			}
		},
		"and the replica dies before Redis has them": func(t *testing.T, r *returned) {
			labtest.Lose(r.redis, "\r\nadd\r\n", false)
			if r.notify(t, r.replica) == nil {
				t.Error("it was notified")
			}
			r.assertReach(t, 0, 3, false)
		},
		"and the answer of Redis is lost": func(t *testing.T, r *returned) {
			labtest.Lose(r.redis, "\r\nadd\r\n", true)
			if r.notify(t, r.replica) == nil {
				t.Error("it was notified")
			}
			must.Do(t, r.notify(t, r.replica))
		},
		"late, in another epoch":    late(func(t *testing.T, r *returned) { r.rebuild(t, r.other) }),
		"late, to a closed counter": late(func(t *testing.T, r *returned) { recall(t, r.other) }),
		"late, after a recall and a sale": late(func(t *testing.T, r *returned) {
			recall(t, r.other)
			o := sell(t, r.other, by("小红", 1))
			settle(t, r.other)
			r.giveBack(t, o, 1)
			must.Do(t, r.other.Restocked(t.Context(), goods, 1, "小红"))
			r.sold = append(r.sold, o)
		}),
		"late, to a Redis that has forgotten": late(func(t *testing.T, r *returned) {
			must.Do(t, r.client.Del(t.Context(), r.key("goods:1"), r.key("users:1")).Err())
		}),
		"late, after it was sold and given back again": late(func(t *testing.T, r *returned) {
			must.Do(t, r.notify(t, r.other))
			o := sell(t, r.other, by("小明", 2))
			settle(t, r.other)
			r.giveBack(t, o, 2)
			must.Do(t, r.notify(t, r.other))
			r.sold = append(r.sold, o)
		}),
		"and the limit is set again meanwhile": late(func(t *testing.T, r *returned) {
			r.limit(t, r.other, 0) // buyers are counted anew
			r.limit(t, r.other, 3)
		}),
		"and the reconciler finds them": func(t *testing.T, r *returned) {
			labtest.Lose(r.redis, "\r\nadd\r\n", false)
			_ = r.notify(t, r.replica)
			for range 2 {
				must.Do(t, r.other.Reconcile(t.Context()))
			}
			if d, err := r.other.Drift(t.Context(), goods); err != nil || d.Redis != 3 || r.seen.repaired.Load() != 0 {
				t.Errorf("it has left %+v (%v), and %d counters rebuilt", d, err, r.seen.repaired.Load())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := openReturned(t)
			happens(t, r)
			r.assertOnce(t)
		})
	}
}

// late has an addition arrive after something else has happened.
func late(meanwhile func(*testing.T, *returned)) func(*testing.T, *returned) {
	return func(t *testing.T, r *returned) {
		t.Helper()
		held, notified := r.redis.Arm(servers.Rule{Sent: "\r\nadd\r\n", Do: servers.Hold}), make(chan error, 1)
		go func() { notified <- r.notify(t, r.replica) }()
		labtest.AwaitReached(t, held)
		meanwhile(t, r)
		held.Pass()
		if err := <-notified; err != nil {
			t.Logf("it has not waited for the answer: %v", err) // the addition arrives nevertheless
		}
	}
}

// What a buyer has through other strategies is not in the counter; what it gives back of that takes nothing off its
// purchases from Redis.
func TestWhatAnotherStrategySoldIsNotGivenBackTwice(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a := s.replica(t, "a")
	s.limit(t, a, 3)
	sell(t, a, by("other", 1))
	settle(t, a)
	s.addToRow(t, 5)
	var beside stock.Order
	must.Do(t, s.store.As("sql-conditional").InTx(t.Context(), func(tx *repo.Tx) error {
		batch := []stock.Purchase{by("小明", 2)}
		_, counted := tx.CountIn(t.Context(), goods, 3, batch)
		sold, written := tx.Append(t.Context(), repo.Sale{GoodsID: goods, Batch: batch})
		_, _, taken := tx.SubtractIfEnough(t.Context(), goods, 2)
		beside = sold[0]
		return errors.Join(counted, written, taken)
	}))
	sell(t, a, by("小明", 1))
	settle(t, a)
	s.giveBack(t, beside, 2)
	must.Do(t, a.Restocked(t.Context(), goods, 2, "小明"))
	assertHas(t, a, "小明", 1)
	sell(t, a, by("小明", 2))
	assertHas(t, a, "小明", 3)
	s.assertBuyers(t, a)
	if audit := s.audit(t); !audit.Clean || audit.Stock != 15-4 {
		t.Errorf("the audit is %+v", audit)
	}
}

// Units that come back begin no epoch, and read no other buyer.
func TestUnitsThatComeBackRebuildNothing(t *testing.T) {
	r := openReturned(t)
	before := must.Get(r.store.Allocation(t.Context(), goods, redisstock.Allocation))(t)
	steps := r.redis.Arm(servers.Rule{Sent: "\r\nsurvey\r\n", Nth: 1000, Do: servers.Count})
	for range 20 {
		must.Do(t, r.notify(t, r.replica))
		o := sell(t, r.replica, by("小明", 3))
		settle(t, r.other)
		r.giveBack(t, o, 3)
		r.sold = append(r.sold, o)
	}
	should.Be(t, steps.Seen(), 0, "a counter was surveyed")
	should.Be(t, must.Get(r.store.Allocation(t.Context(), goods, redisstock.Allocation))(t).Epoch, before.Epoch, "the epoch of the allocation")
	r.assertOnce(t)
}
