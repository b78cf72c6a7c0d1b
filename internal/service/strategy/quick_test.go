package strategy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// Another sale between the read and the write is a race lost: the row is read again, and both
// sales count.
func TestAnOptimisticWriterThatIsOvertakenReadsAgain(t *testing.T) {
	store := onSale(t, lab.Database(t, servers.SQLite), 10)
	entry, seen := entryOf(t, "sql-optimistic"), new(listener)
	deps := strategy.Deps{Store: store.As(entry.Name), Retry: strategy.Retry{Tries: 2}}
	other := entry.New(deps)
	deps.Failpoints = &betweenOnce{do: func() { buy(t, other, 1, 2) }}
	should.Do(t, oneOf(entry.New(observedBy(seen, deps)).Deduct(t.Context(), 1, []stock.Purchase{purchase(3)})))
	if audit, err := store.Audit(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 5 || seen.races != 1 {
		t.Errorf("after %d races lost the audit is %+v, %v; want one, and 5 sold", seen.races, audit, err)
	}
}

// One that is overtaken each time is busy, and sells nothing.
func TestAnOptimisticWriterGivesUp(t *testing.T) {
	store := onSale(t, lab.Database(t, servers.SQLite), 10)
	entry := entryOf(t, "sql-optimistic")
	deps := strategy.Deps{Store: store.As(entry.Name), Retry: strategy.Retry{Tries: 1}}
	other := entry.New(deps)
	deps.Failpoints = &betweenOnce{do: func() { buy(t, other, 1, 2) }}
	should.Fail(t, oneOf(entry.New(deps).Deduct(t.Context(), 1, []stock.Purchase{purchase(3)})), stock.ErrBusy)
	if audit, err := store.Audit(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 2 {
		t.Errorf("the audit is %+v, %v; want 2 sold", audit, err)
	}
}

// A batch that others overtake is offered again, and not for ever.
func TestABatchThatIsOvertakenIsOfferedAgain(t *testing.T) {
	store := onSale(t, lab.Database(t, servers.SQLite), 10)
	for overtaken, want := range map[int]error{19: nil, 20: stock.ErrBusy} {
		offered := 0
		s := strategy.Conditional(store.As("conditional"), func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (int64, error) {
			if offered++; offered <= overtaken {
				return 0, strategy.ErrDoesNotFit
			}
			left, _, err := tx.SubtractIfEnough(ctx, goodsID, units)
			return left, err
		})
		should.Fail(t, oneOf(s.Deduct(t.Context(), 1, []stock.Purchase{purchase(1)})), want, "overtaken … times it is answered with", overtaken)
	}
	if audit, err := store.Audit(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 1 {
		t.Errorf("the audit is %+v, %v; want one sold", audit, err)
	}
}

// forgetful is a lock whose tokens have fallen behind.
type forgetful struct {
	brokenLock
	reseeded *[]string
}

func (f forgetful) Reseed(_ context.Context, name string) error {
	*f.reseeded = append(*f.reseeded, name)
	return nil
}

// A token that the store has seen before rejects its holder, which is counted, and lifts the next
// tokens. What is decided anew under a lock keeps its token.
func TestATokenThatIsTooLowIsLifted(t *testing.T) {
	store := labtest.Open(t, lab.Database(t, servers.SQLite), "replica-1")
	must.Do(t, store.CreateGoods(t.Context(), 7, 10, rand.Text()))
	tokens, seen := new(atomic.Uint64), new(listener)
	var reseeded []string
	entry := strategy.Locked(lock.Entry{Name: "forgetful", New: func(lock.Deps) lock.Locker { return forgetful{brokenLock{tokens}, &reseeded} }})
	deps := strategy.Deps{Store: store.As(entry.Name), LockWait: time.Second}
	must.Get(deps.Store.ClaimFence(t.Context(), 7, 5))(t)
	fenced := entry.New(observedBy(seen, deps)).(strategy.Fencer) //nolint:forcetypeassert // a panic fails the test as well
	if err := oneOf(fenced.DeductFenced(t.Context(), 7, []stock.Purchase{purchase(1)})); !errors.Is(err, stock.ErrFenced) || !slices.Equal(reseeded, []string{"goods/7"}) || seen.fenced != 1 {
		t.Errorf("token 1 after 5 is answered with %v, the tokens of %v are lifted and %d writes are counted as late", err, reseeded, seen.fenced)
	}
	if err := oneOf(fenced.DeductFenced(t.Context(), 404, []stock.Purchase{purchase(1)})); !errors.Is(err, stock.ErrUnknownGoods) || len(reseeded) != 1 || seen.fenced != 1 {
		t.Errorf("an unknown item is answered with %v, the tokens of %v are lifted and %d writes are counted as late", err, reseeded, seen.fenced)
	}
	tokens.Store(8)
	if err := oneOf(fenced.DeductFenced(t.Context(), 7, []stock.Purchase{purchase(1)})); err != nil || len(reseeded) != 1 || seen.fenced != 1 {
		t.Errorf("token 9 after 5 is answered with %v, the tokens of %v are lifted and %d writes are counted as late", err, reseeded, seen.fenced)
	}
	other := entryOf(t, "naive").New(strategy.Deps{Store: store.As("naive")})
	deps.Failpoints = &betweenOnce{do: func() { buy(t, other, 7, 1) }}
	outcomes, err := entry.New(deps).Deduct(t.Context(), 7, []stock.Purchase{purchase(1)})
	if err != nil || outcomes[0].Order.Token != 10 || outcomes[0].Order.Remaining != 7 {
		t.Errorf("decided anew it is answered with %+v, %v; want token 10", outcomes, err)
	}
}

func TestEveryLockIsAStrategyThatKnowsTheTokensOfItsItem(t *testing.T) {
	for _, l := range registry.Locks() {
		entryOf(t, l.Name)
	}
	store := onSale(t, lab.Database(t, servers.SQLite), 10)
	var given lock.Deps
	tokens := new(atomic.Uint64)
	tokens.Store(6)
	entry := strategy.Locked(lock.Entry{Name: "seventh", New: func(d lock.Deps) lock.Locker {
		given = d
		return brokenLock{tokens}
	}})
	made := entry.New(strategy.Deps{Store: store.As(entry.Name), LockWait: time.Second})
	if err := oneOf(made.(strategy.Fencer).DeductFenced(t.Context(), 1, []stock.Purchase{purchase(1)})); err != nil { //nolint:forcetypeassert // a panic fails the test as well
		t.Error(err)
	}
	tokens.Store(math.MaxUint64) // the next is 0: the lock gives none
	other := entry.New(strategy.Deps{Store: store.As(entry.Name), LockWait: time.Second, Lock: lock.Deps{
		Issue: func(context.Context, string) (uint64, error) { return 8, nil },
	}})
	outcomes := must.Get(other.(strategy.Fencer).DeductFenced(t.Context(), 1, []stock.Purchase{purchase(1)}))(t) //nolint:forcetypeassert // the same
	should.Be(t, outcomes[0].Order.Token, 8, "without a token of its lock a sale is", outcomes)
	if given.Floor == nil || given.TriedInVain == nil {
		t.Fatal("the lock cannot ask for the tokens that the store has seen, or not report its tries")
	}
	should.Be(t, must.Get(given.Floor(t.Context(), "goods/1"))(t), 8, "the store has seen token")
}

// A batch that fails gives the turn of its item back: there are fewer of them than purchases that fail.
func TestAFailureKeepsNoTurn(t *testing.T) {
	store := onSale(t, lab.Database(t, servers.SQLite), 10)
	assertKeepsNoTurn(t, "sql-conditional", entryOf(t, "sql-conditional").New(strategy.Deps{Store: store.As("sql-conditional")}), 1)
}

func assertKeepsNoTurn(t *testing.T, name string, made strategy.Strategy, goods int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	deducts := []strategy.Deduct{made.Deduct}
	if joiner, ok := made.(strategy.Joiner); ok {
		deducts = append(deducts, func(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
			outcomes, err := joiner.DeductItems(ctx, []strategy.ItemBatch{{GoodsID: goodsID, Purchases: batch}})
			return slices.Concat(outcomes...), err
		})
	}
	for _, deduct := range deducts {
		known := purchase(1)
		if err := oneOf(deduct(ctx, goods, []stock.Purchase{known})); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 10 {
			should.Reject(deduct(ctx, goods, []stock.Purchase{known}))(t, stock.ErrDuplicateRequest, name, "a copy is answered with")
		}
		if err := oneOf(deduct(ctx, goods, []stock.Purchase{purchase(1)})); err != nil {
			t.Fatalf("%s after ten failures: %v", name, err)
		}
	}
}

// A batch of the procedure may have a reservation anywhere.
func TestAReservationIsNotSoldByTheProcedure(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		store := onSale(t, d, 10)
		made := entryOf(t, "sql-procedure").New(strategy.Deps{Store: store.As("sql-procedure")})
		assertKeepsNoTurn(t, "sql-procedure", made, 1)
		held := purchase(2)
		held.TTL, held.Number = time.Hour, "0190c7a0-0000-7000-8000-000000000000"
		outcomes, err := made.Deduct(t.Context(), 1, []stock.Purchase{purchase(1), held})
		if err != nil || outcomes[0].Rejected != nil || outcomes[1].Order.ID != held.Number {
			t.Errorf("a purchase and a reservation are answered with %+v, %v", outcomes, err)
		}
		if r, err := store.Reservation(t.Context(), held.Number); err != nil || r.State != stock.Held || r.Quantity != 2 {
			t.Errorf("the reservation is %+v, %v", r, err)
		}
	})
}

// The table of buyers is missing: an item without a limit is sold all the same, by
// every strategy that needs nothing but the database, to buyers who say who they are.
func TestAnItemWithoutALimitCountsNoBuyer(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		store := labtest.Open(t, d, "replica-1")
		pool, _, err := d.Pool(0, time.Second)
		must.Do(t, err)
		defer pool.Close() //nolint:errcheck // the test is over
		must.Get(pool.ExecContext(t.Context(), `DROP TABLE tb_stock_user`))(t)
		for i, entry := range strategy.Registry() {
			if len(entry.Needs) > 0 {
				continue
			}
			goods := int64(i + 1)
			must.Do(t, store.CreateGoods(t.Context(), goods, 3, rand.Text()))
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
