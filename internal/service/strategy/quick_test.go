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
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// What the conformance suite tests of every strategy with crowds and servers, in a second
// without them: each row is a batch, in turn, of an item that began with ten units, three for
// each buyer at most.
func TestABatchIsSoldFirstComeFirstServed(t *testing.T) {
	buy := func(id, user string, units int64) stock.Purchase {
		return stock.Purchase{RequestID: id, UserID: user, Quantity: units}
	}
	eachWithoutServer(t, func(entry strategy.Entry, d strategy.Deps, goods int64) {
		t.Run(entry.Name, func(t *testing.T) {
			if err := d.Store.SetLimit(t.Context(), goods, 3); err != nil {
				t.Fatal(err)
			}
			made := entry.New(d)
			closeAfter(t, made)
			own := func(id string) string { return entry.Name + " " + id }
			keyed := buy(own("1"), "a", 2)
			keyed.Keyed = true
			var ids []string
			for _, c := range []struct {
				batch []stock.Purchase
				want  []error
				err   error
				sold  int64
			}{
				{[]stock.Purchase{keyed}, []error{nil}, nil, 2},
				{
					[]stock.Purchase{buy(own("2"), "b", 3), buy(own("3"), "a", 2), buy(own("4"), "", 1), buy(own("5"), "c", 3), buy(own("6"), "a", 1)},
					[]error{nil, stock.ErrUserLimit, stock.ErrUserUnknown, nil, nil},
					nil, 9,
				},
				{[]stock.Purchase{buy(own("7"), "d", 2), buy(own("1"), "e", 1)}, nil, stock.ErrDuplicateRequest, 9},
				{[]stock.Purchase{buy(own("8"), "d", 2), buy(own("9"), "e", 1), buy(own("10"), "f", 1)}, []error{stock.ErrInsufficientStock, nil, stock.ErrInsufficientStock}, nil, 10},
				{[]stock.Purchase{buy(own("11"), "d", 1)}, []error{stock.ErrInsufficientStock}, nil, 10},
			} {
				outcomes, err := made.Deduct(t.Context(), goods, c.batch)
				if !errors.Is(err, c.err) || len(outcomes) != len(c.want) {
					t.Fatalf("%v is answered with %v, %v; want %v, %v", c.batch, outcomes, err, c.want, c.err)
				}
				left := 10 - c.sold // after the last of the batch that is sold
				for i := len(c.batch) - 1; i >= 0 && i < len(outcomes); i-- {
					if o := outcomes[i].Order; outcomes[i].Rejected == nil {
						if o.Remaining != left {
							t.Errorf("%v of %v left %d, want %d", c.batch[i], c.batch, o.Remaining, left)
						}
						left += o.Quantity
					}
				}
				for i, want := range c.want {
					got, asked := outcomes[i], c.batch[i]
					if !errors.Is(got.Rejected, want) {
						t.Errorf("%v of %v: %v, want %v", asked, c.batch, got.Rejected, want)
					}
					if o := got.Order; want == nil && (o.RequestID != asked.RequestID || o.UserID != asked.UserID || o.Quantity != asked.Quantity || o.GoodsID != goods || o.Strategy != entry.Name || o.ID == "" || slices.Contains(ids, o.ID)) {
						t.Errorf("%v is sold as %+v", asked, o)
					}
					if want == nil {
						ids = append(ids, got.Order.ID)
					}
				}
				audit, err := d.Store.AuditInFull(t.Context(), goods)
				if err != nil || !audit.Clean || audit.Sold != c.sold || audit.Orders != int64(len(ids)) || audit.Stock != 10-c.sold {
					t.Errorf("after %v the audit is %+v, %v; want %d sold", c.batch, audit, err, c.sold)
				}
			}
			orders, err := d.Store.Orders(t.Context(), keyed.RequestID)
			if first := orders[keyed.RequestID]; err != nil || first.Remaining != 8 {
				t.Errorf("the ledger has %+v (%v) for a purchase with a key, want that 8 units remained", first, err)
			}
			if _, err := made.Deduct(t.Context(), goods+1000, []stock.Purchase{buy(own("12"), "a", 1)}); !errors.Is(err, stock.ErrUnknownGoods) {
				t.Errorf("an unknown item: %v", err)
			}
		})
	})
}

// Another sale between the read and the write is a race lost: the row is read again, and both
// sales count.
func TestAnOptimisticWriterThatIsOvertakenReadsAgain(t *testing.T) {
	store := labtest.Open(t, lab.Database(t, servers.SQLite), "replica-1")
	if err := store.CreateGoods(t.Context(), 1, 10, rand.Text()); err != nil {
		t.Fatal(err)
	}
	entry, seen := entryOf(t, "sql-optimistic"), new(listener)
	deps := strategy.Deps{Store: store.As(entry.Name), Retry: strategy.Retry{Tries: 2}}
	other := entry.New(deps)
	deps.Failpoints = &betweenOnce{do: func() { buy(t, other, 1, 2) }}
	if err := oneOf(entry.New(observedBy(seen, deps)).Deduct(t.Context(), 1, []stock.Purchase{purchase(3)})); err != nil {
		t.Error(err)
	}
	if audit, err := store.Audit(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 5 || seen.races != 1 {
		t.Errorf("after %d races lost the audit is %+v, %v; want one, and 5 sold", seen.races, audit, err)
	}
}

func TestEveryLockIsAStrategyThatKnowsTheTokensOfItsItem(t *testing.T) {
	for _, l := range registry.Locks() {
		entryOf(t, l.Name)
	}
	store := labtest.Open(t, lab.Database(t, servers.SQLite), "replica-1")
	if err := store.CreateGoods(t.Context(), 1, 10, rand.Text()); err != nil {
		t.Fatal(err)
	}
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
	outcomes, err := other.(strategy.Fencer).DeductFenced(t.Context(), 1, []stock.Purchase{purchase(1)}) //nolint:forcetypeassert // the same
	if err != nil || outcomes[0].Order.Token != 8 {
		t.Errorf("without a token of its lock a sale is %+v (%v), want the one that was issued", outcomes, err)
	}
	if given.Floor == nil || given.TriedInVain == nil {
		t.Fatal("the lock cannot ask for the tokens that the store has seen, or not report its tries")
	}
	if floor, err := given.Floor(t.Context(), "goods/1"); err != nil || floor != 8 {
		t.Errorf("the store has seen token %d (%v), want 8", floor, err)
	}
}
