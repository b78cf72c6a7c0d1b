package redisstock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

var _ strategy.Allocator = (*redisstock.Stock)(nil)

func recall(t *testing.T, r *redisstock.Stock) stock.Recalled {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return must.Get(r.Recall(ctx, goods))(t)
}

// assertReach compares the units in the row of the item, and in its allocation.
func (s *shop) assertReach(t *testing.T, row, allocated int64, closed bool) {
	t.Helper()
	item, place, err := s.store.Reach(t.Context(), goods, redisstock.Allocation)
	if err != nil || item.Stock != row || place.Units != allocated || place.Closed != closed {
		t.Errorf("the row has %d and the allocation %+v (%v), want %d and %d units, closed %t",
			item.Stock, place, err, row, allocated, closed)
	}
}

// assertConsistent compares the ledger with the clients' answers.
func (s *shop) assertConsistent(t *testing.T, r *redisstock.Stock, reported []stock.Order) {
	t.Helper()
	settle(t, r)
	s.assertInLedger(t, reported)
	if a := s.audit(t); !a.Clean || a.Orders != int64(len(reported)) {
		t.Errorf("%d orders were reported, the audit is %+v", len(reported), a)
	}
}

// sellFromRow sells as another strategy does.
func (s *shop) sellFromRow(t *testing.T, p stock.Purchase) bool {
	t.Helper()
	enough, err := false, error(nil)
	err = s.store.As("sql-conditional").InTx(t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: goods, Batch: []stock.Purchase{p}}); err != nil {
			return err
		}
		if _, enough, err = tx.SubtractIfEnough(t.Context(), goods, p.Quantity); err == nil && !enough {
			err = stock.ErrInsufficientStock
		}
		return err
	})
	if err != nil && !errors.Is(err, stock.ErrInsufficientStock) {
		t.Error(err)
	}
	return err == nil
}

func TestRecallReturnsTheUnitsToTheRow(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a := s.replica(t, "a")
	should.Be(t, recall(t, a), stock.Recalled{}, "of an item that was never sold from Redis")
	reported := begin(t, a)
	should.Be(t, recall(t, a), stock.Recalled{Returned: 9}, "is recalled")
	s.assertReach(t, 9, 0, true)
	should.Be(t, recall(t, a), stock.Recalled{}, "is recalled twice")
	messages := s.client.Subscribe(t.Context(), s.options.Prefix+":restocked")
	defer messages.Close() //nolint:errcheck // the test is over
	must.Get(messages.Receive(t.Context()))(t)
	s.restock(t, a, 1)
	s.assertReach(t, 10, 0, true)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	should.Be(t, must.Get(messages.ReceiveMessage(ctx))(t).Payload, "1", "of units in the row, replicas are notified with")
	reported = append(reported, sell(t, a, buy(4)))
	s.assertExact(t, a, reported)
	s.assertReach(t, 0, 6, false)
}

// Orders are pending when the units are recalled: theirs stay in the allocation, and they
// are written in the epoch of the closed counter.
func TestRecallLeavesPendingOrdersTheirUnits(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	s.options.ClaimAfter = time.Hour
	a := s.replica(t, "a", idle)
	s.limit(t, a, 3)
	reported := orders(sell(t, a, by("first", 1)))
	settle(t, a)
	reported = append(reported, sell(t, a, by("小明", 2)), sell(t, a, by("other", 3)))
	should.Be(t, recall(t, a), stock.Recalled{Returned: 94, Pending: 5}, "is recalled")
	s.assertReach(t, 94, 5, true)
	if d, err := a.Drift(t.Context(), goods); err != nil || !d.Closed || d.Pending != 5 || d.Drift != 0 {
		t.Errorf("the drift is %+v (%v)", d, err)
	}
	b := s.replica(t, "b")
	s.assertConsistent(t, b, reported)
	s.assertReach(t, 94, 0, true)
	s.assertBuyers(t, b)
	assertHas(t, b, "小明", 2)
}

// What is pending may be in the hands of a dead consumer. It is claimed, and the rest of
// the allocation returns with the next recall.
func TestRecallAgainReturnsWhatIsLeft(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 10, "a", idle)
	foreign := &redis.XAddArgs{Stream: s.key("orders"), Values: []any{
		"goods", goods, "quantity", 4, "epoch", 1, "request", reported[0].RequestID, "order", "another", "remaining", 0, "at", 0,
		"replica", "a", "user", "", "limit", 0, "trace", "",
	}}
	must.Do(t, s.client.XAdd(t.Context(), foreign).Err())
	dead := &redis.XReadGroupArgs{Group: "ledger", Consumer: "dead", Streams: []string{s.key("orders"), ">"}}
	must.Do(t, s.client.XReadGroup(t.Context(), dead).Err())
	should.Be(t, recall(t, a), stock.Recalled{Returned: 5, Pending: 4}, "is recalled")
	b := s.replica(t, "b") // dead-letters the order, whose request id stands for the first
	await(t, "the order to be dead-lettered", func() bool { return s.client.XLen(t.Context(), s.key("dead")).Val() == 1 })
	must.Do(t, b.Reconcile(t.Context()))
	s.assertReach(t, 9, 0, true)
	s.assertConsistent(t, b, reported)
}
