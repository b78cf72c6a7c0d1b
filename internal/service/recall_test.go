package service_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// What is allocated is all pending then: no recall brings it back.
func TestASoldOutItemWithPendingOrdersIsSoldOut(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	s := openOn(t, 5*time.Second, d, d)
	s.create(t, 1, 5)
	s.sells(t, "redis-stock", 1, 1, 1, 3) // the first is written at once, the others wait
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	outcome := must.Get(s.strategy(t, 0, "sql-conditional").Deduct(ctx, 1, stock.Purchase{Quantity: 1}))(t)
	should.Fail(t, outcome.Rejected, stock.ErrInsufficientStock, "answered with")
	if audit, err := s.inventory.Audit(t.Context(), 1); err != nil || audit.Pending == nil || *audit.Pending == 0 {
		t.Errorf("nothing was pending: %+v, %v", audit, err)
	}
	s.settles(t, 1, 5)
}

// A backend that holds units and does not answer is named.
func TestUnitsInABackendThatIsGoneAreNotSoldOut(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	with := openAll(t, d)
	with.create(t, 1, 5)
	with.sells(t, "redis-stock", 1, 1)
	without := open(t, d, 1) // has no Redis
	_, err := without.strategy(t, 0, "sql-conditional").Deduct(t.Context(), 1, stock.Purchase{Quantity: 1})
	if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != "redis" {
		t.Errorf("answered with %v, want one that names redis", err)
	}
	should.Reject(without.inventory.Recall(t.Context(), 1))(t, stock.ErrBackendUnavailable)
	should.Be(t, must.Get(without.inventory.Audit(t.Context(), 1))(t).Pending, nil, "without Redis the audit is")
	recalled, err := with.inventory.Recall(t.Context(), 1)
	if err != nil || recalled.Returned+recalled.Pending < 4 || len(recalled.Allocations) != 1 || recalled.Allocations[0].Strategy != "redis-stock" {
		t.Errorf("recalled %+v, %v", recalled, err)
	}
	with.sells(t, "sql-conditional", 1, 4)
	with.settles(t, 1, 5)
	without.settles(t, 1, 5)
}

// slow is an allocator whose recalls begin when they are let.
type slow struct {
	strategy.Strategy

	asked, let chan struct{}
	ended      chan error
}

func (s *slow) Recall(ctx context.Context, goodsID int64) (stock.Recalled, error) {
	close(s.asked)
	<-s.let
	allocator, ok := s.Strategy.(strategy.Allocator)
	if !ok {
		return stock.Recalled{}, errors.New("it is no allocator")
	}
	recalled, err := allocator.Recall(ctx, goodsID)
	s.ended <- err
	return recalled, err
}

func TestARecallGoesOnWhenItsCallerLeaves(t *testing.T) {
	all := strategy.Registry()
	bucket := all[slices.IndexFunc(all, func(e strategy.Entry) bool { return e.Name == "sql-bucket" })]
	allocator := &slow{asked: make(chan struct{}), let: make(chan struct{}), ended: make(chan error, 1)}
	entry := bucket
	entry.New = func(d strategy.Deps) strategy.Strategy { allocator.Strategy = bucket.New(d); return allocator }
	store, catalogue := openEntries(t, entry)
	s := shop{service.NewInventory(store, catalogue), []*service.Catalogue{catalogue}, 1}
	s.create(t, 1, 10)
	s.sells(t, "sql-bucket", 1, 1)
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error)
	go func() {
		_, err := s.inventory.Recall(ctx, 1)
		answered <- err
	}()
	<-allocator.asked
	leave()
	if err := <-answered; !errors.Is(err, context.Canceled) || !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("the caller that left is answered with %v", err)
	}
	close(allocator.let)
	should.Do(t, <-allocator.ended) // the recall
	should.Be(t, must.Get(store.Goods(t.Context(), 1))(t).Stock, 9, "the row has units")
}
