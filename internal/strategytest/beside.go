package strategytest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// beside is what can happen to an item in the middle of a sale: after the strategy
// has read the stock and before it writes, or before the database commits.
type beside struct {
	name  string
	needs []backend.Name
	// twice has it happen before the sale begins, too.
	twice bool
	// do returns how many units it restocked, and how many it sold.
	do func(t *testing.T, s *subject, goodsID int64) (restocked, sold int64)
}

const (
	besideStock   = 10
	besideRestock = 50
	besideSale    = 3
)

func changesBeside() []beside {
	return []beside{
		{name: "ARestock", do: func(t *testing.T, s *subject, goodsID int64) (restocked, sold int64) {
			s.restock(t, goodsID, besideRestock)
			return besideRestock, 0
		}},
		{name: "ALimit", do: func(t *testing.T, s *subject, goodsID int64) (restocked, sold int64) {
			s.limit(t, goodsID, besideSale-1)
			return 0, 0
		}},
		{name: "UnitsMovedToBuckets", do: sellsBy("sql-bucket")},
		{name: "UnitsMovedToRowsOfTheirOwn", do: sellsBy("sql-unit")},
		{name: "UnitsMovedToRedis", needs: []backend.Name{backend.Redis}, do: sellsBy("redis-stock")},
		{name: "ASaleByTheDatabase", do: sellsBy("sql-conditional")},
		{name: "AThirdSaleByTheDatabase", twice: true, do: sellsBy("sql-conditional")},
		{name: "ASaleUnderARowLock", do: sellsBy("sql-for-update")},
		{name: "ASaleUnderAnotherLock", do: sellsBy("sql-insert-lock")},
	}
}

func sellsBy(name string) func(*testing.T, *subject, int64) (restocked, sold int64) {
	return func(t *testing.T, s *subject, goodsID int64) (restocked, sold int64) {
		t.Helper()
		other := s.another(t, name)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), settleWithin)
		defer cancel()
		err := oneOf(other.bare[0].Deduct(ctx, goodsID, []stock.Purchase{by("another", 1)}))
		other.settle(t, goodsID)
		if err != nil {
			if !errors.Is(err, stock.ErrInsufficientStock) && !errors.Is(err, stock.ErrAllocated) && !errors.Is(err, stock.ErrBusy) {
				t.Errorf("%s beside the sale: %v", name, err)
			}
			return 0, 0
		}
		return 0, 1
	}
}

// others are strategies beside the subject, on the same store and servers: one of
// each name for all subjects.
type others struct {
	t    *testing.T // of the whole suite
	mu   sync.Mutex
	made map[string]*subject
}

// another is a strategy of the registry by its name, as one replica has it.
func (s *subject) another(t *testing.T, name string) *subject {
	t.Helper()
	s.others.mu.Lock()
	defer s.others.mu.Unlock()
	if made := s.others.made[name]; made != nil {
		return made
	}
	for _, entry := range strategy.Registry() {
		if entry.Name != name {
			continue
		}
		other := *s
		other.entry = entry
		made := entry.New(s.depsOf(s.others.t, entry, s.store))
		closeAfter(s.others.t, made)
		other.bare = []strategy.Strategy{made}
		s.others.made[name] = &other
		return &other
	}
	t.Fatalf("the registry has no %s", name)
	return nil
}

// middle runs a function once, in the middle of the next sale.
type middle struct{ next atomic.Pointer[func()] }

func (*middle) Record(_ string, l lock.Locker) lock.Locker { return l }

func (m *middle) Between(ctx context.Context, _ string, _ int64) context.Context {
	if do := m.next.Swap(nil); do != nil {
		(*do)()
	}
	return ctx
}

// during has something happen in the middle of the next sale, which goes on after middleWithin at the latest. The
// function that it returns has it happen where no sale had a middle, and waits for its end.
func (m *middle) during(do func()) (end func()) {
	done := make(chan struct{})
	happen := sync.OnceFunc(func() {
		go func() {
			defer close(done)
			do()
		}()
		select {
		case <-done:
		case <-time.After(middleWithin):
		}
	})
	m.next.Store(&happen)
	return func() {
		happen()
		<-done
	}
}

// withMiddle is the strategy on a replica of its own, whose sales are seen in their middle.
func (s *subject) withMiddle(t *testing.T) (strategy.Strategy, *middle) {
	t.Helper()
	seen := new(middle)
	deps := s.deps(t, s.store)
	deps.Failpoints = seen
	bare := s.entry.New(deps)
	closeAfter(t, bare)
	return bare, seen
}

// middleWithin is how long a sale waits for what happens in its middle. One that
// holds the row waits until this limit: the change comes after it.
const middleWithin = 50 * time.Millisecond

// noticesChangesDuringASale has every change happen in the middle of one
// purchase, fenced and not: nothing of either is lost or doubled, whatever the
// strategy does to purchases of its own.
func noticesChangesDuringASale(t *testing.T, s *subject) {
	bare, seen := s.withMiddle(t)
	replicas := []strategy.Deduct{s.group(t, bare.Deduct)}
	if fencer, ok := bare.(strategy.Fencer); ok {
		replicas = append(replicas, s.group(t, fencer.DeductFenced))
	}
	for _, change := range changesBeside() {
		t.Run(change.name, func(t *testing.T) {
			if len(change.needs) > 0 {
				s.bench.Locks(t, change.needs) // skips where one of them is missing
			}
			for _, replica := range replicas {
				assertChangeNoticed(t, s, change, seen, replica)
			}
		})
	}
}

func assertChangeNoticed(t *testing.T, s *subject, change beside, seen *middle, deduct strategy.Deduct) {
	t.Helper()
	goods := s.create(t, besideStock)
	var restocked, soldBeside int64
	if change.twice {
		restocked, soldBeside = change.do(t, s, goods)
	}
	end := seen.during(func() {
		r, sold := change.do(t, s, goods)
		restocked, soldBeside = restocked+r, soldBeside+sold
	})
	err := oneOf(deduct(t.Context(), goods, []stock.Purchase{by("buyer", besideSale)}))
	end()
	var sold int64
	switch {
	case err == nil:
		sold = besideSale
	case errors.Is(err, stock.ErrInsufficientStock) && s.entry.Damage == strategy.Undersells:
	case !errors.Is(err, stock.ErrAllocated) && !errors.Is(err, stock.ErrUserLimit) && !errors.Is(err, stock.ErrBusy):
		t.Errorf("there is enough at any time, and the sale ended with %v", err)
	}
	s.settle(t, goods)
	audit := must.Get(s.store.AuditInFull(t.Context(), goods))(t)
	if !audit.Clean {
		t.Errorf("the audit is %+v, of buyers %+v", audit, audit.Buyers)
	}
	want(t, "sold", audit.Sold, sold+soldBeside)
	want(t, "stock", audit.Stock, besideStock+restocked-sold-soldBeside)
}

// sellsNothingThatIsSoldInItsMiddle has another replica sell two of three units in the middle of a sale
// of two: one of both does not fit. The crowds of the suite buy one unit each, for which it is enough to
// compare the stock with 0.
func sellsNothingThatIsSoldInItsMiddle(t *testing.T, s *subject) {
	if !s.entry.Guarantees.ExclusiveAcrossReplicas {
		t.Skip("it guarantees no exclusion across replicas")
	}
	bare, seen := s.withMiddle(t)
	goods := s.create(t, 3)
	var other error
	end := seen.during(func() { other = oneOf(s.replicas[1](t.Context(), goods, []stock.Purchase{buy(2)})) })
	first := oneOf(s.group(t, bare.Deduct)(t.Context(), goods, []stock.Purchase{buy(2)}))
	end()
	sold, busy := int64(0), false
	for _, err := range []error{first, other} {
		switch busy = busy || errors.Is(err, stock.ErrBusy); {
		case err == nil:
			sold += 2
		case !errors.Is(err, stock.ErrInsufficientStock) && !errors.Is(err, stock.ErrBusy):
			t.Errorf("one of two sales is answered with %v", err)
		}
	}
	audit := s.audit(t, goods)
	want(t, "sold", audit.Sold, sold)
	if s.wantConsistent(t, audit); sold != 2 && !busy && s.entry.Damage != strategy.Undersells {
		t.Errorf("%d units are sold by two sales of two out of three", sold)
	}
}

// keepsRestocksDuringASale restocks again and again while three replicas sell. Each
// restock is larger than all sales together, so that one which is lost shows, however
// many sales a strategy loses that is here for that.
func keepsRestocksDuringASale(t *testing.T, s *subject) {
	const restocks, clients, attempts = 8, 6, 10
	const units = 1000 // of each restock
	lists := [][]strategy.Deduct{s.replicas}
	if s.entry.Guarantees.Fenceable {
		lists = append(lists, s.fenced(t))
	}
	for _, replicas := range lists {
		goods := s.create(t, units)
		var sold, turn atomic.Int64
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for range attempts {
					err := oneOf(replicas[turn.Add(1)%int64(len(replicas))](t.Context(), goods, []stock.Purchase{buy(1)}))
					if err == nil {
						sold.Add(1)
					} else if !errors.Is(err, stock.ErrBusy) && !errors.Is(err, stock.ErrFenced) && !errors.Is(err, stock.ErrInsufficientStock) {
						t.Errorf("beside a restock: %v", err)
					}
				}
			})
		}
		all.Go(func() {
			for range restocks {
				s.restock(t, goods, units)
				time.Sleep(time.Millisecond) // sales come between
			}
		})
		all.Wait()
		audit := s.audit(t, goods)
		want(t, "sold", audit.Sold, sold.Load())
		want(t, "restocked", audit.Initial, units*(restocks+1))
		if audit.Lost < 0 || s.entry.Guarantees.ExclusiveAcrossReplicas && !audit.Clean {
			t.Errorf("after %d restocks the audit is %+v", restocks, audit)
		}
	}
}
