package strategy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// listener counts how often a lock was waited for and held.
type listener struct {
	strategy.Observer // nil: no other method may be called

	waited, held atomic.Int64
	took         [2]time.Duration // the last wait and the last lease
	batches      []int            // with so many purchases
	races        int              // lost
	fenced       int              // writes that came too late
}

func (l *listener) Waited(took time.Duration)       { l.waited.Add(1); l.took[0] = took }
func (l *listener) Held(took time.Duration, _ bool) { l.held.Add(1); l.took[1] = took }
func (l *listener) RaceLost()                       { l.races++ }
func (l *listener) Fenced()                         { l.fenced++ }
func (l *listener) Batched(purchases int)           { l.batches = append(l.batches, purchases) }

// observedBy has the listener observe a strategy on a store.
func observedBy(l *listener, d strategy.Deps) strategy.Deps {
	d.Observe = func(string) strategy.Observer { return l }
	return d
}

// A purchase waits for a lock once, and holds it, wherever there is one; the observer
// gets the same times as the buyer.
func TestEveryLockReportsItsWaitAndHold(t *testing.T) {
	eachWithoutServer(t, func(entry strategy.Entry, d strategy.Deps, goods int64) {
		seen, of := new(listener), ""
		d.Observe = func(name string) strategy.Observer { of = name; return seen }
		s := entry.New(d)
		closeAfter(t, s)
		outcomes, err := s.Deduct(t.Context(), goods, []stock.Purchase{{Quantity: 1, RequestID: rand.Text()}})
		if err != nil {
			t.Fatalf("%s: %v", entry.Name, err)
		}
		var times int64
		if entry.Guarantees.Fenceable || entry.Family == strategy.Process {
			times = 1
		}
		if waited, held := seen.waited.Load(), seen.held.Load(); waited != times || held != times || outcomes[0].Hold > 0 != (times > 0) {
			t.Errorf("%s waits %d times and holds %d times, want %d; its buyer got %s", entry.Name, waited, held, times, outcomes[0].Hold)
		}
		if waiter, waits := s.(strategy.Waiter); waits != (times > 0) || waits && (waiter.LockWait() != d.LockWait || of != entry.Name) {
			t.Errorf("%s is observed as %q; it waits for a lock: %v", entry.Name, of, waits)
		}
		should.Be(t, [2]time.Duration{outcomes[0].Wait, outcomes[0].Hold}, seen.took, entry.Name)
	})
}

// paused stops the first purchase under its lock.
type paused struct {
	looksOn

	reached, goOn chan struct{}
}

func (s *paused) Between(ctx context.Context, _ string, _ int64) context.Context {
	close(s.reached)
	<-s.goOn
	return ctx
}

func TestAWaitInVainIsReported(t *testing.T) {
	store := onSale(t, lab.Database(t, servers.SQLite), 10)
	for _, entry := range strategy.Registry() {
		if entry.Name != "mutex" && entry.Name != "channel" {
			continue
		}
		seen, still := new(listener), &paused{reached: make(chan struct{}), goOn: make(chan struct{})}
		s := entry.New(observedBy(seen, strategy.Deps{Store: store.As(entry.Name), LockWait: time.Minute, Failpoints: still}))
		first := make(chan error)
		go func() {
			first <- oneOf(s.Deduct(t.Context(), 1, []stock.Purchase{{Quantity: 1, RequestID: rand.Text()}}))
		}()
		<-still.reached
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		should.Fail(t, oneOf(s.Deduct(ctx, 1, []stock.Purchase{{Quantity: 1, RequestID: rand.Text(), MaxWait: 10 * time.Millisecond}})), stock.ErrBusy, entry.Name, "a wait in vain of 10 ms ended with")
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		if err := oneOf(s.Deduct(ctx, 1, []stock.Purchase{{Quantity: 1, RequestID: rand.Text()}})); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stock.ErrBusy) {
			t.Errorf("%s: a wait that its request ended is answered with %v, want %v", entry.Name, err, context.DeadlineExceeded)
		}
		cancel()
		close(still.goOn)
		should.Fail(t, <-first, nil, entry.Name)
		if waited, held := seen.waited.Load(), seen.held.Load(); waited != 3 || held != 1 {
			t.Errorf("%s waits %d times and holds %d times, want 3 and 1", entry.Name, waited, held)
		}
	}
}

// oneOf is what came of a batch of one.
func oneOf(outcomes []stock.Outcome, err error) error {
	if err != nil {
		return err
	}
	return outcomes[0].Rejected
}

// looksOn is a lab that does nothing but to note where it was asked.
type looksOn struct {
	between  []string
	recorded []string
}

func (l *looksOn) Record(name string, locker lock.Locker) lock.Locker {
	l.recorded = append(l.recorded, name)
	return locker
}

func (l *looksOn) Between(ctx context.Context, name string, goods int64) context.Context {
	l.between = append(l.between, fmt.Sprint(name, goods))
	return ctx
}

// A purchase passes each failpoint once, fenced or not, the first of an item or a later one; a
// fenced one has a token.
func TestEveryStrategyHasAPlaceForFaults(t *testing.T) {
	eachWithoutServer(t, func(entry strategy.Entry, d strategy.Deps, goods int64) {
		seen := new(looksOn)
		d.Failpoints = seen
		s := entry.New(d)
		closeAfter(t, s)
		buys := []strategy.Deduct{s.Deduct, s.Deduct, s.Deduct}
		if f, ok := s.(strategy.Fencer); ok {
			buys = append(buys, f.DeductFenced)
		}
		for i, deduct := range buys {
			outcomes, err := deduct(t.Context(), goods, []stock.Purchase{{Quantity: 1, RequestID: entry.Name + string(rune('a'+i))}})
			if err != nil {
				t.Errorf("%s: %v", entry.Name, err)
			} else if o := outcomes[0].Order; o.Remaining != int64(9-i) || i == 3 && o.Token == 0 {
				t.Errorf("%s sells %+v, want that %d units remain, and a token where it is fenced", entry.Name, o, 9-i)
			}
		}
		if audit, err := d.Store.Audit(t.Context(), goods); err != nil || !audit.Clean || audit.Sold != int64(len(buys)) {
			t.Errorf("%s: the audit is %+v, %v; want %d sold", entry.Name, audit, err, len(buys))
		}
		if len(seen.between) != len(buys) || seen.between[0] != fmt.Sprint(entry.Name, goods) {
			t.Errorf("%s came by %v in %d purchases", entry.Name, seen.between, len(buys))
		}
		if joiner, ok := s.(strategy.Joiner); ok {
			assertPlaceInSeveral(t, seen, d.Store, joiner, entry.Name, goods)
		}
		locked := entry.Guarantees.Fenceable || slices.Contains([]string{"mutex", "mutex-per-request", "mutex-in-tx"}, entry.Name)
		should.Be(t, locked, slices.Equal(seen.recorded, []string{entry.Name}), "the locks that are recorded are …", entry.Name, seen.recorded)
	})
}

// assertPlaceInSeveral sells a unit of two items together, and looks for the failpoint of each.
func assertPlaceInSeveral(t *testing.T, seen *looksOn, store *repo.Store, joiner strategy.Joiner, name string, goods int64) {
	t.Helper()
	other := goods + 500
	must.Do(t, store.CreateGoods(t.Context(), other, 10, fmt.Sprint(name, " other")))
	seen.between = nil
	items := []strategy.ItemBatch{{GoodsID: goods, Purchases: []stock.Purchase{purchase(1)}}, {GoodsID: other, Purchases: []stock.Purchase{purchase(1)}}}
	if _, err := joiner.DeductItems(t.Context(), items); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	should.Equal(t, seen.between, []string{fmt.Sprint(name, goods), fmt.Sprint(name, other)}, name, "came between two items by")
}

// eachWithoutServer calls with each strategy that SQLite is enough for, and with a
// goods of ten units of its own. The others are each one of guarded, as those with a
// lock in SQL are, or neither lock nor have a place for faults.
func eachWithoutServer(t *testing.T, do func(entry strategy.Entry, d strategy.Deps, goods int64)) {
	t.Helper()
	d := lab.Database(t, servers.SQLite)
	store := labtest.Open(t, d, "replica-1")
	locks := lab.Locks(t, d)
	for i, entry := range strategy.Registry() {
		if slices.ContainsFunc(entry.Needs, func(b backend.Name) bool { return locks.Has(b) != nil }) {
			continue
		}
		goods := int64(i + 1) // sql-bucket and sql-unit leave nothing in the row for others
		must.Do(t, store.CreateGoods(t.Context(), goods, 10, entry.Name))
		do(entry, strategy.Deps{
			Store: store.As(entry.Name), Lock: locks, LockWait: 5 * time.Second, Retry: strategy.Retry{Tries: 1}, Buckets: 2, UnitRows: 2,
		}, goods)
	}
}

func closeAfter(t *testing.T, s strategy.Strategy) {
	t.Helper()
	if closer, ok := s.(interface{ Close() error }); ok {
		should.Close(t, closer)
	}
}
