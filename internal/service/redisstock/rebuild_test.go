package redisstock_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/testlog"
)

// manyUsers is how many users have bought an item with a limit.
const manyUsers = 20_000

// addUsers has many users have a unit each, as if other strategies had sold them.
func (s *shop) addUsers(t *testing.T, n int) {
	t.Helper()
	_, err := s.sql(t).ExecContext(t.Context(), `INSERT INTO tb_stock_user (goods_id, user_id, units, allowed)
		SELECT ?, CONCAT('user-', seq), 1, 1 FROM seq_1_to_`+strconv.Itoa(n), goods)
	must.Do(t, err)
}

func (s *shop) sql(t *testing.T) *sql.DB {
	t.Helper()
	db := must.Get(s.database.Raw())(t)
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // the test is over
	return db
}

// assertUsers compares what Redis has of each user with the database, where nothing is
// pending.
func (s *shop) assertUsers(t *testing.T) {
	t.Helper()
	want := make(map[string]string)
	_, rows, err := servers.Rows(t.Context(), s.sql(t), `SELECT user_id, units FROM tb_stock_user WHERE goods_id = ?`, goods)
	must.Do(t, err)
	for _, row := range rows {
		want[row[0]] = row[1]
	}
	got := make(map[string]string, len(want))
	users := s.client.HScan(t.Context(), s.key("users:1"), 0, "", 5000).Iterator() // all at once takes longer than an answer may
	for users.Next(t.Context()) {
		user := users.Val()
		if users.Next(t.Context()) && user[0] != 0 { // a mark
			got[user] = users.Val()
		}
	}
	must.Do(t, users.Err())
	if !maps.Equal(got, want) {
		t.Errorf("Redis has %d users, the database %d, and they differ", len(got), len(want))
	}
}

// A replica dies in the middle of a rebuild for many users, while sales go on. Another
// one goes on with the next page, in the same epoch, and every unit and user is counted.
func TestARebuildGoesOnWhereAnotherReplicaStopped(t *testing.T) {
	server := lab.Redis(t)
	s := open(t, server, 1000)
	first, second := labtest.NewProxy(t, server.Address), labtest.NewProxy(t, server.Address)
	seller := s.replica(t, "seller", idle)
	s.limit(t, seller, 3)
	s.addUsers(t, manyUsers)
	reported := orders(sell(t, seller, by("小明", 1)))
	settle(t, seller)
	reported = append(reported, sell(t, seller, by("小明", 1)))

	a := s.replica(t, "a", at(first.Address))
	const stopped = 10 // pages of 1,000 users
	held := first.Arm(servers.Rule{Sent: "\r\nstage\r\n", Nth: stopped, Do: servers.Hold})
	s.endEpoch(t)
	cancelled, cancel := context.WithCancel(t.Context())
	rebuilt := make(chan error, 1)
	go func() { rebuilt <- a.LimitChanged(cancelled, goods) }()
	labtest.AwaitReached(t, held)
	cancel()
	if err := errors.Join(<-rebuilt, a.Close()); !errors.Is(err, context.Canceled) || errors.Is(err, stock.ErrBusy) {
		t.Fatalf("the rebuild was answered with %v, want %v alone", err, context.Canceled)
	}
	for range 20 { // in the old epoch
		reported = append(reported, sell(t, seller, buy1by("during")))
	}
	held.Pass() // the late step must not be counted twice

	d, err := seller.Drift(t.Context(), goods)
	if err != nil || d.Rebuilding == nil || d.Rebuilding.Users < (stopped-1)*1000 {
		t.Fatalf("the rebuild stands at %+v (%v)", d.Rebuilding, err)
	}
	steps := second.Arm(servers.Rule{Sent: "\r\nstage\r\n", Nth: manyUsers, Do: servers.Count})
	b := s.replica(t, "b", at(second.Address))
	must.Do(t, b.LimitChanged(t.Context(), goods))
	if n := steps.Seen(); n > manyUsers/1000-stopped+2 {
		t.Errorf("%d pages were staged again", n)
	}
	place := must.Get(s.store.Allocation(t.Context(), goods, redisstock.Allocation))(t)
	should.Be(t, place.Epoch, d.Rebuilding.Epoch, "the place is", place)
	reported = append(reported, sell(t, b, by("小明", 1)))
	assertHas(t, b, "小明", 3)
	assertHas(t, b, "user-777", 1)
	s.assertExact(t, b, reported)
	s.assertUsers(t)
}

// buy1by is one unit for a user of its own.
func buy1by(prefix string) stock.Purchase {
	p := buy(1)
	p.UserID = prefix + p.RequestID
	return p
}

// A purchase whose time is over does not end the rebuild that it has begun: the next
// one finds the counter.
func TestARebuildOutlastsThePurchaseThatBeganIt(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, way := s.replicaBehind(t, "a", patient)
	held := way.Arm(servers.Rule{Sent: "\r\npage\r\n", Do: servers.Hold})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	should.Reject(a.Deduct(ctx, goods, []stock.Purchase{buy(1)}))(t, stock.ErrBusy) // the first purchase
	held.Pass()
	await(t, "the counter", func() bool {
		d, err := a.Drift(t.Context(), goods)
		return err == nil && d.Loaded && d.Epoch == 1
	})
}

// The marker has expired, and another owner has it: it is not taken away from it.
func TestAMarkerIsLeftToItsOwner(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, way := s.replicaBehind(t, "a")
	held := way.Arm(servers.Rule{Sent: "\r\npage\r\n", Do: servers.Hold})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := a.Deduct(ctx, goods, []stock.Purchase{buy(1)})
		answered <- err
	}()
	labtest.AwaitReached(t, held)
	must.Do(t, s.client.Set(t.Context(), s.key("filling:1"), "another", 0).Err())
	held.Pass()
	should.Fail(t, <-answered, stock.ErrBusy) // the purchase
	should.Be(t, s.client.Get(t.Context(), s.key("filling:1")).Val(), "another", "the marker")
	must.Do(t, s.client.Del(t.Context(), s.key("filling:1")).Err())
	s.assertExact(t, a, orders(sell(t, a, buy(1))))
}

// A look into the ledger takes longer than the marker lasts: the owner renews it, and
// the other replica takes no step.
func TestARebuildKeepsItsMarkerDuringASlowStep(t *testing.T) {
	server := lab.Redis(t)
	s := open(t, server, 10)
	var log testlog.Lines
	s.options.ClaimAfter, s.options.Log = time.Hour, slog.New(slog.NewTextHandler(&log, nil))
	way := labtest.NewProxy(t, server.Address)
	slow := s.slowReplica(t, "a")
	reported := s.pendingOrders(t, slow.replica, 3)
	b := s.replica(t, "b", at(way.Address))
	held := slow.way.Arm(servers.Rule{Sent: "SELECT request_id FROM tb_stock_ledger", Do: servers.Hold})
	s.endEpoch(t)
	pages := way.Arm(servers.Rule{Sent: "\r\npage\r\n", Nth: 1000, Do: servers.Count})
	rebuilt := make(chan error, 2)
	go func() { rebuilt <- slow.replica.LimitChanged(t.Context(), goods) }()
	labtest.AwaitReached(t, held)
	go func() { rebuilt <- b.LimitChanged(t.Context(), goods) }()
	time.Sleep(3 * time.Second) // the marker lasts two
	held.Pass()
	must.Do(t, errors.Join(<-rebuilt, <-rebuilt))
	should.Be(t, pages.Seen(), 0, "the other replica took")
	should.Be(t, log.Contains(`msg="counter rebuild" goods=1 epoch=`), true, "the log tells how far it is", log.String())
	s.options.ClaimAfter = 300 * time.Millisecond
	s.assertExact(t, s.replica(t, "c"), reported)
}

// slowReplica is an idle replica whose way to the database a test can slow down.
type slowReplica struct {
	replica *redisstock.Stock
	way     *servers.Proxy
}

func (s *shop) slowReplica(t *testing.T, name string, change ...func(*redisstock.Options, *backend.RedisOptions)) slowReplica {
	t.Helper()
	replica, way := s.replicaThrough(t, name, append(change, idle)...)
	return slowReplica{replica: replica, way: way}
}

// pendingOrders sells one order, and n that a dead consumer has in hand.
func (s *shop) pendingOrders(t *testing.T, r *redisstock.Stock, n int) []stock.Order {
	t.Helper()
	reported := begin(t, r)
	for range n {
		reported = append(reported, sell(t, r, buy(1)))
	}
	read, err := s.client.XReadGroup(t.Context(), &redis.XReadGroupArgs{
		Group: "ledger", Consumer: "dead", Streams: []string{s.key("orders"), ">"},
	}).Result()
	if err != nil || len(read[0].Messages) != n {
		t.Fatalf("the dead consumer reads %v, %v", read, err)
	}
	return reported
}

// Redis hangs in the middle of a rebuild: the replica closes without waiting for it twice.
func TestAReplicaClosesInTimeWhenRedisHangsInARebuild(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, way := s.replicaBehind(t, "a")
	held := way.Arm(servers.Rule{Sent: "\r\npage\r\n", Do: servers.Hold})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := a.Deduct(ctx, goods, []stock.Purchase{buy(1)})
		answered <- err
	}()
	labtest.AwaitReached(t, held)
	way.Freeze()
	assertCloses(t, a)
	// Its own second ends beside that of the rebuild's question to Redis.
	if err := <-answered; !errors.Is(err, stock.ErrBusy) && !errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("the purchase is answered with %v, want %v or %v", err, stock.ErrBusy, stock.ErrBackendUnavailable)
	}
	way.Thaw()
	held.Pass()
}

// Redis has begun a rebuild of a later epoch than a database that was restored has, and
// was restarted since: the next epoch is above both.
func TestARebuildBeginsAboveAnEpochThatOnlyRedisKnows(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	must.Do(t, s.client.HSet(t.Context(), s.key("goods:1"), "next_epoch", 100, "next_history", "earlier").Err())
	a := s.replica(t, "a")
	s.assertExact(t, a, orders(sell(t, a, buy(1))))
	should.Be(t, must.Get(a.Drift(t.Context(), goods))(t).Epoch, 101, "the epoch of the counter")
}

// The commit of an epoch was sent and not answered: nothing was accepted from it, so that the purchase
// that waits for its counter is known not to be made.
func TestAnEpochOfUnknownOutcomeIsNoUnknownPurchase(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a, way := s.replicaThrough(t, "a")
	lost := labtest.Lose(way, "COMMIT", true)
	if o, err := deduct(t, a, buy(1)); !errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("it is answered with %+v, %v; want %v", o, err, stock.ErrBackendUnavailable)
	}
	labtest.AwaitReached(t, lost)
	s.assertExact(t, a, orders(sell(t, a, buy(10))))
}

// Entries that are no orders were on the stream during a rebuild: discarding them leaves no units accepted, and each
// is a dead letter with what it had.
func TestADiscardedEntryIsNotCountedByARebuild(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 10, "a", idle)
	foreign := []map[string]string{
		{"epoch": "none"},
		{"remaining": ""},
		{"at": "1e3"},
		{"quantity": "0"},
		{"quantity": "-1"},
		{"quantity": "1.5"},
		{"quantity": "9223372036854775808"},
		{"epoch": "99999999999999999999"},
		{"request": ""},
		{"order": ""},
		{"ttl": "soon"},
	}
	for _, wrong := range foreign {
		values := make([]string, 0, 2*12)
		for _, field := range []string{"goods", "quantity", "epoch", "request", "order", "remaining", "at", "replica", "user", "limit", "trace", "ttl"} {
			value, ok := wrong[field]
			if number := map[string]string{"goods": "1", "quantity": "5", "epoch": "1", "remaining": "0", "at": "0", "limit": "0", "ttl": "60000000"}; !ok {
				value = cmp.Or(number[field], "foreign")
			}
			values = append(values, field, value)
		}
		must.Do(t, s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key("orders"), Values: values}).Err())
	}
	s.rebuild(t, a)
	b := s.replica(t, "b")
	await(t, "the entries to be discarded", func() bool { return s.seen.deadLettered.Load() == int64(len(foreign)) })
	s.assertDeadLettered(t, int64(len(foreign)))
	for i, m := range s.client.XRange(t.Context(), s.key("dead"), "-", "+").Val() {
		for field, value := range foreign[i] {
			if m.Values[field] != value || m.Values["reason"] == "" || m.Values["goods"] != "1" {
				t.Errorf("a dead letter is %v, want %s %q and a reason", m.Values, field, value)
			}
		}
	}
	if pending, err := s.client.XPending(t.Context(), s.key("orders"), "ledger").Result(); err != nil || pending.Count != 0 || s.client.XLen(t.Context(), s.key("orders")).Val() != 0 {
		t.Errorf("consumers have %+v in hand (%v)", pending, err)
	}
	reported = append(reported, sell(t, b, buy(9)))
	s.assertExact(t, b, reported)
}

// One item fails, and the others are repaired: the one that drifted, and the one whose
// counter is absent.
func TestReconcileGoesOnAfterAnItemThatFails(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a := s.replica(t, "a")
	for _, id := range []int64{2, 3, 4} {
		must.Do(t, s.store.CreateGoods(t.Context(), id, 10, "create-"+strconv.FormatInt(id, 10)))
	}
	for id := range int64(4) {
		must.Get(a.Deduct(t.Context(), id+1, []stock.Purchase{buy(1)}))(t)
	}
	absent := strings.Replace(s.key("goods:2"), "{stock-1}", "{stock-0}", 1)
	awaitLedger(t, a)
	for _, err := range []error{
		s.client.Set(t.Context(), s.key("goods:1"), "no counter", 0).Err(),
		s.client.Del(t.Context(), absent).Err(),
		s.client.HIncrBy(t.Context(), s.key("goods:3"), "units", 5).Err(),
		s.client.HIncrBy(t.Context(), strings.Replace(absent, "goods:2", "goods:4", 1), "units", -3).Err(),
	} {
		must.Do(t, err)
	}
	if err := a.Reconcile(t.Context()); err == nil || !strings.Contains(err.Error(), "item 1:") {
		t.Errorf("the failure is %v, want it to name item 1", err)
	}
	for id := range int64(2) {
		d, err := a.Drift(t.Context(), id+2)
		if err != nil || !d.Loaded || d.Redis != 9 {
			t.Errorf("after the repair the drift is %+v (%v)", d, err)
		}
	}
	should.Be(t, s.seen.compared.Load(), 8, "the difference")
	// Both have drifted, and the first cannot be repaired.
	for _, err := range []error{
		s.client.Del(t.Context(), s.key("goods:1")).Err(),
		s.client.HSet(t.Context(), absent, "units", 20, "next_epoch", "no number").Err(),
		s.client.HIncrBy(t.Context(), s.key("goods:3"), "units", 5).Err(),
	} {
		must.Do(t, err)
	}
	if err := a.Reconcile(t.Context()); err == nil || !strings.Contains(err.Error(), "item 2:") {
		t.Errorf("the failure is %v, want it to name item 2", err)
	}
	should.Be(t, must.Get(a.Drift(t.Context(), 3))(t).Redis, 9, "after a repair that failed, the drift of the next one is")
	// Of a stream whose server does not answer, one item is asked: a look must not wait for each.
	err := s.replica(t, "b", at("127.0.0.1:1")).Reconcile(t.Context())
	for id, asked := range map[string]bool{"1": true, "2": true, "3": false, "4": false} {
		if err == nil || strings.Contains(err.Error(), "item "+id+":") != asked {
			t.Errorf("the failure is %v, want it to name item %s %t", err, id, asked)
		}
	}
}

// The counter of one item cannot be rebuilt: the orders of the others of its batch are written all the same.
func TestOrdersThatWaitForACounterKeepNoOthersWaiting(t *testing.T) {
	keepsNoOthersWaiting(t, func(*shop) {})
}

// keepsNoOthersWaiting finds that replica b writes the orders of one item while the counter of another cannot be
// rebuilt. meanwhile is when that one's order is on the stream alone.
func keepsNoOthersWaiting(t *testing.T, meanwhile func(*shop)) {
	t.Helper()
	s := open(t, lab.Redis(t), 10)
	other := s.another(t, 3, 10) // on the same stream
	a := s.replica(t, "a", idle)
	reported := begin(t, a)
	reported = append(reported, sell(t, a, buy(1)))
	meanwhile(s)
	other.sell(t, a, buy(1))
	if _, err := s.store.Fill(t.Context(), goods, redisstock.Allocation, 0); err != nil { // the next epoch of the first
		t.Fatal(err)
	}
	must.Do(t, s.client.Set(t.Context(), s.key("filling:1"), "another", 0).Err())
	b := s.replica(t, "b")
	other.assertExact(t, b, 1)
	must.Do(t, s.client.Del(t.Context(), s.key("filling:1")).Err())
	s.assertExact(t, b, reported)
}

// A user that may not publish, as each new one of Redis 7, sells and loads an item all the same.
func TestAnItemIsLoadedWithoutTheRightToPublish(t *testing.T) {
	s := open(t, lab.OwnRedis(t), 3)
	must.Do(t, s.client.Do(t.Context(), "ACL", "SETUSER", "new", "on", ">secret", "~*", "+@all").Err())
	r := s.replica(t, "a", func(_ *redisstock.Options, o *backend.RedisOptions) { o.Username, o.Password = "new", "secret" })
	sell(t, r, buy(1))
	s.restock(t, r, 1)
	sell(t, r, buy(3))
}
