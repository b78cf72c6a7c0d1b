package redisstock_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// limit sets the limit of one buyer, and notifies a replica.
func (s *shop) limit(t *testing.T, r *redisstock.Stock, perUser int64) {
	t.Helper()
	must.Do(t, s.store.SetLimit(t.Context(), goods, perUser), r.LimitChanged(t.Context(), goods))
}

func by(user string, units int64) stock.Purchase {
	p := buy(units)
	p.UserID = user
	return p
}

// assertHas finds out what Redis thinks a buyer has, who may have three, by a purchase
// that is one unit beyond.
func assertHas(t *testing.T, r *redisstock.Stock, user string, has int64) {
	t.Helper()
	o, err := deduct(t, r, by(user, max(1, 4-has)))
	limited, ok := errors.AsType[*stock.UserLimitError](o.Rejected)
	if err != nil || !ok || *limited != (stock.UserLimitError{PerUser: 3, Has: has}) {
		t.Errorf("one more than three is answered with %v (%v), want a limit of 3 and %d units already", o.Rejected, err, has)
	}
}

// assertBuyers holds the counts to the ledger once it has everything.
func (s *shop) assertBuyers(t *testing.T, r *redisstock.Stock) {
	t.Helper()
	settle(t, r)
	audit, err := s.store.AuditInFull(t.Context(), goods)
	if err != nil || audit.Buyers == nil || *audit.Buyers != (stock.Buyers{}) {
		t.Errorf("about the buyers the audit finds %+v (%v)", audit.Buyers, err)
	}
}

// What a buyer has is known again from the ledger.
func TestALimitOutlastsARedisThatForgets(t *testing.T) {
	s := open(t, lab.OwnRedis(t), 100)
	a := s.replica(t, "a")
	s.limit(t, a, 3)
	reported := orders(sell(t, a, by("小明", 2)))
	settle(t, a)
	must.Do(t, s.client.FlushAll(t.Context()).Err())
	assertHas(t, a, "小明", 2)
	should.Be(t, s.client.PTTL(t.Context(), s.key("users:1")).Val(), -1, "what the buyers have is forgotten in")
	reported = append(reported, sell(t, a, by("小明", 1)))
	assertHas(t, a, "小明", 3)
	s.assertExact(t, a, reported)
	s.assertBuyers(t, a)
}

// Pending units count as well where the counter is rebuilt: once, also where
// the ledger has it already and the stream still.
func TestALimitCountsPendingOrders(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	a, cut := s.replicaBehind(t, "a")
	s.limit(t, a, 3)
	reported := orders(sell(t, a, by("first", 1)))
	settle(t, a)
	lost := labtest.Lose(cut, "\r\nsettle\r\n", false)
	reported = append(reported, sell(t, a, by("小明", 2)))
	labtest.AwaitReached(t, lost) // the ledger has it
	b := s.replica(t, "b", idle)
	s.rebuild(t, b)
	assertHas(t, b, "小明", 2)
	reported = append(reported, sell(t, b, by("小明", 1)))
	s.assertExact(t, a, reported)
	s.assertBuyers(t, a)
}

// Units were accepted before there was a limit, and are written after it was set: the
// buyer keeps them, and gets no more.
func TestALimitKeepsOrdersAcceptedBefore(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	a := s.replica(t, "a", idle)
	reported := orders(sell(t, a, by("first", 1)))
	settle(t, a)
	reported = append(reported, sell(t, a, by("小明", 5)))
	s.limit(t, a, 3)
	assertHas(t, a, "小明", 5)
	reported = append(reported, sell(t, a, by("first", 2)))
	b := s.replica(t, "b")
	s.assertExact(t, b, reported)
	s.assertBuyers(t, b)
	assertHas(t, b, "小明", 5)
	assertHas(t, b, "first", 3)
}

// Units were given back, and the message of it was lost: their buyer may have as much again within a second.
func TestAMessageThatIsLostKeepsNoBuyerAtTheLimit(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, way := s.replicaThrough(t, "a")
	s.limit(t, a, 3)
	first := sell(t, a, by("小明", 3))
	settle(t, a)
	assertHas(t, a, "小明", 3)
	reads := way.Arm(servers.Rule{Sent: "LEFT JOIN tb_stock_place", Nth: 1000, Do: servers.Count})
	began := time.Now()
	for range 20 {
		assertHas(t, a, "小明", 3)
	}
	if n := reads.Seen(); n > 1+int(time.Since(began)/(50*time.Millisecond)) {
		t.Errorf("20 purchases of a buyer at the limit cost %d reads", n)
	}
	reads.Disarm()
	must.Get(s.store.GiveBack(t.Context(), first.ID, 0, stock.ReturnKey.Of(rand.Text()), false))(t)
	var again stock.Outcome
	await(t, "the units that were given back", func() bool {
		again, _ = deduct(t, a, by("小明", 3))
		return again.Rejected == nil && again.Order.ID != ""
	})
	assertHas(t, a, "小明", 3)
	settle(t, a)
	s.assertBuyers(t, a)
	if audit := s.audit(t); !audit.Clean || audit.Stock != 7 || audit.Returned != 3 {
		t.Errorf("the audit is %+v", audit)
	}
}

// What is dead-lettered was never bought: its buyer may have as much again.
func TestADeadLetteredOrderIsNotCountedToItsBuyer(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	a := s.replica(t, "a", idle)
	s.limit(t, a, 3)
	reported := orders(sell(t, a, by("first", 1)))
	settle(t, a)
	lost := by("小明", 2)
	sell(t, a, lost)
	assertHas(t, a, "小明", 2)
	s.takeRequestID(t, lost)
	b := s.replica(t, "b")
	settle(t, b)
	assertHas(t, b, "小明", 0)
	reported = append(reported, sell(t, b, by("小明", 3)))
	s.assertExact(t, b, reported)
	s.assertBuyers(t, b)
}

// A consumer has an order in hand that Redis has forgotten, and its buyer has bought
// as many as it may since: the order is dead-lettered.
func TestAnOrderThatRedisHasForgottenIsHeldToTheLimit(t *testing.T) {
	buriesWhatRedisForgets(t, 100, 3, func(r *redisstock.Stock) stock.Order { return sell(t, r, by("小明", 3)) })
}

// buriesWhatRedisForgets has a consumer in hand what Redis forgets, until another replica has sold since: it
// dead-letters the order.
func buriesWhatRedisForgets(t *testing.T, units, limit int64, since func(*redisstock.Stock) stock.Order) {
	t.Helper()
	s := open(t, lab.OwnRedis(t), units)
	a := s.replica(t, "a")
	s.limit(t, a, limit)
	reported := orders(sell(t, a, by("other", 1)))
	settle(t, a)
	b := s.replica(t, "b", idle)
	enough := errors.New("nothing is to be written")
	err := s.store.InTx(t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.CountIn(t.Context(), goods, limit, []stock.Purchase{by("小明", 1)}); err != nil {
			return err
		}
		sell(t, a, by("小明", 2)) // the consumer waits for the buyer's count
		await(t, "the order to be in hand", func() bool {
			pending, err := s.client.XPending(t.Context(), s.key("orders"), "ledger").Result()
			return err == nil && pending.Count == 1
		})
		if err := s.client.FlushAll(t.Context()).Err(); err != nil {
			return err
		}
		reported = append(reported, since(b))
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	await(t, "the order to be dead-lettered", func() bool { return s.client.XLen(t.Context(), s.key("dead")).Val() == 1 })
	s.assertExact(t, b, reported)
	await(t, "the report of it", func() bool { return s.seen.deadLettered.Load() == 1 })
	s.assertBuyers(t, b)
}

// A batch is offered again for one that does not fit, under a limit that was raised in between, and that answer is
// lost: a buyer who was at the limit before may have bought.
func TestABuyerIsNotAtTheLimitByAnEarlierAnswer(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, way := s.replicaBehind(t, "a")
	b := s.replica(t, "b")
	s.limit(t, b, 9)
	reported := orders(sell(t, a, by("小明", 9)))
	settle(t, b)
	s.addToRow(t, 5)
	batch := []stock.Purchase{by("other", 1), by("小明", 1), by("another", 1)}
	offered := way.Arm(servers.Rule{Sent: "\r\nadd\r\n", Do: servers.Hold})
	var outcomes []stock.Outcome
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		outcomes, err = a.Deduct(t.Context(), goods, batch)
	}()
	labtest.AwaitReached(t, offered)
	s.limit(t, b, 20)
	labtest.Lose(way, "\r\nsell\r\n", true)
	offered.Pass()
	<-answered
	if err != nil || outcomes[0].Rejected != nil {
		t.Fatalf("the batch is answered with %+v (%v)", outcomes, err)
	}
	reported = append(reported, outcomes[0].Order)
	for i, p := range batch[1:] {
		should.Fail(t, outcomes[1+i].Rejected, stock.ErrUnknownOutcome, "purchase … is answered with", 1+i)
		p.Keyed = true
		again, err := deduct(t, b, p)
		if err != nil || !again.Replayed {
			t.Fatalf("asked again it is answered with %+v, %v: it was not sold", again, err)
		}
		reported = append(reported, again.Order)
	}
	s.assertExact(t, b, reported)
}

// A limit was raised, and the replica of its admin died before Redis was notified: a buyer at the old limit buys up to
// the new one. So it does where the limit is raised while its purchase is looked at.
func TestALimitThatWasRaisedRejectsNoOne(t *testing.T) {
	s := open(t, lab.Redis(t), 20)
	a, b := s.slowReplica(t, "a"), s.replica(t, "b")
	s.limit(t, b, 3)
	reported := orders(sell(t, a.replica, by("小明", 3)), sell(t, b, by("小红", 3)))
	settle(t, b)
	must.Do(t, s.store.SetLimit(t.Context(), goods, 4))
	reported = append(reported, sell(t, b, by("小明", 1)))
	look, answered := a.way.Arm(servers.Rule{Sent: "LEFT JOIN tb_stock_place", Do: servers.Hold}), make(chan stock.Order, 1)
	go func() { answered <- sell(t, a.replica, by("小红", 3)) }()
	labtest.AwaitReached(t, look)
	s.limit(t, b, 6)
	look.Pass()
	s.assertExact(t, b, append(reported, <-answered))
	s.assertBuyers(t, b)
}

// The admin's replica died after the limit was set and before Redis was notified.
func TestTheReconcilerFindsALimitThatRedisHasMissed(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	s.options.Reconcile = 20 * time.Millisecond
	a := s.replica(t, "a")
	reported := orders(sell(t, a, by("小明", 2)))
	settle(t, a)
	must.Do(t, s.store.SetLimit(t.Context(), goods, 3))
	await(t, "the counter to be installed anew", func() bool {
		d, err := a.Drift(t.Context(), goods)
		return err == nil && d.Loaded
	})
	assertHas(t, a, "小明", 2)
	s.assertExact(t, a, reported)
	s.assertBuyers(t, a)
}

// A limit is set in the middle of a rebuild: it is in force only with the next one.
func TestALimitIsNotAnsweredByAnEarlierRebuild(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, way := s.replicaBehind(t, "a")
	held := way.Arm(servers.Rule{Sent: "\r\npage\r\n", Do: servers.Hold})
	first, changed := make(chan error, 1), make(chan error, 1)
	go func() { first <- oneOf(a.Deduct(t.Context(), goods, []stock.Purchase{by("other", 1)})) }()
	labtest.AwaitReached(t, held)
	must.Do(t, s.store.SetLimit(t.Context(), goods, 3))
	go func() { changed <- a.LimitChanged(t.Context(), goods) }()
	time.Sleep(100 * time.Millisecond) // it waits for the rebuild
	held.Pass()
	must.Do(t, errors.Join(<-first, <-changed))
	should.Fail(t, must.Get(deduct(t, a, by("小明", 4)))(t).Rejected, stock.ErrUserLimit, "4 of 3 are answered with")
}
