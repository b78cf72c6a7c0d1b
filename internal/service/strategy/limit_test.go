package strategy_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// The table of buyers is missing: an item without a limit is sold all the same, by
// every strategy that needs nothing but the database, to buyers who say who they are.
func TestAnItemWithoutALimitCountsNoBuyer(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		store := labtest.Open(t, d, "replica-1")
		pool, _, err := d.Pool(0, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close() //nolint:errcheck // the test is over
		if _, err := pool.ExecContext(t.Context(), `DROP TABLE tb_stock_user`); err != nil {
			t.Fatal(err)
		}
		for i, entry := range strategy.Registry() {
			if len(entry.Needs) > 0 {
				continue
			}
			goods := int64(i + 1)
			if err := store.CreateGoods(t.Context(), goods, 3, rand.Text()); err != nil {
				t.Fatal(err)
			}
			made := entry.New(strategy.Deps{Store: store.As(entry.Name), LockWait: time.Second, Retry: strategy.Retry{Tries: 1}, Buckets: 2, UnitRows: 2})
			for _, units := range []int64{1, 2, 3} { // the last does not fit
				p := stock.Purchase{RequestID: rand.Text(), Quantity: units, UserID: "a-user"}
				outcomes, err := made.Deduct(t.Context(), goods, []stock.Purchase{p})
				if sold := units < 3; err != nil || (outcomes[0].Rejected == nil) != sold {
					t.Errorf("%s answers %d units with %v (%v)", entry.Name, units, outcomes, err)
				}
			}
		}
	})
}
