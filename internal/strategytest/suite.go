// Package strategytest tests strategies against the contract of strategy.Strategy and
// against their guarantees, on a real database. Where a strategy guarantees no exclusion,
// its damage is shown.
//
// The path of a test is backend / strategy / topic: -run TestConformance/sqlite/mutex/OnOneReplica.
package strategytest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// Bench is where the suite finds what strategies are made of.
type Bench struct {
	// Open connects to one and the same database each time, as a replica of that
	// name would.
	Open func(t *testing.T, replica string) *repo.Store
	// Locks is what the locks of one replica are made of that need these
	// backends; it skips the test where one of them is missing.
	Locks func(t *testing.T, needs []backend.Name) lock.Deps
	// Only are the names of those that are tested; all where it is empty.
	Only []string
	// Brief are the names of those that share all but their lock with a strategy that is tested in full: what does
	// not depend on the lock is left out of their tests.
	Brief []string
	// Alone leaves out what grouped and fenced purchases have beside others: it does not depend on the database.
	Alone bool
}

// entries are the strategies to test. A name in Only that matches none fails the test.
func (b Bench) entries(t *testing.T) []strategy.Entry {
	t.Helper()
	all := strategy.Registry()
	if len(b.Only) == 0 {
		return all
	}
	chosen := make([]strategy.Entry, 0, len(b.Only))
	for _, name := range b.Only {
		i := slices.IndexFunc(all, func(e strategy.Entry) bool { return e.Name == name })
		if i < 0 {
			t.Fatalf("no strategy is called %s", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen
}

// Run runs the suite over the strategies of the registry, or those in Only.
func Run(t *testing.T, bench Bench) {
	t.Helper()
	stores := []*repo.Store{bench.Open(t, "replica-1"), bench.Open(t, "replica-2"), bench.Open(t, "replica-3")}
	goods := new(atomic.Int64)
	prefix := "suite-" + rand.Text() // the servers are shared by suites on other databases
	beside := &others{t: t, made: make(map[string]*subject)}
	// Databases share one Redis, which must not know the items of another one.
	goods.Store(mathrand.Int64N(1 << 40))
	var tested atomic.Int64
	t.Cleanup(func() {
		if tested.Load() == 0 {
			t.Errorf("-run matches no test below %s: the path is backend/strategy/topic", t.Name())
		}
	})
	for _, entry := range bench.entries(t) {
		t.Run(entry.Name, func(t *testing.T) {
			t.Parallel() // each has items of its own, and one of them waits for leases to end
			defer func() {
				if t.Skipped() || t.Failed() {
					tested.Add(1)
				}
			}()
			s := newSubject(t, bench, prefix, entry, stores, goods)
			s.others, s.tested = beside, &tested
			var tests scope
			if slices.Contains(bench.Brief, entry.Name) {
				tests = brief
			}
			s.run(t, append(contents(tests), topic{"WaitsNoLongerThanAPurchaseSays", waitsNoLongerThanAPurchaseSays, 0}))
			if tests == brief || bench.Alone {
				return
			}
			t.Run("grouped", func(t *testing.T) {
				s.grouped(t).run(t, append(contents(0), topic{"DuplicatesInACrowdChangeNoOtherPurchase", duplicatesInACrowdChangeNoOtherPurchase, 0}))
			})
			t.Run("fenced", func(t *testing.T) { s.withFences(t).run(t, contents(fenced)) })
		})
	}
}

func (s *subject) run(t *testing.T, topics []topic) {
	for _, one := range topics {
		t.Run(one.name, func(t *testing.T) {
			s.tested.Add(1)
			one.test(t, s)
		})
	}
}

// topic is one obligation or claim.
type topic struct {
	name string
	test func(*testing.T, *subject)
	also scope
}

// scope says where a topic is tested beside the full test of a strategy, and of its grouped calls.
type scope int

const (
	brief  scope = 1 << iota // of a strategy whose lock alone is its own, too
	fenced                   // with fenced writes, too: a fenced purchase is answered and recorded like any other
)

// contents lists what a strategy is held to, as far as it is in a scope; 0 is all.
func contents(in scope) []topic {
	all := []topic{
		{"SellsAndReportsWhatIsLeft", sellsAndReportsWhatIsLeft, brief | fenced},
		{"RejectsAnUnknownItem", rejectsAnUnknownItem, brief | fenced},
		{"TakesARequestIDOnce", takesARequestIDOnce, brief | fenced},
		{"NamesTheDatabaseThatFails", namesTheDatabaseThatFails, brief},
		{"DoesNothingForACancelledRequest", doesNothingForACancelledRequest, brief | fenced},
		{"SellsNothingAfterAFailedAnswer", sellsNothingAfterAFailedAnswer, brief},
		{"ReturnsWhenItIsCancelledBesideAnother", returnsWhenItIsCancelledBesideAnother, brief},
		{"KeepsALargeStock", keepsALargeStock, 0},
		{"RejectsWhatDoesNotFit", rejectsWhatDoesNotFit, fenced},
		{"RejectsWhatAnotherStrategySoldOut", rejectsWhatAnotherStrategySoldOut, 0},
		{"ServesABatchFirstComeFirstServed", servesABatchFirstComeFirstServed, fenced},
		{"ChangesNoOtherItem", changesNoOtherItem, 0},
		{"RecordsBuyerItemAndReplica", recordsBuyerItemAndReplica, fenced},
		{"HoldsUnits", holdsUnits, fenced},
		{"SellsWhatComesBack", sellsWhatComesBack, 0},
		{"CountsWhatABuyerHolds", countsWhatABuyerHolds, fenced},
		// exclusion.go
		{"OnOneReplica", func(t *testing.T, s *subject) { exclusion(t, s, s.entry.Guarantees.ExclusiveInProcess, s.replicas[:1]) }, brief},
		{"OnThreeReplicas", func(t *testing.T, s *subject) {
			exclusion(t, s, s.entry.Guarantees.ExclusiveAcrossReplicas, s.replicas)
		}, brief},
		{"SellsOutFencedOnThreeReplicas", func(t *testing.T, s *subject) { assertSoldOut(t, s, s.fenced(t)) }, brief},
		{"WritesTheTokenThatItClaimed", writesTheTokenThatItClaimed, brief},
		{"RejectsAWriteAfterALaterClaim", rejectsAWriteAfterALaterClaim, brief},
		{"RejectsAWriteAfterAClaimInItsMiddle", rejectsAWriteAfterAClaimInItsMiddle, brief},
		// limit.go
		{"LimitsABuyer", limitsABuyer, brief},
		{"LimitsEveryBuyer", limitsEveryBuyer, 0},
		{"RejectsOneOfABatchForTheLimit", rejectsOneOfABatchForTheLimit, fenced},
		{"RejectsWhatDoesNotFitUnderALimit", rejectsWhatDoesNotFitUnderALimit, 0},
		{"FollowsTheLimit", followsTheLimit, 0},
		{"CountsSalesOfOtherStrategies", countsSalesOfOtherStrategies, 0},
		{"CountsWhatIsSoldWhileALimitComes", countsWhatIsSoldWhileALimitComes, 0},
		// beside.go
		{"SellsNothingThatIsSoldInItsMiddle", sellsNothingThatIsSoldInItsMiddle, brief},
		{"NoticesChangesDuringASale", noticesChangesDuringASale, 0},
		{"KeepsRestocksDuringASale", keepsRestocksDuringASale, 0},
		// allocation.go
		{"SellsTheTailOfItsAllocation", sellsTheTailOfItsAllocation, 0},
		{"ReturnsItsAllocation", returnsItsAllocation, 0},
		{"RecallsDuringASale", recallsDuringASale, 0},
		{"RejectsWhileStockIsLeft", rejectsWhileStockIsLeft, 0},
		{"LosesUnitsWithAReplica", losesUnitsWithAReplica, 0},
		{"LosesUnitsWithAnAnswer", losesUnitsWithAnAnswer, 0},
		// several.go
		{"SellsSeveralItemsAtOnce", sellsSeveralItemsAtOnce, 0},
		{"SellsNothingOfSeveralItemsWithACopy", sellsNothingOfSeveralItemsWithACopy, 0},
		{"DoesNotWaitForALockedItem", doesNotWaitForALockedItem, 0},
		{"SellsOutSeveralItemsOnThreeReplicas", sellsOutSeveralItemsOnThreeReplicas, 0},
	}
	return slices.DeleteFunc(all, func(one topic) bool { return one.also&in != in })
}

// subject is one strategy, as three replicas have it.
type subject struct {
	entry    strategy.Entry
	store    *repo.Store
	replicas []strategy.Deduct
	goods    *atomic.Int64
	// bare are the strategies as the entry makes them; group makes a replica of one.
	bare   []strategy.Strategy
	group  func(t *testing.T, deduct strategy.Deduct) strategy.Deduct
	bench  Bench
	others *others
	tested *atomic.Int64 // topics of all subjects
	// prefix begins all keys in Redis.
	prefix string
}

func (s *subject) deps(t *testing.T, store *repo.Store) strategy.Deps {
	t.Helper()
	return s.depsOf(t, s.entry, store)
}

func (s *subject) depsOf(t *testing.T, entry strategy.Entry, store *repo.Store) strategy.Deps {
	t.Helper()
	return strategy.Deps{
		Store: store.As(entry.Name), LockWait: lockWait, Lock: s.bench.Locks(t, entry.Needs),
		RedisStock: redisstock.Options{Prefix: s.prefix},
		Retry:      strategy.Retry{Tries: tries, Step: time.Millisecond, Max: 50 * time.Millisecond},
		Buckets:    buckets, UnitRows: unitRows,
	}
}

// settleWithin bounds the wait for a ledger that is written later than the answer.
const settleWithin = 40 * time.Second

// settle waits until the ledger has what was answered, where a strategy answers
// before. What is pending may be unknown for a moment, such as while the first purchase of an item,
// whose buyer has left, makes a counter.
func (s *subject) settle(t *testing.T, goodsID int64) {
	t.Helper()
	if outbox, ok := s.bare[0].(*redisstock.Stock); ok {
		labtest.Await(t, "the ledger to have what was answered", settleWithin, func() bool {
			pending, err := outbox.Pending(context.WithoutCancel(t.Context()), goodsID)
			return err == nil && pending == 0
		})
	}
}

// Limits that are short enough for a test and long enough for a busy machine.
const (
	lockWait = 5 * time.Second
	tries    = 500
	buckets  = 5
	unitRows = 8
)

func newSubject(t *testing.T, bench Bench, prefix string, entry strategy.Entry, stores []*repo.Store, goods *atomic.Int64) *subject {
	t.Helper()
	s := &subject{entry: entry, store: stores[0], goods: goods, bench: bench, prefix: prefix}
	for _, store := range stores {
		replica := entry.New(s.deps(t, store))
		closeAfter(t, replica)
		s.bare = append(s.bare, replica)
		s.replicas = append(s.replicas, replica.Deduct)
	}
	s.group = func(_ *testing.T, deduct strategy.Deduct) strategy.Deduct { return deduct }
	return s
}

// grouped is the subject on replicas that make one batch of the calls that wait.
func (s *subject) grouped(t *testing.T) *subject {
	t.Helper()
	grouped := *s
	grouped.entry.Guarantees = s.entry.Guarantees.Grouped()
	grouped.replicas = nil
	bounds := strategy.Group{Batch: 5, Units: stock.MaxQuantity, Queue: 1000, Timeout: 2 * lockWait}
	grouped.group = func(t *testing.T, deduct strategy.Deduct) strategy.Deduct {
		t.Helper()
		g := strategy.NewBatcher(deduct, s.store.Orders, bounds)
		closeAfter(t, g)
		return g.Deduct
	}
	for _, bare := range s.bare {
		deduct := bare.Deduct
		if !s.store.Sharded() { // items may be on several
			deduct = strategy.Joined(bare, bounds)
		}
		grouped.replicas = append(grouped.replicas, grouped.group(t, deduct))
	}
	return &grouped
}

// withFences is the subject on replicas that fence every write.
func (s *subject) withFences(t *testing.T) *subject {
	t.Helper()
	fenced := *s
	fenced.replicas = s.fenced(t)
	return &fenced
}

func closeAfter(t *testing.T, made any) {
	t.Helper()
	if closer, ok := made.(io.Closer); ok {
		t.Cleanup(func() {
			should.Do(t, closer.Close())
		})
	}
}

// create makes an item that no other topic uses.
func (s *subject) create(t *testing.T, units int64) (goodsID int64) {
	t.Helper()
	goodsID = s.goods.Add(1)
	must.Do(t, s.store.CreateGoods(t.Context(), goodsID, units, rand.Text()))
	return goodsID
}

// restock adds units, as the admin does through another replica than the first, and reports
// them twice.
func (s *subject) restock(t *testing.T, goodsID, units int64) {
	t.Helper()
	must.Get(s.store.Restock(t.Context(), goodsID, units, rand.Text()))(t)
	r, ok := s.bare[1].(*redisstock.Stock)
	if !ok {
		return
	}
	for range 2 {
		must.Do(t, r.Restocked(t.Context(), goodsID, units))
	}
}

// sell is deduct, which must not fail.
func (s *subject) sell(t *testing.T, goodsID int64, batch ...stock.Purchase) []stock.Outcome {
	t.Helper()
	outcomes, err := s.deduct(t.Context(), goodsID, batch...)
	if err != nil || len(outcomes) != len(batch) {
		t.Fatalf("a batch of %d is answered with %+v, %v", len(batch), outcomes, err)
	}
	return outcomes
}

func wantSoldOf(t *testing.T, outcomes []stock.Outcome, sold ...bool) {
	t.Helper()
	for i, want := range sold {
		if got := outcomes[i].Rejected == nil; got != want {
			t.Errorf("purchase %d: sold is %v (%v), want %v", i+1, got, outcomes[i].Rejected, want)
		}
	}
}

func (s *subject) deduct(ctx context.Context, goodsID int64, batch ...stock.Purchase) ([]stock.Outcome, error) {
	return s.replicas[0](ctx, goodsID, batch)
}

func (s *subject) audit(t *testing.T, goodsID int64) stock.Audit {
	t.Helper()
	s.settle(t, goodsID)
	audit := must.Get(s.store.Audit(context.WithoutCancel(t.Context()), goodsID))(t)
	return audit
}

func (s *subject) wantBooks(t *testing.T, goodsID, left, sold int64) stock.Audit {
	t.Helper()
	audit := s.audit(t, goodsID)
	want(t, "stock", audit.Stock, left)
	want(t, "sold", audit.Sold, sold)
	return audit
}

func buy(units int64) stock.Purchase {
	return stock.Purchase{RequestID: "test-" + rand.Text(), Quantity: units}
}

func want(t *testing.T, what string, got, wanted int64) {
	t.Helper()
	should.Be(t, got, wanted, what)
}

func (s *subject) wantSold(t *testing.T, goodsID, units int64) {
	t.Helper()
	should.Fail(t, oneOf(s.deduct(t.Context(), goodsID, buy(units))), nil, "… units were not sold", units)
}

// wantRejected requires that the first replica does not sell units, for a reason.
func (s *subject) wantRejected(t *testing.T, goodsID, units int64, reason error) {
	t.Helper()
	outcomes, err := s.deduct(t.Context(), goodsID, buy(units))
	if err != nil || !errors.Is(outcomes[0].Rejected, reason) {
		t.Errorf("%d units are answered with %+v (%v), want %v", units, outcomes, err, reason)
	}
}
