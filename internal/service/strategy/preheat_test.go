package strategy_test

import (
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// Redis is away in the middle of a copying: the mark of it is still there, and the
// replica goes on where it began, long before the mark expires.
func TestACopyingThatWasCutOffIsGoneOnWith(t *testing.T) {
	cuts := map[string]servers.Rule{
		"at its mark": {Sent: ":filling", Do: servers.LoseReply},
		"at its end":  {Sent: "\r\npersist\r\n", Do: servers.Lose},
	}
	server := lab.OwnRedis(t)
	way := labtest.NewProxy(t, server.Address)
	d := lab.Database(t, servers.SQLite)
	store := labtest.Open(t, d, "replica-1")
	var goods int64
	for _, entry := range copying() {
		for name, rule := range cuts {
			goods++
			t.Run(entry.Name+" "+name, func(t *testing.T) {
				if err := store.CreateGoods(t.Context(), goods, 10, rand.Text()); err != nil {
					t.Fatal(err)
				}
				s := newCopying(t, entry, store, locksAt(t, d, server, way.Address), "")
				cut := way.Arm(rule)
				_, _ = s.Deduct(t.Context(), goods, oneUnit()) // as it may be
				<-cut.Reached()
				for range 7 {
					outcomes, err := s.Deduct(t.Context(), goods, oneUnit())
					if err != nil || outcomes[0].Rejected != nil {
						t.Fatalf("after it was cut off: %+v (%v)", outcomes, err)
					}
				}
			})
		}
	}
}

// Items have the same ids in every database.
func TestDatabasesOnOneRedisShareNoCopy(t *testing.T) {
	for _, entry := range copying() {
		t.Run(entry.Name, func(t *testing.T) {
			for i, units := range []int64{3, 5} {
				d := lab.Database(t, servers.SQLite)
				store := labtest.Open(t, d, "replica-1")
				if err := store.CreateGoods(t.Context(), 1, units, rand.Text()); err != nil {
					t.Fatal(err)
				}
				s := newCopying(t, entry, store, lab.Locks(t, d, backend.Redis), "test-"+rand.Text())
				var sold int64
				for range units + 2 {
					if deduct(t, s) == nil {
						sold++
					}
				}
				if sold != units {
					t.Errorf("database %d sold %d, want %d", i+1, sold, units)
				}
			}
		})
	}
}

// An attempt has read the row before a restock, and puts its copy in place after it.
func TestARestockDuringACopyIsNotLost(t *testing.T) {
	server := lab.OwnRedis(t)
	way := labtest.NewProxy(t, server.Address)
	for _, entry := range copying() {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := labtest.Open(t, d, "replica-1")
			if err := store.CreateGoods(t.Context(), 1, 1, rand.Text()); err != nil {
				t.Fatal(err)
			}
			s := newCopying(t, entry, store, locksAt(t, d, server, way.Address), rand.Text())
			counted := way.Arm(servers.Rule{Sent: "watch", Do: servers.Hold})
			next := make(chan error, 1)
			go func() { next <- deduct(t, s) }()
			if err := counted.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			restock(t, store, 1)
			counted.Pass()
			if err := <-next; err != nil {
				t.Fatal(err)
			}
			if err := deduct(t, s); err != nil {
				t.Errorf("the unit of the restock is answered with %v", err)
			}
		})
	}
}

// Another replica replaces the copy between the take of a purchase, which found the
// old copy empty, and its look at the mark.
func TestACopyThatWasReplacedRejectsNoPurchase(t *testing.T) {
	server := lab.OwnRedis(t)
	way := labtest.NewProxy(t, server.Address)
	takes := map[string]string{"redis-decr": "decrby", "redis-list": "lpop"}
	for _, entry := range copying() {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := labtest.Open(t, d, "replica-1")
			if err := store.CreateGoods(t.Context(), 1, 1, rand.Text()); err != nil {
				t.Fatal(err)
			}
			prefix := rand.Text()
			slow := newCopying(t, entry, store, locksAt(t, d, server, way.Address), prefix)
			other := newCopying(t, entry, store, locksAt(t, d, server, server.Address), prefix)
			if err := deduct(t, slow); err != nil {
				t.Fatal(err)
			}
			taken := way.Arm(servers.Rule{Sent: takes[entry.Name], Do: servers.HoldReply})
			rejected := make(chan error, 1)
			go func() { rejected <- deduct(t, slow) }()
			if err := taken.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			restock(t, store, 2)
			if err := deduct(t, other); err != nil {
				t.Fatal(err)
			}
			taken.Pass()
			if err := <-rejected; err != nil {
				t.Errorf("one unit is left, and a purchase is answered with %v", err)
			}
		})
	}
}

// copying are the strategies that sell from a copy in Redis.
func copying() (entries []strategy.Entry) {
	for _, entry := range strategy.Registry() {
		if entry.Name == "redis-decr" || entry.Name == "redis-list" {
			entries = append(entries, entry)
		}
	}
	return entries
}

func newCopying(t *testing.T, entry strategy.Entry, store *repo.Store, locks lock.Deps, prefix string) strategy.Strategy {
	t.Helper()
	s := entry.New(strategy.Deps{
		Store: store.As(entry.Name), Lock: locks, LockWait: 3 * time.Second, Retry: strategy.Retry{Tries: 1},
		Hot: hot.Options{Prefix: prefix}, Log: slog.New(slog.DiscardHandler),
	})
	closeAfter(t, s)
	return s
}

// locksAt has Redis at another address than the server's own.
func locksAt(t *testing.T, d *servers.Database, server *servers.Redis, address string) lock.Deps {
	t.Helper()
	locks := lab.Locks(t, d)
	locks.RedisOptions = labtest.RedisOptions(server)
	locks.RedisOptions.Addresses = []string{address}
	locks.Redis = backend.NewRedis(locks.RedisOptions)
	return locks
}

// deduct buys one unit of item 1; the error is also why it was rejected.
func deduct(t *testing.T, s strategy.Strategy) error {
	t.Helper()
	outcomes, err := s.Deduct(t.Context(), 1, oneUnit())
	if err != nil {
		return err
	}
	return outcomes[0].Rejected
}

// restock adds units to item 1. No copy is notified.
func restock(t *testing.T, store *repo.Store, units int64) {
	t.Helper()
	if _, err := store.Restock(t.Context(), 1, units, rand.Text()); err != nil {
		t.Fatal(err)
	}
}

func oneUnit() []stock.Purchase {
	return []stock.Purchase{{Quantity: 1, RequestID: rand.Text()}}
}
