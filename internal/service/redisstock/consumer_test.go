package redisstock_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// A consumer has an order of an epoch that is over in hand, and stalls. Another one
// offers it again and writes it, and Redis forgets the request. The first one then finds
// it in the ledger, and takes no units for it.
func TestAStalledConsumerDoesNotOfferASettledOrderAgain(t *testing.T) {
	server := lab.Redis(t)
	s := open(t, server, 10)
	s.options.Remember = 100 * time.Millisecond
	seller := s.replica(t, "seller", idle)
	reported := begin(t, seller)
	reported = append(reported, sell(t, seller, buy(2)))
	s.rebuild(t, seller)

	way := labtest.NewProxy(t, server.Address)
	held := way.Arm(servers.Rule{Sent: "\r\nrestore\r\n", Do: servers.Hold})
	s.replica(t, "stalled", at(way.Address))
	labtest.AwaitReached(t, held)
	b := s.replica(t, "b")
	settle(t, b)
	await(t, "the request to be forgotten", func() bool {
		return s.client.Exists(t.Context(), s.key("request:"+reported[1].RequestID)).Val() == 0
	})
	ran := s.calls(t)
	held.Pass()
	await(t, "the stalled step", func() bool { return s.calls(t) > ran })
	s.assertExact(t, b, reported)
}

// calls is how often Redis has looked for a request.
func (s *shop) calls(t *testing.T) int64 {
	t.Helper()
	info := must.Get(s.client.Info(t.Context(), "commandstats").Result())(t)
	_, calls, _ := strings.Cut(info, "cmdstat_get:calls=")
	calls, _, _ = strings.Cut(calls, ",")
	n, err := strconv.ParseInt(calls, 10, 64)
	if err != nil {
		t.Fatalf("calls of GET: %v in %s", err, info)
	}
	return n
}

// Two consumers find that an order can never be written, one of which has stalled: it is one dead letter, and reported
// once.
func TestAnOrderIsDeadLetteredOnce(t *testing.T) {
	server := lab.Redis(t)
	s, seller, reported := openSold(t, server, 5, "seller", idle)
	lost := buy(2)
	sell(t, seller, lost)
	s.takeRequestID(t, lost)
	way := labtest.NewProxy(t, server.Address)
	held := way.Arm(servers.Rule{Sent: "\r\nbury\r\n", Do: servers.Hold})
	stalled := s.replica(t, "stalled", at(way.Address), patient)
	labtest.AwaitReached(t, held)
	b := s.replica(t, "b")
	await(t, "the other consumer", func() bool { return s.seen.deadLettered.Load() == 1 })
	held.Pass()
	if err := stalled.Close(); err != nil { // its step has been answered
		t.Error(err)
	}
	s.assertDeadLettered(t, 1)
	s.assertExact(t, b, append(reported, sell(t, b, buy(4))))
}

// The item of a pending order is gone: the order is dead-lettered, and keeps no other from the ledger.
func TestTheOrderOfAnItemThatIsGoneIsDeadLettered(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	gone := s.another(t, 3, 10) // on the same stream
	a := s.replica(t, "a", idle)
	reported := begin(t, a)
	gone.sell(t, a, buy(1))
	reported = append(reported, sell(t, a, buy(1)))
	for _, table := range []string{"tb_stock_place", "tb_goods_stock"} {
		must.Get(s.sql(t).ExecContext(t.Context(), "DELETE FROM "+table+" WHERE goods_id = 3"))(t)
	}
	s.assertExact(t, s.replica(t, "b"), reported)
	await(t, "the dead letter", func() bool { return s.seen.deadLettered.Load() == 1 })
	s.assertDeadLettered(t, 1)
}

// More was accepted than the allocation has. Units were added to the row before the next
// epoch began, and are a part of it: what they suffice for is kept.
func TestWhatARestockSufficesForIsNotDeadLettered(t *testing.T) {
	s, seller, reported := openSold(t, lab.Redis(t), 10, "seller", idle)
	must.Do(t, s.client.HIncrBy(t.Context(), s.key("goods:1"), "units", 5).Err())
	reported = append(reported, sell(t, seller, buy(12)))
	must.Get(s.store.Restock(t.Context(), goods, 5, "restock"))(t)
	b := s.replica(t, "b")
	settle(t, b)
	s.assertDeadLettered(t, 0)
	s.assertExact(t, b, reported)
}

// Of what was accepted beyond the allocation, what fits is written, first come first
// served, and the rest is dead-lettered: also where each order would fit alone.
func TestOfOrdersThatFitOneByOneTheFirstIsWritten(t *testing.T) {
	s, seller, reported := openSold(t, lab.Redis(t), 10, "seller", idle)
	must.Do(t, s.client.HIncrBy(t.Context(), s.key("goods:1"), "units", 5).Err())
	reported = append(reported, sell(t, seller, buy(6)))
	sell(t, seller, buy(6)) // of 3: this one is lost
	b := s.replica(t, "b")
	settle(t, b)
	s.assertDeadLettered(t, 1)
	reported = append(reported, sell(t, b, buy(3)))
	s.assertExact(t, b, reported)
}

// What another consumer has in hand is taken over once it has had it for ClaimAfter, and not before: that one may
// be about to write it.
func TestAnEntryThatAnotherConsumerHasHadForAMomentIsLeftToIt(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	s.options.ClaimAfter = time.Hour
	a := s.replica(t, "a", idle)
	reported := s.pendingOrders(t, a, 2) // of the consumer "dead"
	inHand := func() []redis.XPendingExt {
		args := &redis.XPendingExtArgs{Stream: s.key("orders"), Group: "ledger", Start: "-", End: "+", Count: 10}
		return must.Get(s.client.XPendingExt(t.Context(), args).Result())(t)
	}
	for i, idle := range []time.Duration{time.Hour + time.Minute, time.Hour - time.Minute} {
		err := s.client.Do(t.Context(), "XCLAIM", s.key("orders"), "ledger", "dead", 0, inHand()[i].ID, "IDLE", idle.Milliseconds(), "JUSTID").Err()
		must.Do(t, err)
	}
	young := inHand()[1]
	b := s.replica(t, "b")
	last := sell(t, b, buy(1)) // it is read after what others have left
	for _, written := range []stock.Order{reported[1], last} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		should.Do(t, b.Await(ctx, written))
		cancel()
	}
	if left := inHand(); len(left) != 1 || left[0].ID != young.ID || left[0].Consumer != "dead" || left[0].RetryCount != young.RetryCount {
		t.Errorf("consumers have %+v in hand, want %+v alone", left, young)
	}
	should.Be(t, len(must.Get(s.store.Orders(t.Context(), reported[2].RequestID))(t)), 0, "the orders in the ledger that another consumer has in hand")
}

// A consumer has left more than a batch, and no other waits between the batches that it takes over:
// that would be a second each.
func TestAllThatAConsumerLeftIsTakenOverInOneGo(t *testing.T) {
	s, seller, reported := openSold(t, lab.Redis(t), 100, "seller", idle)
	for range 60 {
		reported = append(reported, sell(t, seller, buy(1)))
	}
	s.handTo(t, "dead", 60)
	b := s.replica(t, "b", func(o *redisstock.Options, _ *backend.RedisOptions) { o.Batch, o.ClaimAfter = 1, 2*time.Second })
	s.assertExact(t, b, reported)
}

// A replica that starts has orders of its own from before, whose counter cannot be rebuilt: it reads those of
// other items all the same.
func TestOrdersFromBeforeThatWaitForACounterKeepNoOthersWaiting(t *testing.T) {
	keepsNoOthersWaiting(t, func(s *shop) {
		s.handTo(t, "b", 1)
	})
}

// The allocation of one item is locked for longer than a consumer waits, as while its first limit is set: the
// orders of the others come into the ledger.
func TestAnItemThatIsLockedKeepsNoOthersFromTheLedger(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	other := s.another(t, 3, 10) // on the same stream
	a := s.replica(t, "a", idle)
	reported := begin(t, a)
	other.sell(t, a, buy(1))
	for range 2 {
		reported = append(reported, sell(t, a, buy(1)))
		other.sell(t, a, buy(1))
	}
	tx := must.Get(s.sql(t).BeginTx(t.Context(), nil))(t)
	must.Get(tx.ExecContext(t.Context(), `UPDATE tb_stock_place SET units = units WHERE goods_id = 1`))(t)
	b := s.replica(t, "b", func(o *redisstock.Options, _ *backend.RedisOptions) { o.ClaimAfter = 4 * time.Second }) // it outlasts the wait for a lock
	other.assertExact(t, b, 3)
	other.sell(t, a, buy(1)) // b has orders of the first alone in hand
	other.assertExact(t, b, 4)
	must.Do(t, tx.Rollback())
	s.assertExact(t, b, reported)
}

// A consumer has an order in hand that Redis has forgotten, and all that was left was sold since: the order is
// dead-lettered.
func TestAnOrderThatRedisHasForgottenIsDeadLetteredWhenAllIsSold(t *testing.T) {
	buriesWhatRedisForgets(t, 10, 9, func(r *redisstock.Stock) stock.Order {
		order := sell(t, r, by("another", 9))
		settle(t, r)
		return order
	})
}

// assertCloses measures how long a replica takes to close.
func assertCloses(t *testing.T, r *redisstock.Stock) {
	t.Helper()
	began := time.Now()
	should.Do(t, r.Close())
	if took := time.Since(began); took > 1700*time.Millisecond {
		t.Errorf("closed after %s", took)
	}
}

func TestAReplicaClosesInTimeWhenRedisDoesNotAnswer(t *testing.T) {
	server := lab.OwnRedis(t)
	s := open(t, server, 1000)
	a, b := s.replica(t, "a"), s.replica(t, "b")
	begin(t, a)
	for range 200 { // some are in hand
		sell(t, a, buy(1))
	}
	must.Do(t, server.Pause(t.Context()))
	assertCloses(t, a)
	time.Sleep(3 * time.Second) // every connection of the other one has been given up and made anew
	assertCloses(t, s.replica(t, "late"))
	starting := s.replica(t, "starting")
	time.Sleep(100 * time.Millisecond) // all of its connections are being made
	assertCloses(t, starting)
	assertCloses(t, b)
	must.Do(t, server.Resume(t.Context()))
}

// The database does not answer while a batch is written: what is not finished stays
// pending, and another replica writes it.
func TestAReplicaClosesInTimeWhenTheDatabaseDoesNotAnswer(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	a, way := s.replicaThrough(t, "a")
	reported := begin(t, a)
	way.Freeze()
	reported = append(reported, sell(t, a, buy(1)), sell(t, a, buy(1)))
	s.awaitInHand(t, func(n int64) bool { return n > 0 })
	assertCloses(t, a)
	way.Thaw()
	s.assertExact(t, s.replica(t, "b"), reported)
}

// One connection to the database is dead without a sign of it: the consumer gives its
// batch up, and writes it on another one.
func TestAConsumerGivesUpADatabaseConnectionThatIsDead(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	a, way := s.replicaThrough(t, "a")
	reported := begin(t, a)
	dead := way.Arm(servers.Rule{Sent: "INSERT INTO tb_stock_ledger", Do: servers.HangReply})
	reported = append(reported, sell(t, a, buy(1)))
	labtest.AwaitReached(t, dead)
	s.assertExact(t, a, reported)
}

// A batch that could not be written is in the hands of its consumer, which writes it when it can: no
// other one takes it over so soon.
func TestABatchThatFailedIsWrittenByItsConsumer(t *testing.T) {
	s := open(t, lab.Redis(t), 100)
	s.options.ClaimAfter = time.Hour
	a, way := s.replicaThrough(t, "a")
	reported := begin(t, a)
	lost := labtest.Lose(way, "INSERT INTO tb_stock_ledger", false)
	reported = append(reported, sell(t, a, buy(1)))
	labtest.AwaitReached(t, lost)
	s.assertExact(t, a, reported)
}

// What was deleted from the stream by hand while a consumer had it is acknowledged, and is no dead letter.
func TestAnEntryThatWasDeletedIsNoDeadLetter(t *testing.T) {
	s, _, reported := openSold(t, lab.Redis(t), 10, "a", idle)
	id := must.Get(s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key("orders"), Values: map[string]any{"goods": "none"}}).Result())(t)
	s.handTo(t, "b", 1)
	must.Do(t, s.client.XDel(t.Context(), s.key("orders"), id).Err())
	b := s.replica(t, "b")
	s.awaitInHand(t, func(n int64) bool { return n == 0 })
	s.assertDeadLettered(t, 0)
	s.assertExact(t, b, append(reported, sell(t, b, buy(1))))
}

// An epoch ends with many orders pending. They are offered again in few round trips.
func TestManyOrdersAreOfferedAgainAtOnce(t *testing.T) {
	const pending = 500
	server := lab.Redis(t)
	s, seller, reported := openSold(t, server, 1000, "seller", idle)
	batch := make([]stock.Purchase, pending)
	for i := range batch {
		batch[i] = buy(1)
	}
	outcomes := must.Get(seller.Deduct(t.Context(), goods, batch))(t)
	for _, o := range outcomes {
		reported = append(reported, o.Order)
	}
	recall(t, seller)
	const delay = 10 * time.Millisecond
	way := labtest.NewProxy(t, server.Address)
	way.Slow(delay)
	began := time.Now()
	s.replica(t, "b", at(way.Address))
	settle(t, seller)
	took := time.Since(began)
	t.Logf("%d orders are written after %s", pending, took)
	if took > pending*delay/2 {
		t.Errorf("%d orders are written after %s, at %s a round trip", pending, took, delay)
	}
	s.assertConsistent(t, seller, reported)
}

// A replica that closes writes what it has in hand: no other one has to take it over.
func TestAReplicaThatClosesWritesWhatItHasInHand(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	s.options.ClaimAfter = time.Hour
	a, way := s.replicaThrough(t, "a")
	reported := begin(t, a)
	slow := way.Arm(servers.Rule{Sent: "INSERT INTO tb_stock_ledger", Do: servers.Hold, For: 200 * time.Millisecond})
	reported = append(reported, sell(t, a, buy(1)))
	labtest.AwaitReached(t, slow)
	assertCloses(t, a)
	s.assertInLedger(t, reported)
	should.Be(t, must.Get(s.client.XPending(t.Context(), s.key("orders"), "ledger").Result())(t).Count, 0, "the orders that consumers have in hand")
}

// A Redis that went back in time unnoticed has an order on its stream that was archived since, and
// another order under its request id: the one is settled, and the other dead-lettered, as if the row
// was in the ledger still.
func TestAnOrderThatComesBackAfterItWasArchivedIsNotWrittenAgain(t *testing.T) {
	s, seller, reported := openSold(t, lab.Redis(t), 10, "seller", idle)
	reported = append(reported, sell(t, seller, buy(2)))
	entries := must.Get(s.client.XRange(t.Context(), s.key("orders"), "-", "+").Result())(t)
	must.Be(t, len(entries), 1, "the stream has", entries)
	b := s.replica(t, "b")
	settle(t, b)
	labtest.Archive(t, s.database, s.store)
	same := maps.Clone(entries[0].Values)
	same["at"] = strconv.FormatInt(time.Now().Add(-repo.MinAge).UnixMilli(), 10)
	other := maps.Clone(same)
	other["order"] = "01a2109e-ed18-7e9e-984c-aaeabf9bb6fc"
	for _, fields := range []map[string]any{same, other} {
		must.Do(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key("orders"), Values: fields}).Err())
	}
	await(t, "the stream to be empty", func() bool { return s.client.XLen(t.Context(), s.key("orders")).Val() == 0 })
	should.Be(t, s.client.XLen(t.Context(), s.key("dead")).Val(), 1, "orders were dead-lettered")
	for _, order := range reported {
		if got, ok, err := s.store.Order(t.Context(), order.ID); err != nil || !ok || got.RequestID != order.RequestID {
			t.Errorf("order %s is %+v, %v, %v", order.ID, got, ok, err)
		}
	}
	full, err := s.store.AuditInFull(t.Context(), goods)
	if a := s.audit(t); err != nil || a != full || !a.Clean || a.Orders != 2 || a.Sold != 3 {
		t.Errorf("the audits are %+v and %+v (%v), want 2 orders of 3 units", a, full, err)
	}
}

// trap is a log that panics when a consumer dead-letters an order, and counts the
// panics that it gets.
type trap struct {
	slog.Handler
	panics atomic.Int64
}

func (*trap) Enabled(context.Context, slog.Level) bool { return true }

func (l *trap) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "dead-lettered") {
		panic("a consumer that is broken")
	}
	if r.Message == "panic" {
		l.panics.Add(1)
	}
	return nil
}

// A panic in the middle of a batch loses nothing of it, nor the replica.
func TestAConsumerOutlivesAPanic(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 10, "a", idle)
	noOrder := map[string]any{"goods": "none"}
	must.Do(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key("orders"), Values: noOrder}).Err())
	reported = append(reported, sell(t, a, buy(1)), sell(t, a, buy(1)))
	log := &trap{Handler: slog.DiscardHandler}
	s.options.Log = slog.New(log)
	s.assertExact(t, s.replica(t, "b"), reported)
	should.Be(t, log.panics.Load(), 1, "panics were logged")
}

// An order is offered again in the next epoch, and written by another replica: that
// is a part of its purchase's trace.
func TestAnOrderThatIsOfferedAgainKeepsItsPlaceInATrace(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	spans := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
	a := s.replica(t, "a", idle)
	reported := begin(t, a)
	ctx, purchase := tracer.Start(t.Context(), "purchase")
	outcomes, err := a.Deduct(ctx, goods, []stock.Purchase{buy(2)})
	if err != nil || outcomes[0].Rejected != nil {
		t.Fatalf("not sold: %v, %v", err, outcomes)
	}
	purchase.End()
	s.rebuild(t, a)
	b := s.replica(t, "b", func(o *redisstock.Options, _ *backend.RedisOptions) { o.Tracer = tracer })
	s.assertExact(t, b, append(reported, outcomes[0].Order))
	await(t, "both steps", func() bool { return len(spans.Ended()) == 3 })
	for _, step := range spans.Ended()[1:] {
		if step.Name() != "write orders" || step.Parent().SpanID() != purchase.SpanContext().SpanID() {
			t.Errorf("%s is a part of %v, want the purchase", step.Name(), step.Parent())
		}
	}
}

// Each replica that is started under a new name is another consumer of every stream. One that is gone is forgotten when it
// has nothing in hand: what it has is claimed first.
func TestConsumersThatAreGoneAreForgotten(t *testing.T) {
	s := open(t, lab.Redis(t), 5)
	s.options.GoneAfter = time.Second
	seller := s.replica(t, "seller", idle)
	reported := begin(t, seller)
	reported = append(reported, sell(t, seller, buy(1)))
	must.Do(t, s.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "ledger", Consumer: "gone with an order", Streams: []string{s.key("orders"), ">"}, Block: -1}).Err())
	must.Do(t, s.client.XGroupCreateConsumer(t.Context(), s.key("orders"), "ledger", "gone").Err())
	b := s.replica(t, "b")
	await(t, "the others to be forgotten, and b to be there", func() bool {
		consumers := must.Get(s.client.XInfoConsumers(t.Context(), s.key("orders"), "ledger").Result())(t)
		names := make([]string, 0, len(consumers))
		for _, c := range consumers {
			names = append(names, c.Name)
		}
		return !slices.Contains(names, "gone") && !slices.Contains(names, "gone with an order") && slices.Contains(names, "b")
	})
	s.assertExact(t, b, reported)
}

// A consumer that has an order in hand stays, however long: the order would be in no hand then, and claimed by none.
func TestAConsumerWithAnOrderInHandIsNotForgotten(t *testing.T) {
	s := newSteps(t)
	orders := s.base + "orders"
	must.Do(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: orders, Values: []string{"order", "1"}}).Err())
	must.Do(t, s.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "ledger", Consumer: "holds", Streams: []string{orders, ">"}, Block: -1}).Err())
	must.Do(t, s.client.XGroupCreateConsumer(t.Context(), orders, "ledger", "empty").Err())
	time.Sleep(20 * time.Millisecond) // the server counts whole milliseconds
	if recent, gone := s.run("leave", []string{"orders"}, "ledger", 60_000), s.run("leave", []string{"orders"}, "ledger", 1); recent != int64(0) || gone != int64(1) {
		t.Errorf("%v consumers of a moment ago are forgotten, and then %v, want 0 and 1", recent, gone)
	}
	if left, err := s.client.XInfoConsumers(t.Context(), orders, "ledger").Result(); err != nil || len(left) != 1 || left[0].Name != "holds" {
		t.Errorf("%+v are left (%v)", left, err)
	}
}
