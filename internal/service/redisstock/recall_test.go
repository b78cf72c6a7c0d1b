package redisstock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
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

// assertSellsTheRest sells all units that are left through a replica.
func (s *shop) assertSellsTheRest(t *testing.T, r *redisstock.Stock, reported []stock.Order) {
	t.Helper()
	item := must.Get(s.store.InStock(t.Context(), goods))(t)
	s.assertExact(t, r, append(reported, sell(t, r, buy(item.Stock))))
	rejects(t, r, buy(1), stock.ErrInsufficientStock)
}

// assertEndsWith compares the units after a recall; then another replica claims what is
// pending, and sells the rest.
func (s *shop) assertEndsWith(t *testing.T, row, allocated int64, reported []stock.Order) {
	t.Helper()
	s.assertReach(t, row, allocated, true)
	s.options.ClaimAfter = 300 * time.Millisecond
	r := s.replica(t, "last")
	s.assertConsistent(t, r, reported)
	s.assertSellsTheRest(t, r, reported)
}

// Redis fails before each step of a recall, and the replica dies. Another one ends the
// recall, and every unit is in the row or with a pending order.
func TestARecallGoesOnAfterAFailureOfRedis(t *testing.T) {
	for _, c := range []struct {
		name  string
		fail  func(s *shop, way *servers.Proxy) error
		loses bool // what is pending
	}{
		{"frozen", func(_ *shop, way *servers.Proxy) error { way.Freeze(); return nil }, false},
		{"flushed", func(s *shop, _ *servers.Proxy) error { return s.client.FlushAll(t.Context()).Err() }, true},
	} {
		for _, step := range []string{"survey", "begin", "page", "drain"} {
			t.Run(c.name+" before "+step, func(t *testing.T) {
				t.Parallel() // they wait for a Redis that does not answer
				server := lab.Redis(t)
				if c.loses {
					server = lab.OwnRedis(t)
				}
				s := open(t, server, 20)
				s.options.ClaimAfter = time.Hour
				seller := s.replica(t, "seller", idle)
				reported := s.pendingOrders(t, seller, 5)
				way := labtest.NewProxy(t, server.Address)
				changes := []func(*redisstock.Options, *backend.RedisOptions){at(way.Address), idle}
				if c.loses { // the error comes at once
					changes = append(changes, patient)
				}
				a := s.replica(t, "a", changes...)
				held := way.Arm(servers.Rule{Sent: "\r\n" + step + "\r\n", Do: servers.Hold})
				recalled := startRecall(t, a)
				labtest.AwaitReached(t, held)
				must.Do(t, c.fail(s, way))
				held.Pass()
				err := <-recalled
				assertNamesRedis(t, err)
				if err == nil && !c.loses {
					t.Error("the recall is answered without an error")
				}
				should.Do(t, a.Close())
				way.Thaw() // a late step must do no harm
				row, allocated := int64(14), int64(5)
				if c.loses {
					row, allocated, reported = 19, 0, reported[:1]
				}
				recall(t, s.replica(t, "b", idle))
				s.assertEndsWith(t, row, allocated, reported)
			})
		}
	}
}

func startRecall(t *testing.T, r *redisstock.Stock) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := r.Recall(t.Context(), goods)
		done <- err
	}()
	return done
}

// assertNamesRedis accepts no error, and one that names Redis.
func assertNamesRedis(t *testing.T, err error) {
	t.Helper()
	named, ok := errors.AsType[*stock.BackendError](err)
	if err != nil && (!ok || named.Backend != "redis") {
		t.Errorf("the recall is answered with %v, want an error that names redis", err)
	}
}

// A replica loses the database at each commit of a recall, before or after the database has
// it, and another one ends the recall.
func TestARecallGoesOnAfterAFailureOfTheDatabase(t *testing.T) {
	for commit := 1; commit <= 3; commit++ { // of the closing, of the next epoch, of the return
		for _, do := range []servers.Action{servers.Lose, servers.LoseReply} {
			t.Run(string(do)+" of commit "+string(rune('0'+commit)), func(t *testing.T) {
				s := open(t, lab.Redis(t), 20)
				s.options.ClaimAfter = time.Hour
				seller := s.replica(t, "seller", idle)
				reported := s.pendingOrders(t, seller, 5)
				slow := s.slowReplica(t, "a")
				lost := slow.way.Arm(servers.Rule{Sent: "COMMIT", Nth: commit, Do: do})
				if _, err := slow.replica.Recall(t.Context(), goods); err == nil || !lost.Disarm() {
					t.Fatalf("commit %d is answered with %v", commit, err)
				}
				recall(t, s.replica(t, "b", idle))
				s.assertEndsWith(t, 14, 5, reported)
			})
		}
	}
}

// A replica dies after each step of a recall, and no client asks for the units: the
// reconciler of another one returns them. It opens nothing.
func TestTheReconcilerEndsARecall(t *testing.T) {
	for _, step := range []string{"closed", "survey", "begin", "page", "drain", "return"} {
		t.Run(step, func(t *testing.T) {
			server := lab.Redis(t)
			s := open(t, server, 20)
			s.options.ClaimAfter = time.Hour
			seller := s.replica(t, "seller", idle)
			reported := s.pendingOrders(t, seller, 5)
			s.dieInRecall(t, server, step)
			b := s.replica(t, "b", idle)
			for range 2 {
				must.Do(t, b.Reconcile(t.Context()))
			}
			s.assertEndsWith(t, 14, 5, reported)
		})
	}
}

// dieInRecall has a replica die when it is about to take a step of a recall.
func (s *shop) dieInRecall(t *testing.T, server *servers.Redis, step string) {
	t.Helper()
	if step == "closed" {
		must.Get(s.store.CloseAllocation(t.Context(), goods, redisstock.Allocation))(t)
		return
	}
	way := labtest.NewProxy(t, server.Address)
	slow := s.slowReplica(t, "a", at(way.Address))
	if step == "return" {
		slow.way.Arm(servers.Rule{Sent: "SET units = units - ", Do: servers.Lose})
	} else {
		way.Arm(servers.Rule{Sent: "\r\n" + step + "\r\n", Do: servers.Lose})
	}
	if _, err := slow.replica.Recall(t.Context(), goods); err == nil {
		t.Fatalf("the recall without %s is answered without an error", step)
	}
	should.Do(t, slow.replica.Close())
}

// The replica stalls before it returns the units, and purchases open the allocation meanwhile
// and sell of it: its late step moves nothing, and the recall begins anew.
func TestALateReturnMovesNothing(t *testing.T) {
	s := open(t, lab.Redis(t), 20)
	s.options.ClaimAfter = time.Hour
	b := s.replica(t, "b", idle)
	reported := s.pendingOrders(t, b, 5)
	slow := s.slowReplica(t, "a")
	written := sell(t, b, buy(1)) // by the consumer of a, which writes no other
	must.Do(t, slow.replica.Await(t.Context(), written))
	held := slow.way.Arm(servers.Rule{Sent: "FOR UPDATE", Nth: 3, Do: servers.Hold}) // after the closing and the next epoch
	recalled := startRecall(t, slow.replica)
	labtest.AwaitReached(t, held)
	reported = append(reported, written, sell(t, b, buy(6)), sell(t, b, buy(1)))
	held.Pass()
	must.Do(t, <-recalled)
	s.assertEndsWith(t, 6, 12, reported)
}

func TestTwoReplicasRecallAtOnce(t *testing.T) {
	s := open(t, lab.Redis(t), 50)
	replicas := []*redisstock.Stock{s.replica(t, "a"), s.replica(t, "b")}
	reported := make([]stock.Order, 0, 10)
	for n := range int64(10) {
		reported = append(reported, sell(t, replicas[n%2], buy(1)))
		settle(t, replicas[0])
		var returned [2]stock.Recalled
		var both sync.WaitGroup
		for i, r := range replicas {
			both.Go(func() { returned[i] = recall(t, r) })
		}
		both.Wait()
		s.assertReach(t, 49-n, 0, true)
	}
	s.assertSellsTheRest(t, replicas[1], reported)
}

// No user is staged for a closed counter, and a limit that is set in the middle of a recall
// holds for its pending orders.
func TestALimitIsSetDuringARecall(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	s.options.ClaimAfter = time.Hour
	a, way := s.replicaBehind(t, "a", idle)
	s.limit(t, a, 5)
	s.addUsers(t, 3000)
	reported := orders(sell(t, a, by("first", 1)))
	settle(t, a)
	reported = append(reported, sell(t, a, by("小明", 4)), sell(t, a, by("other", 1)))
	staged := way.Arm(servers.Rule{Sent: "\r\nstage\r\n", Nth: 1000, Do: servers.Count})
	held := way.Arm(servers.Rule{Sent: "\r\ndrain\r\n", Do: servers.Hold})
	recalled := startRecall(t, a)
	labtest.AwaitReached(t, held)
	s.limit(t, a, 3)
	held.Pass()
	must.Do(t, <-recalled)
	should.Be(t, staged.Seen(), 0, "pages of users were staged for a closed counter")
	s.assertReach(t, 94, 5, true)
	b := s.replica(t, "b")
	s.assertConsistent(t, b, reported)
	assertHas(t, b, "小明", 4)
	assertHas(t, b, "user-777", 1)
	reported = append(reported, sell(t, b, by("other", 2)))
	assertHas(t, b, "other", 3)
	s.assertConsistent(t, b, reported)
}

// A closed counter does not know what users have: no limit is exceeded through it.
func TestALimitHoldsDuringARecall(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	a, way := s.replicaBehind(t, "a")
	b := s.replica(t, "b")
	s.limit(t, a, 3)
	reported := orders(sell(t, a, by("小明", 2)))
	settle(t, a)
	held := way.Arm(servers.Rule{Sent: "\r\ndrain\r\n", Do: servers.Hold})
	recalled := startRecall(t, a)
	labtest.AwaitReached(t, held)
	assertHas(t, b, "小明", 2)
	held.Pass()
	must.Do(t, <-recalled)
	s.assertConsistent(t, b, reported)
	s.assertBuyers(t, b)
}

// All units of an item are sold through another replica, whatever step its recall is about to take: on their way from
// Redis into the row they are never out of reach.
func TestARecallHidesNoUnitsFromAPurchase(t *testing.T) {
	server := lab.Redis(t)
	s := open(t, server, 1)
	way := labtest.NewProxy(t, server.Address)
	slow, b := s.slowReplica(t, "a", at(way.Address), patient), s.replica(t, "b")
	for i, step := range []string{"survey", "begin", "page", "drain", "return"} {
		t.Run(step, func(t *testing.T) {
			item := s.another(t, int64(2*i+3), 20) // on the same stream
			item.sell(t, b, buy(1))
			awaitLedger(t, b)
			proxy, rule := way, servers.Rule{Sent: "\r\n" + step + "\r\n", Do: servers.Hold}
			if step == "return" {
				proxy, rule.Sent, rule.Nth = slow.way, "FOR UPDATE", 3 // after the closing and the next epoch
			}
			held, recalled := proxy.Arm(rule), make(chan struct{})
			go func() {
				defer close(recalled)
				_, _ = slow.replica.Recall(t.Context(), item.id) // it may find the allocation opened again and again
			}()
			labtest.AwaitReached(t, held)
			item.sell(t, b, buy(19))
			held.Pass()
			<-recalled
			awaitLedger(t, b)
			if audit, err := s.store.Audit(t.Context(), item.id); err != nil || !audit.Clean || audit.Sold != 20 {
				t.Errorf("the audit is %+v (%v), want 20 sold", audit, err)
			}
		})
	}
}

// What is done to one item changes nothing of another one on the same stream, which has orders pending.
func TestWhatIsDoneToAnItemLeavesTheOthersAlone(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, other := s.replica(t, "a", idle), s.another(t, 3, 10)
	reported := orders(sell(t, a, by("小明", 1)))
	settle(t, a)
	other.sell(t, a, by("小明", 2))
	reported = append(reported, sell(t, a, by("小明", 1)))
	state := func() string {
		kept := s.client.HGetAll(t.Context(), s.key("goods:3")).Val()
		item, place, err := s.store.Reach(t.Context(), 3, redisstock.Allocation)
		if err != nil || len(kept) == 0 {
			t.Fatalf("the other item has the counter %v (%v)", kept, err)
		}
		return fmt.Sprint(kept, item, place)
	}
	before := state()
	for name, do := range map[string]func(){
		"limited":   func() { s.limit(t, a, 5) },
		"restocked": func() { s.restock(t, a, 3) },
		"recalled":  func() { recall(t, a) },
		"repaired": func() {
			must.Do(t, errors.Join(s.client.Del(t.Context(), s.key("goods:1")).Err(), a.Reconcile(t.Context())))
		},
	} {
		do()
		should.Be(t, state(), before, "one item is", name, "and another")
	}
	b := s.replica(t, "b")
	s.assertConsistent(t, b, reported)
	other.assertExact(t, b, 1)
}

// A client waits for the ledger while the units of its order are recalled around it.
func TestAwaitOutlastsARecall(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	s.options.ClaimAfter = time.Hour
	a := s.replica(t, "a", idle)
	reported := begin(t, a)
	reported = append(reported, sell(t, a, buy(2)))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	written := make(chan error, 1)
	go func() { written <- a.Await(ctx, reported[1]) }()
	recall(t, a)
	s.replica(t, "b")
	should.Do(t, <-written)
	s.assertConsistent(t, a, reported)
	s.assertReach(t, 7, 0, true)
}

// Nothing of the item is in Redis: whether that answers does not matter.
func TestAnItemThatIsRecalledNeedsNoRedis(t *testing.T) {
	server := lab.OwnRedis(t)
	s := open(t, server, 10)
	a := s.replica(t, "a")
	begin(t, a)
	recall(t, a)
	must.Do(t, server.Kill(t.Context()))
	should.Be(t, recall(t, a), stock.Recalled{}, "is recalled")
	s.addToRow(t, 1)
	pending, pendingErr := a.Pending(t.Context(), goods)
	d, driftErr := a.Drift(t.Context(), goods)
	err := errors.Join(pendingErr, driftErr, a.Restocked(t.Context(), goods, 1), a.LimitChanged(t.Context(), goods), a.Reconcile(t.Context()))
	if err != nil || pending != 0 || !d.Closed {
		t.Errorf("%d units are pending, the drift is %+v (%v)", pending, d, err)
	}
	must.Do(t, server.Restart(t.Context()))
	await(t, "a sale", func() bool { o, err := deduct(t, a, buy(10)); return err == nil && o.Rejected == nil })
}

// The counter is lost, and consumers and the reconciler make another one: a closed one.
func TestAClosedAllocationIsOpenedByPurchasesOnly(t *testing.T) {
	s, a, reported := openSold(t, lab.OwnRedis(t), 20, "a", idle)
	sell(t, a, buy(2))
	recall(t, a)
	if err := s.client.FlushAll(t.Context()).Err(); err != nil { // with the pending order
		t.Fatal(err)
	}
	for range 2 {
		must.Do(t, a.Reconcile(t.Context()))
	}
	s.assertReach(t, 19, 0, true)
	s.restock(t, a, 3)
	s.limit(t, a, 3)
	s.assertReach(t, 22, 0, true)
	reported = append(reported, sell(t, a, by("小明", 3)))
	assertHas(t, a, "小明", 3)
	b := s.replica(t, "b")
	s.assertConsistent(t, b, reported)
	s.assertBuyers(t, b)
}

// writeAndDie is a consumer that writes pending orders, and dies before it settles them.
func (s *shop) writeAndDie(t *testing.T, orders []stock.Order) {
	t.Helper()
	place := must.Get(s.store.Allocation(t.Context(), goods, redisstock.Allocation))(t)
	list := make([]repo.PendingOrder, len(orders))
	for i, o := range orders {
		list[i] = repo.PendingOrder{Order: o, Epoch: place.Epoch}
	}
	must.Do(t, s.store.Keep(t.Context(), redisstock.Allocation, list))
}

// A consumer writes the pending orders between two steps of a recall, and dies before it
// settles them: their units are not pending any more, and return with the next recall.
func TestOrdersThatAreWrittenAndNotSettledAreNotPending(t *testing.T) {
	s := open(t, lab.Redis(t), 20)
	s.options.ClaimAfter = time.Hour
	seller := s.replica(t, "seller", idle)
	reported := s.pendingOrders(t, seller, 5)
	a, slow := s.replicaBehind(t, "a", idle)
	drain := slow.Arm(servers.Rule{Sent: "\r\ndrain\r\n", Do: servers.Hold})
	recalled := startRecall(t, a)
	labtest.AwaitReached(t, drain)
	s.writeAndDie(t, reported[1:]) // the first is settled
	drain.Pass()
	must.Do(t, <-recalled)
	recall(t, s.replica(t, "c", idle))
	s.assertEndsWith(t, 14, 0, reported)
}

// A consumer writes pending orders after the recall has counted them for the last time, all
// or some: as many units as it returned less than there were are not taken for pending.
func TestOrdersThatAreWrittenDuringARecallHideNoUnits(t *testing.T) {
	for _, written := range []int64{5, 4} {
		t.Run(fmt.Sprintf("%d of 5", written), func(t *testing.T) {
			s := open(t, lab.Redis(t), 11)
			s.options.ClaimAfter = time.Hour
			seller := s.replica(t, "seller", idle)
			reported := s.pendingOrders(t, seller, 5)
			a, slow := s.replicaBehind(t, "a", idle)
			first := slow.Arm(servers.Rule{Sent: "\r\ndrain\r\n", Do: servers.HoldReply})
			recalled := make(chan stock.Recalled, 1)
			go func() {
				got, err := a.Recall(t.Context(), goods)
				should.Do(t, err)
				recalled <- got
			}()
			labtest.AwaitReached(t, first)
			last := slow.Arm(servers.Rule{Sent: "\r\ndrain\r\n", Do: servers.HoldReply})
			first.Pass()
			labtest.AwaitReached(t, last)
			s.writeAndDie(t, reported[1:1+written]) // the first is settled
			last.Pass()
			should.Be(t, <-recalled, stock.Recalled{Returned: 5, Pending: 5 - written}, "recalled is")
			s.assertEndsWith(t, 5, 5-written, reported)
		})
	}
}

// A database that was restored is behind Redis, and no client buys there.
func TestRecallOfAnEpochThatOnlyRedisKnows(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a := s.replica(t, "a")
	reported := orders(sell(t, a, buy(1)))
	for range 3 {
		s.rebuild(t, a)
	}
	settle(t, a)
	must.Get(s.sql(t).ExecContext(t.Context(), "UPDATE tb_stock_place SET epoch = 1"))(t)
	should.Be(t, recall(t, a), stock.Recalled{Returned: 9}, "is recalled")
	s.assertConsistent(t, a, reported)
	s.assertReach(t, 9, 0, true)
}
