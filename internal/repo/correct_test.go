package repo_test

import (
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// What is counted is for sale and held. The audit has the correction, by totals, in full and from the archive.
func TestACorrectionIsItsOwnKindInLedgerFeedAndAudit(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 10)
		must.Do(t, sell(t.Context(), s, 1, "sold"))
		held := stock.Purchase{RequestID: "held", Quantity: 2, TTL: 1 << 40, Number: "0198f0c2-0000-7000-8000-000000000001"}
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			left, _, err := tx.SubtractIfEnough(t.Context(), 1, 2)
			if err == nil {
				_, err = tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{held}, Left: &left})
			}
			return err
		}))
		for i, c := range []struct {
			to   stock.Correction
			by   int64
			left int64
		}{
			{stock.Correction{Counted: new(int64(6)), Reason: "été 夏"}, -3, 4}, // 7 for sale and 2 held
			{stock.Correction{Counted: new(int64(6)), Reason: "again"}, 0, 4},
			{stock.Correction{By: 5, Reason: "found"}, 5, 9},
			{stock.Correction{By: -9, Reason: "fire"}, -9, 0},
		} {
			id := stock.CorrectionKey.Of(string(rune('a' + i)))
			by, err := s.Correct(t.Context(), 1, c.to, id)
			if row, failed := s.Goods(t.Context(), 1); err != nil || failed != nil || by != c.by || row.Stock != c.left {
				t.Errorf("%+v: by %d (%v) to %d (%v); want by %d to %d", c.to, by, err, row.Stock, failed, c.by, c.left)
			}
			found := must.Get(s.Orders(t.Context(), id))(t)[id]
			if found.Kind != stock.Correct || found.Quantity != c.by || found.Correction == nil || !found.Correction.Is(c.to) {
				t.Errorf("the ledger has %+v with %+v, want %+v", found, found.Correction, c.to)
			}
			should.Reject(s.Correct(t.Context(), 1, c.to, id))(t, stock.ErrDuplicateRequest)
		}
		for want, to := range map[error]stock.Correction{
			&stock.BelowZeroError{Stock: 0, Held: 2, Sold: 1, By: -1}: {By: -1},
			&stock.BelowZeroError{Stock: 0, Held: 2, Sold: 1, By: -2}: {Counted: new(int64(0))},
		} {
			_, err := s.Correct(t.Context(), 1, to, "below")
			if below, ok := errors.AsType[*stock.BelowZeroError](err); !ok || below.Error() != want.Error() {
				t.Errorf("%+v: %v, want %v", to, err, want)
			}
		}
		should.Reject(s.Correct(t.Context(), 1, stock.Correction{By: stock.MaxStock - 1}, "above"))(t, stock.ErrStockLimit, "above the limit")
		should.Reject(s.Correct(t.Context(), 2, stock.Correction{By: 1}, "other"))(t, stock.ErrUnknownGoods, "an unknown item")
		audited := func(when string) {
			t.Helper()
			for _, of := range []func() (stock.Audit, error){
				func() (stock.Audit, error) { return s.Audit(t.Context(), 1) },
				func() (stock.Audit, error) { return s.AuditInFull(t.Context(), 1) },
			} {
				if a, err := of(); err != nil || !a.Clean || a.Corrected != -7 || a.Stock != 0 || a.Held != 2 || a.Sold != 1 || a.Initial != 10 {
					t.Errorf("%s the audit is %+v, %v", when, a, err)
				}
			}
			all := must.Get(s.AuditAll(t.Context()))(t)
			should.Be(t, all, stock.Audits{Goods: 1}, when+", all audits")
		}
		audited("at first")
		must.Do(t, s.SettleAll(t.Context()), s.Age(t.Context()), s.SettleAll(t.Context()))
		audited("by totals")
		if steps := allPages(t, s, 1, 10, stock.Steps()...); len(steps) != 6 || steps[2].Kind != stock.Correct || steps[5].Kind != stock.Correct {
			t.Errorf("the steps are %+v", steps)
		}
		should.Be(t, len(allPages(t, s, 1, 10)), 1, "orders beside corrections")
	})
}
