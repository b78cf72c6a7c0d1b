package redisstock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// crowd sells through the replicas until every buyer is rejected, and returns what
// the buyers' answers. An unknown outcome is retried under its key.
func crowd(t *testing.T, replicas ...*redisstock.Stock) []stock.Order {
	t.Helper()
	var mu sync.Mutex
	var reported []stock.Order
	var buyers sync.WaitGroup
	for i := range 12 {
		buyers.Go(func() {
			for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
				p := buy(1)
				o, err := deduct(t, replicas[i%len(replicas)], p)
				for try := 0; err != nil && try < 200; try++ {
					time.Sleep(10 * time.Millisecond)
					p.Keyed = true
					o, err = deduct(t, replicas[i%len(replicas)], p)
				}
				if err != nil || o.Rejected != nil {
					if err != nil || !errors.Is(o.Rejected, stock.ErrInsufficientStock) {
						t.Errorf("%v, %v", err, o.Rejected)
					}
					return
				}
				mu.Lock()
				reported = append(reported, o.Order)
				mu.Unlock()
			}
		})
	}
	buyers.Wait()
	return reported
}

// A replica that was on its way to install the counter finds that another one has,
// and begins no epoch: the orders accepted in the first need not be offered again.
func TestAnExistingCounterIsNotRebuilt(t *testing.T) {
	server := lab.Redis(t)
	s := open(t, server, 10)
	way := labtest.NewProxy(t, server.Address)
	a, b := s.replica(t, "a"), s.replica(t, "b", at(way.Address))
	late := way.Arm(servers.Rule{Sent: ":filling:", Do: servers.Hold})
	var second stock.Outcome
	var buyer sync.WaitGroup
	buyer.Go(func() {
		var err error
		if second, err = deduct(t, b, buy(1)); err != nil || second.Rejected != nil {
			t.Errorf("the second is answered with %v (%v)", second.Rejected, err)
		}
	})
	labtest.AwaitReached(t, late)
	first := sell(t, a, buy(1))
	late.Pass()
	buyer.Wait()
	place := must.Get(s.store.Allocation(t.Context(), goods, redisstock.Allocation))(t)
	should.Be(t, place.Epoch, 1, "the epoch of the allocation", place)
	s.assertExact(t, a, orders(first, second.Order))
}

// More orders are in the ledger and in hand than a rebuild looks up in one go: none of them is
// kept back.
func TestARebuildKeepsBackNothingThatIsWritten(t *testing.T) {
	const written, rest = 620, 80
	server := lab.Redis(t)
	s, seller, reported := openSold(t, server, 1+written+rest, "seller", idle)
	for range written {
		reported = append(reported, sell(t, seller, buy(1)))
	}
	cut := labtest.NewProxy(t, server.Address)
	lost := labtest.Lose(cut, "\r\nsettle\r\n", false)
	a := s.replica(t, "a", at(cut.Address))
	labtest.AwaitReached(t, lost) // the ledger has all of them
	b := s.replica(t, "b", idle)
	s.rebuild(t, b)
	reported = append(reported, sell(t, b, buy(rest)))
	s.assertExact(t, a, reported)
}

// The reply of the script is lost: the buyer gets an unknown outcome, retries with its
// key, and gets the one order.
func TestALostReplyIsOneDeduction(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	r, cut := s.replicaBehind(t, "a")
	first := sell(t, r, buy(1))
	labtest.Lose(cut, "\r\nsell\r\n", true)
	p := buy(2)
	should.Reject(deduct(t, r, p))(t, stock.ErrUnknownOutcome) // the reply was lost
	p.Keyed = true
	again, err := deduct(t, r, p)
	if err != nil || again.Rejected != nil || !again.Replayed || again.Order.Remaining != 7 {
		t.Fatalf("asked again: %+v, %v, want the order that was made", again, err)
	}
	s.assertExact(t, r, []stock.Order{first, again.Order})
}

func TestARedisThatIsNotThereIsNamed(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	r := s.replica(t, "a", at("127.0.0.1:1"))
	s.assertNeedsNoRedis(t, r)
	_, err := deduct(t, r, buy(1))
	named, ok := errors.AsType[*stock.BackendError](err)
	if !ok || named.Backend != "redis" || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("%v, want a failure of redis before anything happened", err)
	}
}

// assertNeedsNoRedis asks for everything but a purchase of an item that was never sold from Redis: it does
// not begin there with it.
func (s *shop) assertNeedsNoRedis(t *testing.T, r *redisstock.Stock) {
	t.Helper()
	_, byRequest, requestErr := r.FindRequest(t.Context(), "request")
	_, byNumber, numberErr := r.FindOrder(t.Context(), "018bcfe5-6800-7000-8000-000000000000")
	pending, pendingErr := r.Pending(t.Context(), goods)
	recalled, recallErr := r.Recall(t.Context(), goods)
	err := errors.Join(requestErr, numberErr, pendingErr, recallErr, r.Restocked(t.Context(), goods, 1), r.LimitChanged(t.Context(), goods), r.Reconcile(t.Context()))
	if err != nil || byRequest || byNumber || pending != 0 || recalled != (stock.Recalled{}) {
		t.Errorf("orders are found %t and %t, %d units pending and %+v recalled (%v)", byRequest, byNumber, pending, recalled, err)
	}
	should.Be(t, must.Get(s.store.Allocation(t.Context(), goods, redisstock.Allocation))(t).Epoch, 0, "the epoch of the allocation")
}

// What was written is delivered again, because taking it off the stream failed.
func TestADeliveryThatIsRepeatedIsWrittenOnce(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	r, cut := s.replicaBehind(t, "a")
	reported := begin(t, r)
	for range 3 {
		lost := labtest.Lose(cut, "\r\nsettle\r\n", false)
		reported = append(reported, sell(t, r, buy(2)))
		labtest.AwaitReached(t, lost)
	}
	s.assertExact(t, r, reported)
	should.Be(t, s.seen.written.Load(), int64(len(reported)), "written")
}

func TestTheLagIsWhatTheLedgerLacks(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	other := s.another(t, 2, 10) // on another stream
	a := s.replica(t, "a", idle)
	sell(t, a, buy(1))
	other.sell(t, a, buy(1))
	awaitLedger(t, a)
	assertLag := func(orders int64, least time.Duration) {
		t.Helper()
		if lag, err := a.Lag(t.Context()); err != nil || lag.Orders != orders || lag.Oldest < least || orders == 0 && lag.Oldest != 0 {
			t.Errorf("the ledger is behind by %+v (%v), want %d orders, the oldest of which has waited for %s", lag, err, orders, least)
		}
	}
	assertLag(0, 0)
	other.sell(t, a, buy(1))
	time.Sleep(20 * time.Millisecond)
	sell(t, a, buy(1))
	sell(t, a, buy(1))
	assertLag(3, 19*time.Millisecond) // the age is in whole milliseconds
	b := s.replica(t, "b")
	awaitLedger(t, b)
	other.assertExact(t, b, 2)
	assertLag(0, 0)
}

// awaitLedger waits until the ledger has the orders of all items.
func awaitLedger(t *testing.T, r *redisstock.Stock) {
	t.Helper()
	await(t, "the ledger", func() bool {
		lag, err := r.Lag(t.Context())
		return err == nil && lag.Orders == 0
	})
}

// anotherItem is one that a shop sells beside its own.
type anotherItem struct {
	*shop

	id int64
}

func (s *shop) another(t *testing.T, id, units int64) anotherItem {
	t.Helper()
	must.Do(t, s.store.CreateGoods(t.Context(), id, units, rand.Text()))
	return anotherItem{s, id}
}

func (i anotherItem) sell(t *testing.T, r *redisstock.Stock, p stock.Purchase) {
	t.Helper()
	outcomes, err := r.Deduct(t.Context(), i.id, []stock.Purchase{p})
	if err != nil || outcomes[0].Rejected != nil {
		t.Fatalf("item %d is not sold: %+v (%v)", i.id, outcomes, err)
	}
}

// assertExact waits until its counter has what the ledger leaves of it, after so many orders.
func (i anotherItem) assertExact(t *testing.T, r *redisstock.Stock, orders int64) {
	t.Helper()
	await(t, fmt.Sprintf("the orders of item %d", i.id), func() bool {
		d, err := r.Drift(t.Context(), i.id)
		return err == nil && d.Loaded && d.Pending == 0 && d.Drift == 0
	})
	if a, err := i.store.Audit(t.Context(), i.id); err != nil || !a.Clean || a.Orders != orders {
		t.Errorf("the audit of item %d is %+v (%v), want %d orders", i.id, a, err, orders)
	}
}

// One batch has orders of several items and epochs: each is written to its own, and only those of an epoch
// that is over are offered again.
func TestABatchHasOrdersOfSeveralItems(t *testing.T) {
	s := open(t, lab.Redis(t), 6)
	other := s.another(t, 3, 40) // on the same stream, with orders of more than the first has
	a := s.replica(t, "a", idle)
	reported := begin(t, a)
	for range 3 {
		reported = append(reported, sell(t, a, buy(1)))
		other.sell(t, a, buy(5))
	}
	s.rebuild(t, a)
	other.sell(t, a, buy(3))
	reported = append(reported, sell(t, a, buy(1)))
	b := s.replica(t, "b")
	s.assertExact(t, b, reported)
	other.assertExact(t, b, 4)
	s.assertDeadLettered(t, 0)
	pending, err := s.client.XPending(t.Context(), s.key("orders"), "ledger").Result()
	if err != nil || pending.Count != 0 || s.client.XLen(t.Context(), s.key("orders")).Val() != 0 {
		t.Errorf("consumers have %+v in hand (%v)", pending, err)
	}
	for _, item := range []string{"goods:1", "goods:3"} {
		should.Be(t, s.client.HGet(t.Context(), s.key(item), "promised").Val(), "0", item)
	}
}

// The stream and its consumers are lost, and orders are accepted before there are any again.
func TestOrdersFromBeforeTheConsumersAreWritten(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 10, "a", idle)
	must.Do(t, s.client.Del(t.Context(), s.key("orders")).Err())
	reported = append(reported, sell(t, a, buy(1)), sell(t, a, buy(1)))
	s.assertExact(t, s.replica(t, "b"), reported)
}

// Redis answers with an error: nothing was sold, and that is known. So it is where the purchase was over, or where the
// database did not answer whether an epoch has begun: nothing is sold before it has.
func TestAPurchaseThatWasNotMadeIsKnownNotToBe(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	slow := s.slowReplica(t, "a")
	isKnown := func(what string, err error) {
		t.Helper()
		if named, ok := errors.AsType[*stock.BackendError](err); !ok || named.Backend == "" || errors.Is(err, stock.ErrUnknownOutcome) {
			t.Errorf("%s: %v, want a failure of a backend before anything happened", what, err)
		}
	}
	lost := slow.way.Arm(servers.Rule{Sent: "COMMIT", Do: servers.LoseReply})
	_, err := deduct(t, slow.replica, buy(1))
	isKnown("the commit of an epoch is not answered", err)
	if !lost.Disarm() {
		t.Error("no commit was lost")
	}
	reported := begin(t, slow.replica)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := slow.replica.Deduct(ended, goods, []stock.Purchase{buy(1)}); !errors.Is(err, context.Canceled) || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("a purchase that is over is answered with %v, want %v", err, context.Canceled)
	}
	s.assertExact(t, slow.replica, reported)
	must.Do(t, s.client.Set(t.Context(), s.key("goods:1"), "no counter", 0).Err())
	_, err = deduct(t, slow.replica, buy(1))
	isKnown("Redis answers with an error", err)
}

// The time of a purchase is over while Redis is asked: its answer is waited for a moment longer, before the outcome is
// unknown.
func TestAnAnswerIsWaitedForBeyondThePurchase(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, way := s.replicaBehind(t, "a")
	sell(t, a, buy(1))
	held := way.Arm(servers.Rule{Sent: "\r\nsell\r\n", Do: servers.HoldReply})
	defer held.Pass()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	err := oneOf(a.Deduct(ctx, goods, []stock.Purchase{buy(1)}))
	over, _ := ctx.Deadline()
	if waited := time.Since(over); !errors.Is(err, stock.ErrUnknownOutcome) || waited < backend.AnswerWithin-50*time.Millisecond {
		t.Errorf("the purchase is answered with %v after %s, want %v after %s", err, waited, stock.ErrUnknownOutcome, backend.AnswerWithin)
	}
}

func oneOf(outcomes []stock.Outcome, err error) error {
	if err != nil {
		return err
	}
	return outcomes[0].Rejected
}

// A reservation is one in the answer, to a client that asks again, on the stream, in the next epoch and in the
// ledger, and is held as long as it was to be.
func TestAReservationIsOneWhereverItGoes(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a := s.replica(t, "a", idle)
	begin(t, a)
	p := by("u-1", 2)
	p.Keyed, p.TTL, p.Number = true, 90*time.Second, uuid.Must(uuid.NewV7()).String()
	first, err := deduct(t, a, p)
	if err != nil || first.Rejected != nil || first.Durable != stock.InRedis || first.Order.Kind != stock.Hold || first.Order.ID != p.Number {
		t.Fatalf("the reservation is answered with %+v (%v)", first, err)
	}
	p.Number = uuid.Must(uuid.NewV7()).String() // as each request has another one
	again, err := deduct(t, a, p)
	if want := (stock.Outcome{Order: first.Order, Replayed: true, Durable: stock.InRedis}); err != nil || again != want {
		t.Errorf("it is answered again with %+v (%v), want %+v", again, err, want)
	}
	sale := p
	sale.TTL = 0
	rejects(t, a, sale, stock.ErrKeyReused)
	s.rebuild(t, a)
	if got, ok, err := a.FindRequest(t.Context(), p.RequestID); err != nil || !ok || got != first.Order {
		t.Errorf("by its request id it is %+v, %t (%v), want %+v", got, ok, err, first.Order)
	}
	b := s.replica(t, "b")
	settle(t, b)
	s.assertInLedger(t, orders(first.Order))
	r, err := s.store.Reservation(t.Context(), first.Order.ID)
	if err != nil || r.State != stock.Held || r.TTL != p.TTL || r.ExpiresAt.Sub(r.HeldAt) != p.TTL || r.Quantity != 2 || r.UserID != "u-1" {
		t.Errorf("the reservation is %+v (%v), want 2 units of u-1 held for %s", r, err, p.TTL)
	}
	if got, ok, err := b.FindRequest(t.Context(), p.RequestID); err != nil || !ok || got != first.Order {
		t.Errorf("offered again, by its request id it is %+v, %t (%v), want %+v", got, ok, err, first.Order)
	}
}

// takeRequestID has the ledger hold another order under the request id of a purchase.
func (s *shop) takeRequestID(t *testing.T, of stock.Purchase) {
	t.Helper()
	must.Do(t, s.store.CreateGoods(t.Context(), 99, 10, rand.Text()))
	err := s.store.InTx(t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: 99, Batch: []stock.Purchase{of}}); err != nil {
			return err
		}
		_, _, err := tx.SubtractIfEnough(t.Context(), 99, 2)
		return err
	})
	must.Do(t, err)
}

// A copy of a basket has sold the same line, under the same number, from the row: the units in Redis are sold to
// another buyer.
func TestALineThatACopySoldFromTheRowIsDeadLettered(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 5, "a", idle)
	line := buy(2)
	line.Number = rand.Text()
	sell(t, a, line)
	s.addToRow(t, 2)
	if !s.sellFromRow(t, line) {
		t.Fatal("the copy is not sold")
	}
	b := s.replica(t, "b")
	settle(t, b)
	s.assertDeadLettered(t, 1)
	reported = append(reported, sell(t, b, buy(4)))
	settle(t, b)
	s.assertInLedger(t, reported)
	if audit := s.audit(t); !audit.Clean || audit.Sold != 7 {
		t.Errorf("the audit is %+v, want 7 units sold", audit)
	}
}

// Redis has lost a request id, as where it evicts keys, and sold under it again. The first
// order is written, the second can never be, and keeps no later one from the ledger.
func TestOneOfTwoOrdersOfARequestIDIsWritten(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 6, "a", idle) // what follows stays pending, so that it is one batch
	twice := buy(1)
	reported = append(reported, sell(t, a, twice))
	must.Be(t, must.Get(s.client.Del(t.Context(), s.key("request:"+twice.RequestID)).Result())(t), 1, "the keys of the request id that are gone")
	sell(t, a, twice)
	reported = append(reported, sell(t, a, buy(2)))
	b := s.replica(t, "b")
	settle(t, b)
	s.assertDeadLettered(t, 1)
	s.assertInLedger(t, reported)
}

// A replica has begun an epoch and died before the counter was rebuilt: Redis
// sells on in the old one, and none of it is lost.
func TestAFillingThatWasNotFinishedLosesNothing(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 50, "a", idle)
	reported = append(reported, sell(t, a, buy(2)))
	must.Get(s.store.Fill(t.Context(), goods, redisstock.Allocation, 0))(t)
	reported = append(reported, sell(t, a, buy(3)))
	b := s.replica(t, "b")
	s.assertExact(t, b, reported)
	reported = append(reported, crowd(t, a, b)...)
	s.assertExact(t, b, reported)
}

func TestDriftIsRepairedWithoutOverselling(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 10, "a")
	for _, c := range []struct {
		drift    int64
		accepted int64 // that the counter has, and the stream has not
		looks    int   // until it is repaired
	}{{+3, 0, 1}, {-3, 0, 2}, {-3, 3, 2}} {
		for field, n := range map[string]int64{"units": c.drift, "promised": c.accepted} {
			must.Do(t, s.client.HIncrBy(t.Context(), s.key("goods:1"), field, n).Err())
		}
		for look := 1; look <= c.looks; look++ {
			d := must.Get(a.Drift(t.Context(), goods))(t)
			must.Be(t, d.Drift, c.drift, "before look", look, "the drift is", d)
			must.Do(t, a.Reconcile(t.Context()))
			should.Be(t, s.seen.compared.Load(), 3, "after look", look)
			should.Be(t, s.seen.repaired.Load(), int64(look/c.looks), "the repairs after look", look, "of", c.looks)
		}
		s.seen.repaired.Store(0)
		s.assertExact(t, a, reported)
	}
	must.Do(t, a.Reconcile(t.Context()))
	should.Be(t, s.seen.compared.Load(), 0, "the difference that is reported after the repairs")
	reported = append(reported, sell(t, a, buy(9)))
	s.assertExact(t, a, reported)
}

// Restocking is known to all replicas at once, and not only after the second for
// which they believe that nothing is left.
func TestRestockingEndsTheSoldOutOnAllReplicas(t *testing.T) {
	s := open(t, lab.Redis(t), 1)
	replicas := []*redisstock.Stock{s.replica(t, "a"), s.replica(t, "b"), s.replica(t, "c")}
	reported := orders(sell(t, replicas[0], buy(1)))
	channel := s.options.Prefix + ":restocked"
	await(t, "the subscriptions", func() bool {
		return s.client.PubSubNumSub(t.Context(), channel).Val()[channel] == int64(len(replicas))
	})
	for range 3 {
		for _, r := range replicas {
			rejects(t, r, buy(1), stock.ErrInsufficientStock)
		}
		s.restock(t, replicas[1], 3)
		restocked := time.Now()
		for _, r := range replicas {
			await(t, "the restock", func() bool {
				o, err := deduct(t, r, buy(1))
				if err == nil && o.Rejected == nil {
					reported = append(reported, o.Order)
				}
				return err == nil && o.Rejected == nil
			})
		}
		if took := time.Since(restocked); took > 900*time.Millisecond {
			t.Errorf("the replicas sold %s after the restock", took)
		}
	}
	s.assertExact(t, replicas[0], reported)
}

func TestAwaitReturnsWhenTheLedgerHasTheOrder(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	a := s.replica(t, "a")
	for range 10 {
		order := sell(t, a, buy(1))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		must.Do(t, a.Await(ctx, order))
		cancel()
		s.assertInLedger(t, []stock.Order{order})
		order.ID = "another"
		should.Fail(t, a.Await(t.Context(), order), stock.ErrKeyReused) // an order whose request id stands for another one
	}
	order := stock.Order{ID: "unknown", RequestID: "unknown"}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	should.Fail(t, a.Await(ctx, order), stock.ErrUnknownOutcome) // an order that is not there
}

// A request is remembered while the ledger does not have it, and for a bounded
// time after that.
func TestRedisForgetsARequestThatTheLedgerHas(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	s.options.Remember = 200 * time.Millisecond
	a := s.replica(t, "a", idle)
	first := sell(t, a, buy(1))
	settle(t, a)
	second := sell(t, a, buy(1))
	await(t, "the first to be forgotten", func() bool {
		return s.client.Exists(t.Context(), s.key("request:"+first.RequestID)).Val() == 0
	})
	should.Be(t, s.client.Exists(t.Context(), s.key("request:"+second.RequestID)).Val(), 1, "a request is forgotten that the ledger does not have")
	s.assertExact(t, s.replica(t, "b"), []stock.Order{first, second})
	await(t, "both to be forgotten", func() bool {
		left := s.client.Keys(t.Context(), s.options.Prefix+"*request*").Val()
		return len(left) == 0
	})
}

// The database is gone for a while: buyers are served, and the ledger has it all
// when it is back.
func TestADatabaseThatIsAwayIsWaitedFor(t *testing.T) {
	s := open(t, lab.Redis(t), 300)
	a, cut := s.replicaThrough(t, "a")
	reported := begin(t, a)
	cut.Hang(true)
	for range 50 {
		reported = append(reported, sell(t, a, buy(1)))
	}
	should.Be(t, s.audit(t).Orders, 1, "orders are in a ledger that cannot be reached")
	cut.Hang(false)
	s.assertExact(t, a, reported)
}

// On a cluster every operation of the script finds its keys in one slot, or it
// would be rejected.
func TestTheStockIsSoldOnACluster(t *testing.T) {
	server := labtest.Own(t, lab.Supervisor(), "redis", servers.StartRedisCluster, servers.RedisClusterOptions{Masters: 1}).Masters[0]
	s := open(t, server, 300)
	s.cluster = true
	s.client.Close() //nolint:errcheck // a cluster's takes its place
	s.client = backend.NewRedis(backend.RedisOptions{Addresses: []string{server.Address}, Cluster: true, Password: server.Password, Timeout: time.Second, PoolSize: 4})
	a, b := s.replica(t, "a"), s.replica(t, "b")
	s.limit(t, a, 1000)
	reported := orders(sell(t, a, by("a-user", 2)))
	if _, err := s.store.Fill(t.Context(), goods, redisstock.Allocation, 0); err != nil { // so that some are offered again
		t.Fatal(err)
	}
	reported = append(reported, sell(t, b, by("a-user", 1)))
	s.limit(t, a, 0)
	reported = append(reported, crowd(t, a, b)...)
	s.assertExact(t, a, reported)
}

func lineOfBasket(units int64) stock.Purchase {
	return stock.Purchase{RequestID: stock.LineKey.Of(rand.Text()), Keyed: true, Quantity: units, TTL: time.Minute, Number: rand.Text()}
}

// A purchase that fits only with what was added to the row has its whole batch asked again. The others are
// sold by that batch all the same, and not by an earlier one.
func TestAPurchaseThatIsAskedAgainIsNoReplay(t *testing.T) {
	s := open(t, lab.Redis(t), 6)
	r := s.replica(t, "r")
	sell(t, r, buy(1)) // there is a counter
	must.Get(s.store.Restock(t.Context(), goods, 4, rand.Text()))(t)
	line := lineOfBasket(2)
	batch := []stock.Purchase{buy(2), line, buy(4)}
	for i, replayed := range []bool{false, true} {
		outcomes := must.Get(r.Deduct(t.Context(), goods, batch))(t)
		for _, o := range outcomes {
			if o.Rejected != nil || o.Replayed != replayed {
				t.Errorf("sent %d times, a purchase is answered with %+v", i+1, o)
			}
		}
	}
}

// Copies of a basket have the same number for a line: whichever is asked later has held nothing itself.
func TestALineThatACopyOfItsBasketHoldsIsAReplay(t *testing.T) {
	s := open(t, lab.Redis(t), 6)
	r := s.replica(t, "r", idle)
	sell(t, r, buy(1)) // there is a counter
	line := lineOfBasket(2)
	for i, replayed := range []bool{false, true} {
		if o, err := deduct(t, r, line); err != nil || o.Rejected != nil || o.Order.ID != line.Number || o.Replayed != replayed {
			t.Errorf("copy %d is answered with %+v (%v)", i+1, o, err)
		}
	}
}
