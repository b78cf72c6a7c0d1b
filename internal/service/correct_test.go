package service_test

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// Units that a strategy has allocated are recalled for a correction, by whatever strategy the item is sold.
func TestACorrectionReachesUnitsInEveryAllocation(t *testing.T) {
	s := openAll(t, lab.Database(t, servers.MariaDB))
	for i, name := range []string{"sql-conditional", "sql-bucket", "sql-unit", "redis-stock", "redis-decr"} {
		t.Run(name, func(t *testing.T) {
			goods := int64(i + 1)
			s.create(t, goods, 20)
			s.sells(t, name, goods, 1, 1)
			s.settles(t, goods, 2)
			for _, c := range []struct {
				to   stock.Correction
				by   int64
				left int64
			}{
				{stock.Correction{By: -15, Reason: "fire"}, -15, 3},
				{stock.Correction{By: 4, Reason: "found"}, 4, 7},
				{stock.Correction{Counted: new(int64(5)), Reason: "counted"}, -2, 5},
				{stock.Correction{Counted: new(int64(6)), Reason: "counted again"}, 1, 6},
			} {
				for range 2 { // under one key once
					row, by, err := s.inventory.Correct(t.Context(), goods, c.to, name+c.to.Reason)
					if err != nil || by != c.by || row.Stock != c.left {
						t.Fatalf("%+v: by %d to %d (%v), want by %d to %d", c.to, by, row.Stock, err, c.by, c.left)
					}
				}
				should.Fail(t, errOf(s.inventory.Correct(t.Context(), goods, stock.Correction{By: 1, Reason: "other"}, name+c.to.Reason)), stock.ErrKeyReused, "the key with another correction")
				s.sells(t, name, goods, 1) // and the strategy allocates again
				soon(t, "the orders in the ledger", func() bool {
					audit, err := s.inventory.Audit(t.Context(), goods)
					return err == nil && audit.Pending != nil && *audit.Pending == 0
				})
				should.Fail(t, errOf(s.inventory.Correct(t.Context(), goods, stock.Correction{By: -c.left, Reason: "too much"}, "")), stock.ErrBelowZero, "one unit more than there are")
				must.Do(t, errOf(s.inventory.Correct(t.Context(), goods, stock.Correction{By: 1, Reason: "back"}, "")))
			}
			s.settles(t, goods, 6)
		})
	}
}
