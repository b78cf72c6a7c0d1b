package repo_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// settleNow sees what there is, and settles it without the wait.
func settleNow(t *testing.T, s *repo.Store) error {
	t.Helper()
	if err := s.SettleAll(t.Context()); err != nil {
		return err
	}
	must.Do(t, s.Age(t.Context()))
	return s.SettleAll(t.Context())
}

// bothAudits are the audit by totals and the one in full.
func bothAudits(t *testing.T, s *repo.Store, goodsID int64) (quick, full stock.Audit) {
	t.Helper()
	quick, err := s.Audit(t.Context(), goodsID)
	if err == nil {
		full, err = s.AuditInFull(t.Context(), goodsID)
	}
	must.Do(t, err)
	return quick, full
}

func unsettled(t *testing.T, s *repo.Store) int64 {
	t.Helper()
	return must.Get(s.Unsettled(t.Context()))(t)
}

func TestAFullAuditVerifiesTheTotals(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		must.Do(t, settleNow(t, s))
		must.Do(t, s.SpoilTotals(t.Context()))
		if quick, full := bothAudits(t, s, 1); quick.Clean || !full.Clean {
			t.Errorf("with wrong totals the audit is %+v, in full %+v", quick, full)
		}
	})
}

// A row may be committed after rows with higher ids. However long its transaction
// has been open, it is not passed over.
func TestATransactionThatIsOpenIsWaitedFor(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		impatient := impatient(t, d)
		one := []stock.Purchase{{RequestID: "slow", Quantity: 1}}
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: one}); err != nil {
				return err
			}
			if err := sell(t.Context(), s, 1, "quick"); err != nil {
				return err
			}
			should.Fail(t, settleNow(t, impatient), stock.ErrBusy)
			return errOf(tx.SubtractIfEnough(t.Context(), 1, 1))
		}))
		must.Do(t, settleNow(t, impatient))
		quick, full := bothAudits(t, s, 1)
		if quick != full || quick.Orders != 2 || !quick.Clean || unsettled(t, s) != 0 {
			t.Errorf("the audit is %+v, in full %+v; want both sales", quick, full)
		}
	})
}

// Settlers, an archive and buyers at once: no row is lost, and none counts twice.
func TestTotalsAreRightUnderACrowd(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").ArchivingAtOnce()
		create(t, s, 1, 1_000_000)
		var sold atomic.Int64
		end := time.Now().Add(1500 * time.Millisecond)
		var crowd sync.WaitGroup
		for b := range 6 {
			crowd.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					if err := sell(t.Context(), s, 1, fmt.Sprintf("%d-%d", b, i)); err != nil {
						t.Error(err)
						return
					}
					sold.Add(1)
				}
			})
		}
		for _, ages := range []bool{true, false} {
			crowd.Go(func() {
				for time.Now().Before(end) {
					err := s.SettleAll(t.Context())
					if ages && err == nil {
						time.Sleep(100 * time.Millisecond) // the while, shortened
						_, moveErr := s.Archive(t.Context(), time.Now(), 30)
						err = errors.Join(s.Age(t.Context()), moveErr)
					}
					if err != nil && !errors.Is(err, stock.ErrBusy) {
						t.Error(err)
						return
					}
				}
			})
		}
		crowd.Wait()
		early := unsettled(t, s)
		live, archived, err := s.Rows(t.Context())
		if must.Do(t, err); len(archived) == 0 || int64(len(live)+len(archived)) != sold.Load()+1 {
			t.Errorf("of %d sales and a restock the ledger has %d rows, and the archive %d", sold.Load(), len(live), len(archived))
		}
		if quick, full := bothAudits(t, s, 1); quick != full || quick.Orders != sold.Load() || !quick.Clean {
			t.Errorf("the audit is %+v, in full %+v; want %d sales", quick, full, sold.Load())
		}
		if early >= sold.Load() {
			t.Errorf("%d ids of %d sales are not settled: nothing was while they were made", early, sold.Load())
		}
	})
}

// What one item has too much must not hide what another one lacks.
func TestTheAuditOfAllGoodsAddsUpEachKindOfFailure(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		for id, key := range map[int64]string{2: "two", 3: "three", 4: "four"} {
			must.Do(t, s.CreateGoods(t.Context(), id, 10, key))
		}
		must.Do(t, sell(t.Context(), s, 1, "before"))
		must.Do(t, settleNow(t, s))
		must.Do(t, sell(t.Context(), s, 1, "after"))
		auditsAll(t, s, stock.Audits{Goods: 4})
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			two, err := tx.Goods(t.Context(), 2)
			three, err3 := tx.Goods(t.Context(), 3)
			return errors.Join(err, err3, tx.SetStock(t.Context(), two, 13), tx.SetStock(t.Context(), three, 6))
		}))
		auditsAll(t, s, stock.Audits{Goods: 4, Lost: 3, Vanished: 4})
		must.Do(t, s.SpoilTotals(t.Context()))
		// A sale of each item that never was: 1 and 4 show one unit more than is left,
		// 2 one more than before, and 3 lacks one less.
		auditsAll(t, s, stock.Audits{Goods: 4, Lost: 1 + 4 + 1, Vanished: 3})
	})
}

// moves are all that can become of units: the figures after each are those before it, and what it adds.
func moves(t *testing.T, s *repo.Store) []func() (left, held, sold, returned int64) {
	t.Helper()
	all, paid := endings(), ""
	end := func(state stock.State, units int64) { all[state](t, s, hold(t, s, 1, units, "")) }
	return []func() (left, held, sold, returned int64){
		func() (_, _, _, _ int64) { create(t, s, 1, 100); return 100, 0, 0, 0 },
		func() (_, _, _, _ int64) { takeSold(t, s, 1); return -1, 0, 1, 0 },
		func() (_, _, _, _ int64) { must.Get(s.Restock(t.Context(), 1, 5, "more"))(t); return 5, 0, 0, 0 },
		func() (_, _, _, _ int64) { hold(t, s, 1, 2, ""); return -2, 2, 0, 0 },
		func() (_, _, _, _ int64) {
			paid = hold(t, s, 1, 4, "")
			all[stock.Confirmed](t, s, paid)
			return -4, 0, 4, 0
		},
		func() (_, _, _, _ int64) { end(stock.Released, 8); return 0, 0, 0, 0 },
		func() (_, _, _, _ int64) { end(stock.Expired, 16); return -16, 16, 0, 0 },
		func() (_, _, _, _ int64) { expireAll(t, s); return 16, -16, 0, 0 },
		func() (_, _, _, _ int64) {
			for i := range 2 { // in two steps of the totals, or in one
				must.Get(s.GiveBack(t.Context(), paid, 1, stock.ReturnKey.Of(fmt.Sprint(i)), false))(t)
			}
			return 2, 0, 0, 2
		},
		func() (_, _, _, _ int64) { hold(t, s, 1, 5, ""); return -5, 5, 0, 0 },
		func() (_, _, _, _ int64) {
			must.Get(s.GiveBack(t.Context(), paid, 2, stock.ReturnKey.Of("rest"), false))(t)
			return 2, 0, 0, 2
		},
		func() (_, _, _, _ int64) {
			must.Get(s.Fill(t.Context(), 1, "elsewhere", 0))(t)
			return 0, 0, 0, 0
		},
	}
}

func takeSold(t *testing.T, s *repo.Store, item int64) {
	t.Helper()
	must.Do(t, sell(t.Context(), s, item, fmt.Sprint("sold of ", item)))
}

// However much of the ledger is settled, every audit has every kind of its rows.
func TestEveryAuditHasEveryKindOfRow(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		var left, held, sold, returned int64
		for _, move := range moves(t, s) {
			l, h, so, r := move()
			left, held, sold, returned = left+l, held+h, sold+so, returned+r
			for range 2 { // and again, when it is settled
				wantSums(t, s, left, held, sold, returned)
				auditsAll(t, s, stock.Audits{Goods: 1})
				must.Do(t, settleNow(t, s))
			}
		}
	})
}

// Units that were sold and were never there are oversold, and those of one item are not made up for by another.
func TestTheAuditOfAllGoodsCountsWhatIsOversold(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	createItems(t, s, 3) // of ten units
	for item, units := range map[int64]int64{1: 11, 2: 13} {
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			row, err := tx.Goods(t.Context(), item)
			if err != nil {
				return err
			}
			if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: item, Batch: []stock.Purchase{{RequestID: fmt.Sprint(item), Quantity: units}}}); err != nil {
				return err
			}
			return tx.SetStock(t.Context(), row, 0)
		}))
	}
	for range 2 { // and again, when it is settled
		auditsAll(t, s, stock.Audits{Goods: 3, Oversold: 1 + 3, Lost: 1 + 3})
		must.Do(t, settleNow(t, s))
	}
}

// A step has no more than 50,000 ids, and a thousand items in a statement; SettleAll takes as many as there are.
func TestSettlingGoesOnUntilAllIsSettled(t *testing.T) {
	const items = 1001
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	must.Do(t, s.StockMany(t.Context(), items))
	for _, last := range []int64{120_000, 360_000} {
		must.Do(t, s.SkipIDs(t.Context(), last))
		takeSold(t, s, last/120_000)
		if more, err := s.Settle(t.Context()); err != nil || more {
			t.Fatalf("what is seen first is settled: %v (%v)", more, err)
		}
		if last > 120_000 {
			must.Do(t, s.SettleAll(t.Context()))
		} else {
			for i, want := range []bool{true, true, false} {
				should.Be(t, must.Get(s.Settle(t.Context()))(t), want, "after step … there are more", i)
			}
		}
		should.Be(t, unsettled(t, s), 0, "ids are not settled")
		auditsAll(t, s, stock.Audits{Goods: items})
	}
}

func auditsAll(t *testing.T, s *repo.Store, want stock.Audits) {
	t.Helper()
	got := must.Get(s.AuditAll(t.Context()))(t)
	should.Be(t, got, want, "all goods audit as")
}
