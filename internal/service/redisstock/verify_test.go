package redisstock_test

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// addToRow restocks the row, and notifies no replica.
func (s *shop) addToRow(t *testing.T, units int64) {
	t.Helper()
	anotherItem{s, goods}.addToRow(t, units)
}

func (i anotherItem) addToRow(t *testing.T, units int64) {
	t.Helper()
	must.Get(i.store.Restock(t.Context(), i.id, units, rand.Text()))(t)
}

func TestAPurchaseGetsTheUnitsOfBothRowAndRedis(t *testing.T) {
	s, a, reported := openSold(t, lab.Redis(t), 3, "a")
	s.addToRow(t, 1)
	rejects(t, a, buy(4), stock.ErrInsufficientStock)
	s.assertReach(t, 1, 2, false) // none is moved for what does not fit anyway
	s.assertExact(t, a, append(reported, sell(t, a, buy(3))))
}

// Another strategy sells from the row: half of it is left there, and the rest is moved for
// a purchase that needs it.
func TestTheRowIsSharedWithAnotherStrategy(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a := s.replica(t, "a")
	if !s.sellFromRow(t, buy(1)) {
		t.Fatal("not sold from the row")
	}
	begin(t, a)
	s.assertReach(t, 4, 4, false)
	sell(t, a, buy(6))
	settle(t, a)
	s.assertReach(t, 0, 2, false)
	should.Be(t, recall(t, a), stock.Recalled{Returned: 2}, "is recalled")
	sell(t, a, buy(1)) // the strategy that has recalled them sells from the other half
	settle(t, a)
	s.assertReach(t, 1, 0, false)
	begin(t, a)
	if audit := s.audit(t); !audit.Clean || audit.Sold != 10 {
		t.Errorf("the audit is %+v", audit)
	}
}

// Other allocations have the units: the purchase is rejected with that cause while they
// would suffice.
func TestUnitsOfOtherAllocationsAreNamed(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a := s.replica(t, "a", idle)
	begin(t, a)
	sell(t, a, buy(8)) // pending in Redis: no units of another allocation
	bucket := func(units int64) {
		must.Get(s.sql(t).ExecContext(t.Context(), `REPLACE INTO tb_stock_place (goods_id, place, units) VALUES (?, 'bucket/0', ?)`, goods, units))(t)
	}
	for _, c := range []struct {
		bucket, quantity int64
		want             error
	}{
		{0, 2, stock.ErrInsufficientStock},
		{5, 7, stock.ErrInsufficientStock},
		{5, 6, stock.ErrAllocated},
		{5, 2, stock.ErrAllocated},
		{5, 1, nil},
		{5, 1, stock.ErrAllocated},
		{5, 1, stock.ErrAllocated},
		{0, 1, stock.ErrInsufficientStock},
		{0, 1, stock.ErrInsufficientStock},
	} {
		bucket(c.bucket)
		if o, err := deduct(t, a, buy(c.quantity)); err != nil || !errors.Is(o.Rejected, c.want) {
			t.Errorf("%d with %d in a bucket are answered with %v (%v), want %v", c.quantity, c.bucket, o.Rejected, err, c.want)
		} else if named, ok := errors.AsType[*stock.AllocatedError](o.Rejected); ok {
			item, err := s.store.Goods(t.Context(), goods)
			if err != nil || *named != (stock.AllocatedError{Units: c.bucket, Version: item.Version}) {
				t.Errorf("the cause is %+v, want %d units of version %d (%v)", named, c.bucket, item.Version, err)
			}
		}
	}
}

// An item that is sold out costs one read a second, and a closed allocation is not opened.
func TestASoldOutItemCostsOneRead(t *testing.T) {
	s := open(t, lab.Redis(t), 1)
	slow := s.slowReplica(t, "a")
	a := slow.replica
	begin(t, a)
	const read = "LEFT JOIN tb_stock_place"
	for _, closed := range []bool{false, true} {
		if closed {
			recall(t, a)
			time.Sleep(1100 * time.Millisecond) // until the replica verifies it again
		}
		reads := slow.way.Arm(servers.Rule{Sent: read, Nth: 1000, Do: servers.Count})
		writes := slow.way.Arm(servers.Rule{Sent: "UPDATE", Nth: 1000, Do: servers.Count})
		began := time.Now()
		for i := range 20 {
			p := buy(1)
			p.Keyed = i%2 == 0 // asks Redis
			rejects(t, a, p, stock.ErrInsufficientStock)
		}
		if n := reads.Seen(); n > 1+int(time.Since(began).Seconds()) {
			t.Errorf("20 rejections cost %d reads, closed %t", n, closed)
		}
		should.Be(t, writes.Seen(), 0, closed)
		reads.Disarm()
		writes.Disarm()
	}
	s.assertReach(t, 0, 0, true)
}

// A purchase does not fit into the counter, and what it lacks moves between the answer of Redis and the look into the
// database, or right after it: it is offered the units wherever they are by then.
func TestUnitsThatMoveDuringALookAreOffered(t *testing.T) {
	s := open(t, lab.Redis(t), 1)
	slow, b := s.slowReplica(t, "a"), s.replica(t, "b")
	sells := func(t *testing.T, i anotherItem) { i.sell(t, b, buy(2)) }
	recalls := func(t *testing.T, i anotherItem) {
		must.Get(b.Recall(t.Context(), i.id))(t)
	}
	id := int64(1)
	for name, meanwhile := range map[string]func(*testing.T, anotherItem){
		"into Redis": sells, "into the row": recalls, "there and back": func(t *testing.T, i anotherItem) { sells(t, i); recalls(t, i) },
	} {
		for _, at := range []servers.Action{servers.Hold, servers.HoldReply} {
			id += 2 // on the same stream
			t.Run(name+", "+string(at), func(t *testing.T) {
				i := s.another(t, id, 2)
				i.sell(t, slow.replica, buy(1))
				i.addToRow(t, 10)
				look := slow.way.Arm(servers.Rule{Sent: "LEFT JOIN tb_stock_place", Do: at})
				answered := make(chan error, 1)
				go func() { answered <- oneOf(slow.replica.Deduct(t.Context(), id, []stock.Purchase{buy(3)})) }()
				labtest.AwaitReached(t, look)
				meanwhile(t, i)
				look.Pass()
				should.Do(t, <-answered) // 3 of what is left
			})
		}
	}
}

// The database does not answer: what fits into the counter is sold all the same, and
// reported so, and the other purchase of the batch is rejected with the cause.
func TestWhatIsSoldOfABatchStaysSold(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	slow := s.slowReplica(t, "a")
	reported := begin(t, slow.replica)
	slow.way.Cut()
	batch := []stock.Purchase{buy(4), buy(10)}
	outcomes, err := slow.replica.Deduct(t.Context(), goods, batch)
	if err != nil || outcomes[0].Rejected != nil || !errors.Is(outcomes[1].Rejected, stock.ErrBackendUnavailable) {
		t.Fatalf("the batch is answered with %+v (%v)", outcomes, err)
	}
	should.Reject(slow.replica.Deduct(t.Context(), goods, batch[1:]))(t, stock.ErrBackendUnavailable) // the other purchase alone
	again, err := slow.replica.Deduct(t.Context(), goods, batch)
	if err != nil || again[0].Order != outcomes[0].Order || !again[0].Replayed || !errors.Is(again[1].Rejected, stock.ErrBackendUnavailable) {
		t.Errorf("the batch is answered again with %+v (%v)", again, err)
	}
	s.assertExact(t, s.replica(t, "b"), append(reported, outcomes[0].Order))
}

// A request that was sold is answered with its order where nothing is left, where its buyer is at the limit, and by a
// closed counter, which it does not open.
func TestAKeyIsKnownWhateverTheCounterHas(t *testing.T) {
	s := open(t, lab.Redis(t), 3)
	a := s.replica(t, "a", idle)
	s.limit(t, a, 3)
	p := by("小明", 3)
	p.Keyed = true
	first := sell(t, a, p)
	rejects(t, a, by("小红", 1), stock.ErrInsufficientStock)
	for _, closed := range []bool{false, true} {
		if closed {
			recall(t, a)
		}
		if again, err := deduct(t, a, p); err != nil || !again.Replayed || again.Order != first {
			t.Errorf("closed %t: the key is answered with %+v (%v), want %+v", closed, again, err, first)
		}
		other := p
		other.Quantity = 2
		rejects(t, a, other, stock.ErrKeyReused)
		if _, place, err := s.store.Reach(t.Context(), goods, redisstock.Allocation); err != nil || place.Closed != closed {
			t.Errorf("the allocation is %+v (%v), want it closed %t", place, err, closed)
		}
	}
}

// A restock is heard while a purchase finds the item sold out: that counts no more.
func TestAnAnswerFromBeforeARestockIsNotRemembered(t *testing.T) {
	s := open(t, lab.Redis(t), 1)
	slow, b := s.slowReplica(t, "a"), s.replica(t, "b")
	reported := orders(sell(t, slow.replica, buy(1)))
	settle(t, b)
	channel := s.options.Prefix + ":restocked"
	await(t, "the subscriptions", func() bool { return s.client.PubSubNumSub(t.Context(), channel).Val()[channel] == 2 })
	read, rejected := slow.way.Arm(servers.Rule{Sent: "LEFT JOIN tb_stock_place", Do: servers.HoldReply}), make(chan error, 1)
	go func() { rejected <- oneOf(slow.replica.Deduct(t.Context(), goods, []stock.Purchase{buy(1)})) }()
	labtest.AwaitReached(t, read)
	s.restock(t, b, 1)
	time.Sleep(100 * time.Millisecond) // the message
	read.Pass()
	should.Fail(t, <-rejected, stock.ErrInsufficientStock) // the first
	s.assertExact(t, b, append(reported, sell(t, slow.replica, buy(1))))
}
