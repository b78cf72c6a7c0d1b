package strategytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// createLimited makes an item of which one buyer may have so many units.
func (s *subject) createLimited(t *testing.T, units, most int64) (goodsID int64) {
	t.Helper()
	goodsID = s.create(t, units)
	s.limit(t, goodsID, most)
	return goodsID
}

// limit sets the limit of one buyer, as the admin does through another replica than
// the first.
func (s *subject) limit(t *testing.T, goodsID, most int64) {
	t.Helper()
	must.Do(t, s.store.SetLimit(t.Context(), goodsID, most))
	if l, ok := s.bare[1].(*redisstock.Stock); ok {
		must.Do(t, l.LimitChanged(t.Context(), goodsID))
	}
}

func by(user string, units int64) stock.Purchase {
	p := buy(units)
	p.UserID = user
	return p
}

// wantSoldInAll compares the ledger of an item, and the counts of its buyers, with what was
// sold, and to what is left where the strategy claims to keep count of that.
func (s *subject) wantSoldInAll(t *testing.T, goodsID, units, sold int64) {
	t.Helper()
	s.settle(t, goodsID)
	audit := must.Get(s.store.AuditInFull(t.Context(), goodsID))(t)
	want(t, "sold", audit.Sold, sold)
	if audit.Buyers == nil || *audit.Buyers != (stock.Buyers{}) {
		t.Errorf("about the buyers the audit finds %+v", audit.Buyers)
	}
	if s.entry.Guarantees.ExclusiveAcrossReplicas {
		want(t, "stock", audit.Stock, units-sold)
	}
}

// impatient is how many ask at once, and go on asking while a replica is busy: fewer
// where the strategy locks. More of them do not meet in more ways, and on a machine that
// is busy itself a strategy that tries again leaves one of a hundred without an answer.
func (s *subject) impatient() int {
	if s.locks() {
		return 8
	}
	return 24
}

// perUser is the limit of one buyer in most of these topics.
const perUser = 3

// limitsABuyer has one buyer ask many times at once, on three replicas.
func limitsABuyer(t *testing.T, s *subject) {
	const units = 200
	goods := s.createLimited(t, units, perUser)
	answers := make([]error, s.impatient())
	var buyers sync.WaitGroup
	for i := range answers {
		buyers.Go(func() {
			answers[i] = oneOf(s.insist(t, i, goods, by("小明", 1)))
		})
	}
	buyers.Wait()
	var sold int64
	for _, err := range answers {
		if err == nil {
			sold++
		} else {
			assertLimited(t, err, perUser)
		}
	}
	want(t, "sold to one buyer", sold, perUser)
	s.wantSoldInAll(t, goods, units, perUser)
}

// insist has one of the replicas sell, and asks again for as long as it is busy: that
// is an honest answer, after which nothing has happened.
func (s *subject) insist(t *testing.T, turn int, goodsID int64, batch ...stock.Purchase) ([]stock.Outcome, error) {
	t.Helper()
	return insist(t, s.replicas[turn%len(s.replicas)], goodsID, batch...)
}

func insist(t *testing.T, deduct strategy.Deduct, goodsID int64, batch ...stock.Purchase) ([]stock.Outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), settleWithin)
	defer cancel()
	for {
		outcomes, err := deduct(ctx, goodsID, batch)
		if !errors.Is(err, stock.ErrBusy) || ctx.Err() != nil {
			return outcomes, err
		}
	}
}

func oneOf(outcomes []stock.Outcome, err error) error {
	if err != nil {
		return err
	}
	return outcomes[0].Rejected
}

// assertLimited holds a rejection to the limit and what its buyer has.
func assertLimited(t *testing.T, err error, has int64) {
	t.Helper()
	limited, ok := errors.AsType[*stock.UserLimitError](err)
	if !ok || *limited != (stock.UserLimitError{PerUser: perUser, Has: has}) {
		t.Errorf("beyond the limit is answered with %v, want a limit of %d and %d units already", err, perUser, has)
	}
}

// limitsEveryBuyer has a crowd of buyers ask for more than each may have, in
// batches of several, on three replicas.
func limitsEveryBuyer(t *testing.T, s *subject) {
	const units, users, rounds = 500, 5, 6
	goods := s.createLimited(t, units, perUser)
	var buyers sync.WaitGroup
	for i := range rounds {
		buyers.Go(func() {
			batch := make([]stock.Purchase, 0, users)
			for n := range users { // each batch in another order
				batch = append(batch, by(fmt.Sprint("buyer-", (n*(i+1)+i)%users), 1))
			}
			outcomes, err := s.insist(t, i, goods, batch...)
			if err != nil {
				t.Errorf("batch %d: %v", i, err)
			}
			for _, o := range outcomes {
				if o.Rejected != nil && !errors.Is(o.Rejected, stock.ErrUserLimit) {
					t.Errorf("batch %d: rejected with %v, want %v", i, o.Rejected, stock.ErrUserLimit)
				}
			}
		})
	}
	buyers.Wait()
	s.wantSoldInAll(t, goods, units, users*perUser)
}

// rejectsOneOfABatchForTheLimit shows that a buyer beyond the limit takes nothing
// from the others, and that an anonymous purchase is rejected.
func rejectsOneOfABatchForTheLimit(t *testing.T, s *subject) {
	goods := s.createLimited(t, 20, perUser)
	outcomes := s.sell(t, goods, by("a", 2), by("b", 3), by("a", 2), buy(1), by("a", 1), by("c", 9))
	wantSoldOf(t, outcomes, true, true, false, false, true, false)
	assertLimited(t, outcomes[2].Rejected, 2)
	assertLimited(t, outcomes[5].Rejected, 0)
	if !errors.Is(outcomes[3].Rejected, stock.ErrUserUnknown) {
		t.Errorf("an anonymous buyer got %v", outcomes[3].Rejected)
	}
	want(t, "what the last order says is left", outcomes[4].Order.Remaining, 14)
	// The stock that one is not given is there for the next.
	outcomes = s.sell(t, goods, by("a", 3), by("d", 3), by("e", 3), by("f", 3), by("g", 3), by("h", 2))
	wantSoldOf(t, outcomes, false, true, true, true, true, true)
	assertLimited(t, outcomes[0].Rejected, 3)
	s.wantSoldInAll(t, goods, 20, 20)
}

// rejectsWhatDoesNotFitUnderALimit shows that what is rejected for the stock is not
// counted.
func rejectsWhatDoesNotFitUnderALimit(t *testing.T, s *subject) {
	goods := s.createLimited(t, 2, 5)
	outcomes, err := s.deduct(t.Context(), goods, by("a", 3), by("a", 1))
	if err != nil || !errors.Is(outcomes[0].Rejected, stock.ErrInsufficientStock) {
		t.Fatalf("3 of 2 were answered with %v (%v), want a rejection for the stock", outcomes, err)
	}
	s.restock(t, goods, 10)
	left := int64(5)
	if outcomes[1].Rejected == nil { // some strategies take what they give back
		left--
	}
	for _, units := range []int64{left, 1} {
		outcomes, err = s.deduct(t.Context(), goods, by("a", units))
		if rejected := units == 1; err != nil || errors.Is(outcomes[0].Rejected, stock.ErrUserLimit) != rejected {
			t.Errorf("%d units were answered with %v (%v)", units, outcomes, err)
		}
	}
	s.wantSoldInAll(t, goods, 12, 5)
}

// followsTheLimit sells before there is a limit, and has it set, raised, lowered and
// taken away while the item is on sale.
func followsTheLimit(t *testing.T, s *subject) {
	goods := s.create(t, 100)
	sell := func(units int64, wanted error) {
		t.Helper()
		err := oneOf(s.deduct(t.Context(), goods, by("a", units)))
		should.Fail(t, err, wanted, "… units got", units)
	}
	sell(2, nil)
	s.limit(t, goods, 3)
	sell(2, stock.ErrUserLimit)
	sell(1, nil)
	sell(1, stock.ErrUserLimit)
	s.limit(t, goods, 5)
	sell(2, nil)
	s.limit(t, goods, 4)
	sell(1, stock.ErrUserLimit)
	s.wantSoldInAll(t, goods, 100, 5)
	s.limit(t, goods, 0)
	sell(3, nil)
	sell(1, nil)
	s.settle(t, goods)
	s.limit(t, goods, 10)
	sell(2, stock.ErrUserLimit)
	sell(1, nil)
	s.wantSoldInAll(t, goods, 100, 10)
}

func countsSalesOfOtherStrategies(t *testing.T, s *subject) {
	goods := s.createLimited(t, 100, perUser)
	other := s.another(t, "sql-conditional")
	must.Do(t, oneOf(other.bare[0].Deduct(t.Context(), goods, []stock.Purchase{by("a", 2)})))
	assertLimited(t, oneOf(s.deduct(t.Context(), goods, by("a", 2))), 2)
	should.Be(t, oneOf(s.deduct(t.Context(), goods, by("a", 1))), nil, "what was left of the limit")
	s.wantSoldInAll(t, goods, 100, 3)
}

// countsWhatIsSoldWhileALimitComes has some buyers buy on three replicas while a limit
// is set: no buyer in the middle of it is forgotten, and none gets more than the
// limit, or than it had when the limit was set.
func countsWhatIsSoldWhileALimitComes(t *testing.T, s *subject) {
	const units, users, most = 500, 3, 2
	goods := s.create(t, units)
	var sold atomic.Int64
	var buyers sync.WaitGroup
	half := make(chan struct{}, s.impatient())
	for i := range cap(half) {
		buyers.Go(func() {
			err := oneOf(s.insist(t, i, goods, by(fmt.Sprint("buyer-", i%users), 1)))
			half <- struct{}{}
			switch {
			case err == nil:
				sold.Add(1)
			case !errors.Is(err, stock.ErrUserLimit):
				t.Errorf("while a limit comes the answer is %v", err)
			}
		})
	}
	for range cap(half) / 4 {
		<-half
	}
	s.limit(t, goods, most)
	buyers.Wait()
	s.wantSoldInAll(t, goods, units, sold.Load())
}
