//go:build prove

package service_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
)

// What a large item of a shop has: reservations that are all overdue, and a ledger that is read from its beginning.
const (
	overdue = `INSERT INTO tb_reservation (number, goods_id, quantity, user_id, strategy, state, ttl, held_at, expires_at)
		SELECT CONCAT('r', seq), 1, 1, 'ann', 'sql-conditional', 'held', 1000, NOW(6), NOW(6) FROM seq_1_to_100000`
	sold = `INSERT INTO tb_stock_ledger (goods_id, kind, quantity, request_id, strategy, replica, created_at)
		SELECT 1, 'deduct', 1, CONCAT('r', seq), 'sql-conditional', 'replica-1', NOW(6) FROM seq_1_to_10000000 WHERE seq BETWEEN %d AND %d`
)

// TestProveTheTailOfAnItemBesideOneThatIsStuck prints what each operation of item 2 takes while item 1 is stuck, beside what it
// takes otherwise. It fails where one is not answered: how long is for the reader.
func TestProveTheTailOfAnItemBesideOneThatIsStuck(t *testing.T) {
	s, d := openStuckShop(t)
	columns := []string{"calm"}
	tails := map[string]map[string]time.Duration{"calm": s.tails(t)}
	measure := func(what string, stick func() (stop func())) {
		stop := stick()
		columns, tails[what] = append(columns, what), s.tails(t)
		stop()
	}
	for what, lock := range locks {
		measure(what+" locked", func() func() {
			stuck, stop := s.stick(t, d, lock)
			return func() { stop(); stuck.Wait() }
		})
	}
	db := openPool(t, d)
	for from := 1; from < 10_000_000; from += 10_000 { // more at once would keep the others from their ids
		execute(t, db, fmt.Sprintf(sold, from, from+9_999))
	}
	measure("10,000,000 sales audited", func() func() {
		return during(t, 1, func(ctx context.Context) error { _, err := s.inventory.AuditInFull(ctx, 1); return err })
	})
	measure("its feed is read", func() func() {
		page := service.Page{GoodsID: 1}
		return during(t, 4, func(ctx context.Context) error { return errOf(s.feed.List(ctx, "", page, 1000)) })
	})
	measure("its Redis is frozen", func() func() {
		server := must.Get(servers.StartRedis(t.Context(), labtest.StartSupervisor(t), servers.Local))(t)
		frozen := buyersOf(s.lockedBy(t, server), s.reservations, service.Mode{Strategy: "redis-lua"})
		must.Do(t, server.Pause(t.Context()))
		return during(t, 50, func(ctx context.Context) error {
			_, err := frozen.Buy(ctx, service.Request{GoodsID: 1, Purchase: keyed(rand.Text(), 1), Asked: frozen.asked})
			return err
		})
	})
	measure("100,000 holds expire", func() func() { execute(t, openPool(t, d), overdue); return func() {} })
	var out strings.Builder
	for _, column := range columns {
		fmt.Fprintf(&out, "%26s", column)
	}
	for _, name := range slices.Sorted(maps.Keys(tails["calm"])) {
		fmt.Fprintf(&out, "\n%-12s", name)
		for _, column := range columns {
			fmt.Fprintf(&out, "%12.1f%14s", tails[column][name].Seconds()*1000, "")
		}
	}
	t.Logf("the longest of 50, ms\n%12s%s", "", out.String())
}

// during has so many callers ask again and again, whatever is answered: they are there to be in the way.
func during(t *testing.T, callers int, ask func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for range callers {
		asking.Go(func() {
			for ctx.Err() == nil {
				_ = ask(ctx)
			}
		})
	}
	return func() { cancel(); asking.Wait() }
}

// lockedBy sells the same items by locks of a Redis.
func (s stuckShop) lockedBy(t *testing.T, server *servers.Redis) *service.Catalogue {
	t.Helper()
	return service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{
		Store: s.store, Retry: strategy.Retry{Tries: 1},
		Lock: lock.Deps{Clients: &backend.Clients{Redis: labtest.RedisClient(server)}, TTL: time.Minute},
	}, copiesWait)
}

// tails are the longest that each operation of item 2 takes, one at a time.
func (s stuckShop) tails(t *testing.T) map[string]time.Duration {
	t.Helper()
	tails := make(map[string]time.Duration)
	for name, each := range s.operations(t, 2, 50) {
		for _, do := range each {
			began := time.Now()
			s.goesOn(t, name, do)
			tails[name] = max(tails[name], time.Since(began))
		}
	}
	return tails
}
