package service_test

import (
	"database/sql"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// An item is deleted by hand, what its locks keep is swept, and it is created anew. Its
// new holders have higher tokens than the old one, which must not write any more.
func TestAnItemThatIsCreatedAnewKeepsOldHoldersOut(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s, db := openAll(t, d), openPool(t, d)
		redis := labtest.RedisClient(lab.Redis(t))
		closeAfter(t, redis)
		item := int64(0)
		for _, entry := range strategy.Registry() {
			if !entry.Guarantees.Fenceable || d.Driver == repo.SQLite && slices.Contains(entry.Needs, backend.MySQL) {
				continue
			}
			item++
			t.Run(entry.Name, func(t *testing.T) {
				store := labtest.Open(t, d, "the old holder").As(entry.Name)
				fenced := s.in(t, 0, service.Mode{Strategy: entry.Name, Fence: true})
				s.create(t, item, 10)
				buy := func() {
					t.Helper()
					if o, err := fenced.Deduct(t.Context(), item, stock.Purchase{Quantity: 1}); err != nil || o.Rejected != nil {
						t.Fatal(err, o.Rejected)
					}
				}
				for range 5 {
					buy()
				}
				old, err := store.Fence(t.Context(), item)
				if err != nil || old == 0 {
					t.Fatalf("fenced by token %d: %v", old, err)
				}
				deleteItem(t, db, item)
				must.Get(s.replicas[1].Sweep(t.Context()))(t)
				name := fmt.Sprint("goods/", item)
				if n := count(t, db, `SELECT COUNT(*) FROM lock_token WHERE lock_name = ?`, name) +
					count(t, db, `SELECT COUNT(*) FROM distribute_lock WHERE lock_name = ?`, name); n != 0 {
					t.Errorf("%d rows are left of the locks of an item that was deleted", n)
				}
				// The counter of a lock in Redis has expired meanwhile.
				must.Do(t, redis.Del(t.Context(), fmt.Sprintf("stockd:{goods%%2F%d}:%s:token", item, entry.Name)).Err())
				s.create(t, item, 10)
				buy()
				should.Reject(store.ClaimFence(t.Context(), item, old))(t, stock.ErrFenced, "an old holder with token … gets", old)
			})
		}
	})
}

// A sweep clears what is of no item, and nothing of one that is on sale.
func TestASweepClearsWhatIsOfNoItem(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s, db := openAll(t, d), openPool(t, d)
		s.create(t, 1, 10)
		s.sells(t, "sql-insert-lock", 1, 1, 1)
		s.sells(t, "sql-version-lock", 1, 1, 1)
		// What is not named after an item is no item's.
		must.Get(db.ExecContext(t.Context(), `INSERT INTO lock_token (lock_name, token) VALUES ('another', 3)`))(t)
		const strangers = 1200
		tx := must.Get(db.BeginTx(t.Context(), nil))(t)
		for i := range strangers {
			name := fmt.Sprint("goods/", 1000+i)
			for _, statement := range []string{
				`INSERT INTO lock_token (lock_name, token) VALUES (?, 3)`,
				`INSERT INTO distribute_lock (lock_name, kind, version) VALUES (?, 'version', 4)`,
				`INSERT INTO record_lock (lock_name, owner, host, entry, depth, token, expires_at) VALUES (?, 'o', 'h', 'e', 1, 3, '2001-01-01 00:00:00')`,
			} {
				must.Get(tx.ExecContext(t.Context(), statement, name))(t)
			}
		}
		must.Do(t, tx.Commit())
		swept := must.Get(s.replicas[0].Sweep(t.Context()))(t)
		should.Be(t, swept, strangers, "the names that were swept")
		for table, want := range map[string]int{"lock_token": 3, "distribute_lock": 1, "record_lock": 0} {
			should.Be(t, count(t, db, `SELECT COUNT(*) FROM `+table), want, table)
		}
		s.sells(t, "sql-insert-lock", 1, 1)
		s.sells(t, "sql-version-lock", 1, 1)
	})
}

func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	must.Do(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

// openPool connects for what no store offers.
func openPool(t *testing.T, d *servers.Database) *sql.DB {
	t.Helper()
	db, _, err := backend.OpenPool(backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, LockWait: 5 * time.Second, ConnectTimeout: 5 * time.Second,
	})
	must.Do(t, err)
	closeAfter(t, db)
	return db
}

// deleteItem deletes the row of an item, as an admin may by hand.
func deleteItem(t *testing.T, db *sql.DB, goodsID int64) {
	t.Helper()
	must.Get(db.ExecContext(t.Context(), `DELETE FROM tb_goods_stock WHERE goods_id = ?`, goodsID))(t)
}

func closeAfter(t *testing.T, c io.Closer) {
	t.Helper()
	should.Close(t, c)
}

// TestAnItemSellsAtOnceThatAnotherReplicaHasCreated and is unknown again once its row was
// deleted by hand.
func TestAnItemSellsAtOnceThatAnotherReplicaHasCreated(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := open(t, d, 2)
		buy := func() error {
			_, err := s.strategy(t, 0, "sql-insert-lock").Deduct(t.Context(), 1, stock.Purchase{Quantity: 1})
			return err
		}
		should.Fail(t, buy(), stock.ErrUnknownGoods, "a sale")
		s.create(t, 1, 5)
		should.Do(t, buy())
		deleteItem(t, openPool(t, d), 1)
		for range 2 {
			should.Fail(t, buy(), stock.ErrUnknownGoods)
		}
	})
}
