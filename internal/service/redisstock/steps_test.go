package redisstock_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// steps takes steps of the script for item 1, each of which has an exact result.
type steps struct{ *model }

func newSteps(t *testing.T) steps {
	t.Helper()
	client := labtest.RedisClient(lab.Redis(t))
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the test is over
	s := steps{newModel(t, client, 1)}
	must.Do(t, client.XGroupCreateMkStream(t.Context(), s.base+"orders", "ledger", "0").Err())
	return s
}

// counterOf is what SQL has of an item when an epoch begins.
type counterOf struct {
	epoch, units, limit int64
	closed              int
	users               []any // with their units
}

// begin begins the rebuild of a counter, and stages its users.
func (s steps) begin(c counterOf) {
	s.t.Helper()
	if c.limit == 0 || c.closed == 1 {
		s.run("begin", []string{"goods:1", "staged:1"}, c.epoch, 0)
		return
	}
	s.run("begin", []string{"goods:1", "staged:1"}, c.epoch, 1)
	s.run("stage", []string{"goods:1", "staged:1", "marker"}, append([]any{"a", 1000, c.epoch, "", "z", 1}, c.users...)...)
}

// page counts a page of the stream.
func (s steps) page(c counterOf, entries int) any {
	s.t.Helper()
	keys := []string{"goods:1", "users:1", "orders", "staged:1", "marker"}
	return s.run("page", keys, "a", 1000, c.epoch, "1", c.units, c.limit, s.base+"channel", entries, c.closed, 0)
}

// install rebuilds a counter, which leaves nothing behind of the rebuild and of users that it does not count.
func (s steps) install(c counterOf) {
	s.t.Helper()
	s.begin(c)
	if got := s.page(c, 100); got != "THERE" {
		s.t.Fatalf("the counter is answered with %v", got)
	}
	fields := s.client.HKeys(s.t.Context(), s.base+"goods:1").Val()
	slices.Sort(fields)
	if want := []string{"added", "closed", "epoch", "history", "limit", "promised", "units"}; !slices.Equal(fields, want) {
		s.t.Errorf("the counter is %q, want %q", fields, want)
	}
	counted := c.limit > 0 && c.closed == 0
	if n := s.client.Exists(s.t.Context(), s.base+"users:1", s.base+"staged:1").Val(); !counted && n != 0 {
		s.t.Errorf("a counter that counts no users is beside %d keys of users", n)
	}
}

// sell sells one purchase under the number "order-REQUEST", and returns the answer.
func (s steps) sell(request string, quantity int64, user, ttl string) []any {
	s.t.Helper()
	keys := []string{"goods:1", "users:1", "orders", "request:" + request}
	answers, _ := s.run("sell", keys, 1, "shop%201", 1_700_000_000_000, "a-trace", request, quantity, user, "order-"+request, ttl).([]any)
	answer, _ := answers[0].([]any)
	return answer
}

// read has a consumer read what is new on the stream.
func (s steps) read() (entries []modelEntry) {
	s.t.Helper()
	got, err := s.client.XReadGroup(s.t.Context(), &redis.XReadGroupArgs{Group: "ledger", Consumer: "c", Streams: []string{s.base + "orders", ">"}, Block: -1}).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range got[0].Messages {
		entries = append(entries, modelEntry{id: m.ID, fields: m.Values})
	}
	return entries
}

func (s steps) restore(e modelEntry) any {
	s.t.Helper()
	args := append([]any{"ledger", e.id}, s.entryArgs(e)...)
	args = append(args, e.text("limit"), e.text("earlier"), e.text("trace"), s.run("clock", []string{"orders"}), 60000)
	return s.run("restore", s.entryKeys(s.items["1"], e), args...)
}

func (s steps) bury(e modelEntry) any {
	s.t.Helper()
	args := append([]any{"ledger", e.id, "a reason", s.base + "channel"}, s.entryArgs(e)...)
	return s.run("bury", s.entryKeys(s.items["1"], e), append(args, 60000)...)
}

func (s steps) settle(e modelEntry) {
	s.t.Helper()
	keys := []string{"orders", "goods:1", "users:1", "staged:1", "request:" + e.text("request")}
	s.run("settle", keys, "ledger", 60000, 1, s.base+"channel", e.id, 1, e.text("epoch"), e.text("quantity"), e.text("user"))
}

// assertCounter compares what may be sold and what is pending.
func (s steps) assertCounter(units, promised int64) {
	s.t.Helper()
	got, err := s.client.HMGet(s.t.Context(), s.base+"goods:1", "units", "promised").Result()
	if want := []any{fmt.Sprint(units), fmt.Sprint(promised)}; err != nil || !slices.Equal(got, want) {
		s.t.Errorf("the counter has %v (%v), want %v", got, err, want)
	}
}

// assertMessages compares the entries of a stream, and that no consumer has another one in hand.
func (s steps) assertMessages(stream string, inHand int64, want ...map[string]any) {
	s.t.Helper()
	got, err := s.client.XRange(s.t.Context(), s.base+stream, "-", "+").Result()
	if err != nil || len(got) != len(want) {
		s.t.Fatalf("%s has %v (%v), want %d entries", stream, got, err, len(want))
	}
	for i, m := range got {
		if !maps.Equal(m.Values, want[i]) {
			s.t.Errorf("entry %d of %s is %v, want %v", i, stream, m.Values, want[i])
		}
	}
	if pending, err := s.client.XPending(s.t.Context(), s.base+"orders", "ledger").Result(); err != nil || pending.Count != inHand {
		s.t.Errorf("consumers have %+v in hand (%v), want %d", pending, err, inHand)
	}
}

// assertMemory compares what is remembered of a request, until the ledger has the order.
func (s steps) assertMemory(request string, want ...string) {
	s.t.Helper()
	key := s.base + "request:" + request
	got, err := s.client.Get(s.t.Context(), key).Result()
	if err != nil || got != strings.Join(want, "\n") || s.client.PTTL(s.t.Context(), key).Val() != -1 {
		s.t.Errorf("of request %s %q is remembered (%v), want %q for ever", request, got, err, want)
	}
}

// What was sold keeps all its fields when it is offered again, but for its epoch and the limit, and whether
// it was accepted under another one; so does what is remembered of it, and a dead letter. No consumer
// keeps it in hand.
func TestAnOrderKeepsItsFieldsWhereverItGoes(t *testing.T) {
	for _, ttl := range []string{"", "90000000"} {
		s := newSteps(t)
		s.install(counterOf{epoch: 1, units: 10, limit: 3})
		s.sell("r", 2, "u-1", ttl)
		order := map[string]any{
			"goods": "1", "quantity": "2", "epoch": "1", "request": "r", "order": "order-r", "remaining": "8", "at": "1700000000000",
			"replica": "shop%201", "user": "u-1", "limit": "3", "trace": "a-trace",
		}
		memory := []string{"order-r", "1", "2", "8", "shop%201", "u-1", "1700000000000"}
		if ttl != "" {
			order["ttl"], memory = ttl, append(memory, ttl)
		}
		s.assertMessages("orders", 0, order)
		s.assertMemory("r", memory...)
		order["earlier"] = "1"
		for epoch := int64(2); epoch <= 3; epoch++ { // it is an earlier limit in the third as well
			order["epoch"], order["limit"] = fmt.Sprint(epoch), "5"
			s.install(counterOf{epoch: epoch, units: 10, limit: 5})
			should.Be(t, s.restore(s.read()[0]), "RESTORED", "offered again, it")
			s.assertMessages("orders", 0, order)
			s.assertMemory("r", memory...)
			s.assertCounter(8, 2)
		}
		s.bury(s.read()[0])
		for _, name := range []string{"limit", "earlier", "trace"} {
			delete(order, name)
		}
		order["reason"] = "a reason"
		s.assertMessages("dead", 0, order)
		s.assertMessages("orders", 0)
		s.assertCounter(10, 0)
		should.Be(t, s.client.Exists(t.Context(), s.base+"request:r").Val(), 0, "a dead letter is remembered: its buyer cannot buy again")
		s.sell("r", 1, "u-1", ttl)
		s.settle(s.read()[0])
		s.assertMessages("orders", 0)
	}
}

// An order that the stream has lost takes units and room under the limit like a new one. One that another
// consumer has offered again takes none, nor one of the present epoch.
func TestALostOrderIsTakenWithinTheStockAndTheLimit(t *testing.T) {
	for _, c := range []struct {
		name              string
		units, limit, has int64
		memory            string
		epoch             int64 // of the order
		want, reason      string
	}{
		{"the last units", 2, 0, 0, "", 1, "RESTORED", ""},
		{"too few units", 1, 0, 0, "", 1, "DEAD", "nothing left"},
		{"up to the limit", 9, 5, 3, "", 1, "RESTORED", ""},
		{"beyond the limit", 9, 4, 3, "", 1, "DEAD", "beyond the limit"},
		{"offered again by another consumer", 9, 5, 3, "order-r\n1\n2", 1, "KNOWN", ""},
		{"whose request was sold again", 9, 4, 3, "another\n1\n2", 1, "DEAD", "sold again"},
		{"of the present epoch", 9, 5, 3, "", 2, "ABSENT", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSteps(t)
			s.install(counterOf{epoch: 2, units: c.units, limit: c.limit, users: []any{"u-1", c.has}})
			if c.memory != "" {
				s.client.Set(t.Context(), s.base+"request:r", c.memory, 0)
			}
			order := modelEntry{id: "1-1", fields: map[string]any{
				"goods": 1, "quantity": 2, "epoch": c.epoch, "request": "r", "order": "order-r", "remaining": 7, "at": 5, "replica": "a", "user": "u-1", "limit": c.limit,
			}}
			should.Be(t, s.restore(order), any(c.want), "it is answered with")
			taken := int64(0)
			if c.want == "RESTORED" {
				taken = 2
				s.assertMemory("r", "order-r", "1", "2", "7", "a", "u-1", "5")
			}
			s.assertCounter(c.units-taken, taken)
			if has, _ := s.client.HGet(t.Context(), s.base+"users:1", "u-1").Int64(); c.limit > 0 && has != c.has+taken {
				t.Errorf("its buyer has %d units, want %d", has, c.has+taken)
			}
			should.Be(t, s.client.XLen(t.Context(), s.base+"orders").Val(), taken/2, "orders are on the stream")
			dead := s.client.XRange(t.Context(), s.base+"dead", "-", "+").Val()
			if len(dead) != len(c.reason)/max(1, len(c.reason)) || c.reason != "" && dead[0].Values["reason"] != c.reason {
				t.Errorf("the dead letters are %v, want the reason %q", dead, c.reason)
			}
		})
	}
}

// Replicas reject without asking what they have found sold out: whatever gives units back notifies them.
func TestReplicasAreNotifiedOfUnitsThatComeBack(t *testing.T) {
	s := newSteps(t)
	messages := s.client.Subscribe(t.Context(), s.base+"channel")
	defer messages.Close() //nolint:errcheck // the test is over
	must.Get(messages.Receive(t.Context()))(t)
	s.install(counterOf{epoch: 1, units: 10})
	for _, request := range []string{"r-1", "r-2", "r-3"} {
		s.sell(request, 1, "", "")
	}
	orders := s.read()
	s.settle(orders[0]) // it gives nothing back
	s.install(counterOf{epoch: 2, units: 9})
	s.settle(orders[1]) // the ledger had it, and the counter of the new epoch did not know
	s.assertCounter(8, 1)
	s.bury(orders[2])
	s.assertCounter(9, 0)
	s.client.Publish(t.Context(), s.base+"channel", "end")
	var got []string
	for !slices.Contains(got, "end") {
		m := must.Get(messages.ReceiveMessage(t.Context()))(t)
		got = append(got, m.Payload)
	}
	should.Equal(t, got, []string{"1", "1", "", "1", "end"}, "replicas are notified with")
}

// Any step may arrive twice, from two consumers or replicas.
func TestAStepThatArrivesTwiceChangesNothing(t *testing.T) {
	s := newSteps(t)
	s.install(counterOf{epoch: 1, units: 10, limit: 9})
	s.sell("r-1", 1, "u-1", "")
	s.sell("r-2", 2, "u-1", "")
	orders := s.read()
	s.client.Set(t.Context(), s.base+"request:r-1", "another\n1\n1", 0) // it was forgotten, and sold again
	for _, want := range []int64{1, 0} {
		should.Be(t, s.bury(orders[0]), any(want), "a dead letter")
		s.settle(orders[1])
		s.assertCounter(8, 0)
		should.Be(t, s.client.XLen(t.Context(), s.base+"dead").Val(), 1, "dead letters")
		s.assertMemory("r-1", "another", "1", "1")
	}
	s.sell("r-3", 1, "u-1", "")
	order := s.read()[0]
	s.install(counterOf{epoch: 2, units: 8, limit: 9, users: []any{"u-1", 2}})
	for _, want := range []string{"RESTORED", "KNOWN"} {
		should.Be(t, s.restore(order), any(want), "an order that is offered again")
	}
	should.Be(t, s.restore(orders[0]), "KNOWN", "an order that is dead-lettered and offered again")
	s.assertCounter(7, 1)
	s.begin(counterOf{epoch: 4, limit: 9, users: []any{"u-1", 2}})
	for epoch := range 4 {
		should.Be(t, s.run("begin", []string{"goods:1", "staged:1"}, epoch+1, 1), "4", epoch+1)
	}
	should.Be(t, s.client.HLen(t.Context(), s.base+"staged:1").Val(), 1, "users are staged")
}

// A marker expires unless its owner renews it, and only its owner renews and releases it.
func TestAMarkerBelongsToItsOwner(t *testing.T) {
	s := newSteps(t)
	marker := s.base + "marker"
	left := func() time.Duration { return s.client.PTTL(t.Context(), marker).Val() }
	survey := func(owner string) any {
		answer, _ := s.run("survey", []string{"goods:1", "marker"}, owner, 60000, 0).([]any)
		return answer[0]
	}
	if got := survey("a"); got != "NONE" || left() < time.Second {
		t.Errorf("the first is answered with %v, and its marker expires in %s", got, left())
	}
	should.Be(t, survey("b"), "TAKEN", "the second")
	s.run("renew", []string{"marker"}, "b", 500)
	s.run("release", []string{"marker"}, "b")
	if owner := s.client.Get(t.Context(), marker).Val(); owner != "a" || left() < time.Second {
		t.Errorf("the marker is that of %q, and expires in %s", owner, left())
	}
	s.run("renew", []string{"marker"}, "a", 600_000)
	if left() < 2*time.Minute {
		t.Errorf("a marker that was renewed expires in %s", left())
	}
	s.run("release", []string{"marker"}, "a")
	should.Be(t, survey("b"), "NONE", "after the release, the second")
}

// What an abandoned rebuild has staged is forgotten after minutes. Where a rebuild has lost it earlier, another
// epoch begins: a counter without its users would let them exceed the limit.
func TestStagedUsersExpireAndAreMissed(t *testing.T) {
	s := newSteps(t)
	s.install(counterOf{epoch: 1, units: 10})
	s.sell("r-1", 1, "u-1", "")
	s.sell("r-2", 1, "u-2", "")
	next, staged := counterOf{epoch: 2, units: 10, limit: 3, users: []any{"u-1", 2}}, s.base+"staged:1"
	s.begin(next)
	for _, step := range []string{"staged", "counted"} {
		if left := s.client.PTTL(t.Context(), staged).Val(); left < 5*time.Minute || left > 10*time.Minute {
			t.Errorf("%s, the users expire in %s", step, left)
		}
		s.client.Persist(t.Context(), staged)
		must.Be(t, s.page(next, 1), "MORE", "a page is answered with")
	}
	s.client.Del(t.Context(), staged)
	should.Be(t, s.page(next, 1), "LOST", "without the users, a page")
	got, _ := s.run("survey", []string{"goods:1", "marker"}, "a", 1000, 1).([]any)
	should.Be(t, got[0], "NONE", "what is to be done then is", got)
}

// An item without a limit has no users to stage, also where an order of one leaves the stream meanwhile.
func TestARebuildWithoutALimitStagesNoUser(t *testing.T) {
	s := newSteps(t)
	s.install(counterOf{epoch: 1, units: 10})
	for _, request := range []string{"r-1", "r-2", "r-3"} {
		s.sell(request, 1, "u-1", "")
	}
	next := counterOf{epoch: 2, units: 9}
	s.begin(next)
	must.Be(t, s.page(next, 2), "MORE", "a page is answered with")
	s.settle(s.read()[0])
	should.Be(t, s.client.Exists(t.Context(), s.base+"staged:1").Val(), 0, "a user is staged")
	should.Be(t, s.page(next, 2), "THERE", "the last page")
	s.assertCounter(7, 2)
}

// A closed counter sells nothing, to no buyer, and its drain leaves what is pending. An open one is not drained.
func TestOnlyAClosedCounterIsDrained(t *testing.T) {
	s := newSteps(t)
	drain := func() any { return s.run("drain", []string{"goods:1", "orders"}) }
	s.install(counterOf{epoch: 1, units: 10, limit: 1})
	should.Be(t, drain(), "ABSENT", "the drain of an open counter")
	s.sell("r-1", 1, "u-1", "")
	s.assertCounter(9, 1)
	s.install(counterOf{epoch: 2, units: 10, limit: 1, closed: 1}) // with an order of a user on the stream
	for _, user := range []string{"u-1", "u-2", ""} {
		if got := s.sell("r-2", 2, user, ""); got[0] != int64(0) || got[1] != "0 2 0" {
			t.Errorf("%q is answered with %v by a closed counter, want nothing left in epoch 2", user, got)
		}
	}
	should.Be(t, fmt.Sprint(drain()), "[1 2]", "the drain")
	s.assertCounter(0, 1)
	s.client.Del(t.Context(), s.base+"orders")
	should.Be(t, fmt.Sprint(drain()), "[0 2]", "with an empty stream the drain")
}
