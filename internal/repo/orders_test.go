package repo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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

// page reads one page, and checks what holds for each.
func page(t *testing.T, s *repo.Store, goodsID, after int64, limit int) (requests []string, next int64) {
	t.Helper()
	orders, next, err := s.OrdersAfter(t.Context(), goodsID, after, limit)
	must.Do(t, err)
	if next < after || len(orders) > limit {
		t.Errorf("a page of %d after %d has %d orders and ends at %d", limit, after, len(orders), next)
	}
	for _, o := range orders {
		if o.Kind != stock.Deduction || goodsID != 0 && o.GoodsID != goodsID || time.Since(o.CreatedAt).Abs() > time.Minute {
			t.Errorf("a page of item %d has %+v", goodsID, o)
		}
		requests = append(requests, o.RequestID)
	}
	return requests, next
}

func TestOrdersArePagedInTheOrderOfTheLedger(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		must.Do(t, s.CreateGoods(t.Context(), 2, 10, "two"))
		for i, goods := range []int64{1, 2, 1, 2, 1} {
			must.Do(t, sell(t.Context(), s, goods, fmt.Sprint("key-", i)))
		}
		for _, settled := range []bool{false, true} {
			first, next := page(t, s, 0, 0, 3)
			second, end := page(t, s, 0, next, 3)
			if got := slices.Concat(first, second); fmt.Sprint(got) != "[key-0 key-1 key-2 key-3 key-4]" || len(first) != 3 {
				t.Errorf("settled %v: the pages have %v and %v", settled, first, second)
			}
			if rest, next := page(t, s, 0, end, 3); len(rest) != 0 || next != end {
				t.Errorf("after the last order there are %v, and then %d; want none and %d", rest, next, end)
			}
			if rest, next := page(t, s, 0, end+7, 3); len(rest) != 0 || next != end+7 {
				t.Errorf("after a cursor that is ahead there are %v, and then %d; want none and %d", rest, next, end+7)
			}
			if two, next := page(t, s, 2, 0, 100); fmt.Sprint(two) != "[key-1 key-3]" || next != end {
				t.Errorf("item 2 has the orders %v up to %d, want two up to %d", two, next, end)
			}
			must.Do(t, settleNow(t, s))
		}
	})
}

// A row may be committed after rows with higher ids: nothing is listed beyond it.
func TestAnOpenTransactionEndsThePageUntilItIsOver(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		one := []stock.Purchase{{RequestID: "slow", Quantity: 1}}
		undo := errors.New("undo")
		for _, outcome := range []error{nil, undo} {
			_, before := page(t, s, 1, 0, 100)
			err := s.InTx(t.Context(), func(tx *repo.Tx) error {
				if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: one}); err != nil {
					return err
				}
				if err := sell(t.Context(), s, 1, "quick of "+one[0].RequestID); err != nil {
					return err
				}
				if got, next := page(t, s, 1, before, 100); len(got) != 0 || next != before {
					t.Errorf("beside an open transaction the page has %v up to %d, want none up to %d", got, next, before)
				}
				_, _, err := tx.SubtractIfEnough(t.Context(), 1, 1)
				return errors.Join(err, outcome)
			})
			if !errors.Is(err, outcome) {
				t.Fatal(err)
			}
			if outcome == nil {
				got, _ := page(t, s, 1, before, 100)
				should.Be(t, fmt.Sprint(got), "[slow quick of slow]", "after the commit the page has")
				one[0].RequestID = "undone"
				continue
			}
			if got, next := page(t, s, 1, before, 100); len(got) != 0 || next != before {
				t.Errorf("after the rollback the page has %v, want none before the gap is settled", got)
			}
			must.Do(t, settleNow(t, s))
			got, _ := page(t, s, 1, before, 100)
			should.Be(t, fmt.Sprint(got), "[quick of undone]", "when it is settled the page has")
		}
	})
}

// slowSale sells one unit in a transaction that stays open for a random time, and
// rolls some back.
func slowSale(ctx context.Context, s *repo.Store, requestID string) error {
	errUndone := errors.New("rolled back")
	err := s.InTx(ctx, func(tx *repo.Tx) error {
		one := []stock.Purchase{{RequestID: requestID, Quantity: 1}}
		if _, err := tx.Append(ctx, repo.Sale{GoodsID: 1, Batch: one}); err != nil {
			return err
		}
		time.Sleep(rand.N(20 * time.Millisecond)) // the transaction is slow: no race is hidden
		if rand.N(20) == 0 {
			return errUndone
		}
		return errOf(tx.SubtractIfEnough(ctx, 1, 1))
	})
	if errors.Is(err, errUndone) {
		return nil
	}
	return err
}

// Writers commit in any order and roll some back, while readers page all the while: each
// order is seen once, in order, and none is missed.
func TestNoOrderIsMissedUnderSlowCommitters(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 1_000_000)
		end := time.Now().Add(3 * time.Second)
		var writers, readers sync.WaitGroup
		for w := range 8 {
			writers.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					if err := slowSale(t.Context(), s, fmt.Sprintf("%d-%d", w, i)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		done := make(chan struct{})
		seen := make([][]string, 3)
		for r, goodsID := range []int64{0, 1, 1} {
			readers.Go(func() { seen[r] = follow(t, s, goodsID, 7+r, done) })
		}
		readers.Go(func() { settleOften(t, s, done) })
		writers.Wait()
		close(done)
		readers.Wait()
		for range 2 { // the first settles what was seen while they wrote
			must.Do(t, settleNow(t, s))
		}
		all, _ := page(t, s, 1, 0, 1_000_000)
		audit, err := s.AuditInFull(t.Context(), 1)
		if err != nil || audit.Orders != int64(len(all)) || len(all) < 100 {
			t.Fatalf("the ledger has %d orders, the audit is %+v (%v)", len(all), audit, err)
		}
		for r, got := range seen {
			if len(got) == 0 || !slices.Equal(got, all[:len(got)]) {
				t.Errorf("reader %d saw %d orders that are not the first of %d", r, len(got), len(all))
			}
		}
	})
}

// follow pages until it is done.
func follow(t *testing.T, s *repo.Store, goodsID int64, limit int, done <-chan struct{}) (seen []string) {
	t.Helper()
	var after int64
	for {
		orders, next, err := s.OrdersAfter(t.Context(), goodsID, after, limit)
		if err != nil {
			t.Error(err)
			return seen
		}
		for _, o := range orders {
			seen = append(seen, o.RequestID)
		}
		after = next
		select {
		case <-done:
			return seen
		default:
		}
	}
}

// settleOften settles what no transaction of this test can still write.
func settleOften(t *testing.T, s *repo.Store, done <-chan struct{}) {
	t.Helper()
	for {
		select {
		case <-done:
			return
		case <-time.After(200 * time.Millisecond):
		}
		err := s.SettleAll(t.Context())
		if err == nil {
			time.Sleep(200 * time.Millisecond) // longer than any transaction here
			err = s.Age(t.Context())
		}
		if err != nil && !errors.Is(err, stock.ErrBusy) {
			t.Error(err)
		}
	}
}

// A key of a client may stand for a restock, and for a purchase of each buyer: its orders
// are the purchases, that without a buyer first.
func TestTheOrdersOfAKeyArePurchases(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		must.Do(t, s.CreateGoods(t.Context(), 1, 10, stock.RestockKey.Of("k")))
		ids := []string{"k", stock.BuyerKey("k", "小明"), stock.BuyerKey("k", "小红")}
		for _, id := range append(ids, "k2", "K", "j") {
			must.Do(t, sell(t.Context(), s, 1, id))
		}
		slices.Sort(ids)
		for most := range len(ids) + 2 {
			orders := must.Get(s.OrdersOfKey(t.Context(), "k", most))(t)
			var found []string
			for _, o := range orders {
				found = append(found, o.RequestID)
			}
			should.Equal(t, found, ids[:min(most, len(ids))], "the first … orders of the key are", most)
		}
	})
}

// A reader goes on where more has been sold than a run has rows, though none of it is settled.
func TestAReaderGoesOnBeyondARun(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		const digits = "(SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
		must.Do(t, s.Exec(t.Context(), `INSERT INTO tb_stock_ledger (goods_id, kind, quantity, request_id, strategy, replica, created_at)
			SELECT 1, 'deduct', 1, CONCAT('many-', a.n, b.n, c.n, d.n, e.n), '', '', UTC_TIMESTAMP(6)
			FROM `+digits+" a, "+digits+" b, "+digits+" c, "+digits+" d, "+digits+" e WHERE e.n < 2"))
		seen, after := 0, int64(0)
		for range 10 {
			got, next := page(t, s, 1, after, 4000)
			seen, after = seen+len(got), next
		}
		should.Be(t, seen, 20_000, "a reader sees … orders of 20000")
	})
}
