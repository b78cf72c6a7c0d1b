package room_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/room"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// goods is the item that has a room.
const goods = 7

// shop is an item and the Redis of its room.
type shop struct {
	address string
	redis   backend.RedisOptions
	options room.Options
	left    atomic.Int64
	down    atomic.Bool // the database
	sale    atomic.Pointer[stock.Sale]
}

// open has an item with so many units. Its room admits as many a second as a test wants.
func open(t *testing.T, server *servers.Redis, units int64) *shop {
	t.Helper()
	s := &shop{address: server.Address, redis: labtest.RedisOptions(server)}
	s.left.Store(units)
	s.options = room.Options{
		Prefix: "test-" + rand.Text(), Items: []int64{goods}, Rate: 1e6, Share: 1, Admission: time.Minute, Away: time.Minute, Secret: []byte("secret"),
		Goods: func(_ context.Context, id int64) (stock.Goods, error) {
			switch {
			case s.down.Load():
				return stock.Goods{}, stock.ErrBackendUnavailable
			case id != goods:
				return stock.Goods{}, stock.ErrUnknownGoods
			}
			goods := stock.Goods{Stock: s.left.Load()}
			if sale := s.sale.Load(); sale != nil {
				goods.Sale = *sale
			}
			return goods, nil
		},
	}
	return s
}

func (s *shop) replica(t *testing.T) *room.Room {
	t.Helper()
	client := backend.NewRedis(s.redis)
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the test is over
	return room.New(client, s.options)
}

func join(t *testing.T, r *room.Room, buyer string) room.Place {
	t.Helper()
	return must.Get(r.Join(t.Context(), goods, buyer))(t)
}

// crowd has n buyers of a name join in one second, and returns their tickets.
func crowd(t *testing.T, r *room.Room, name string, n int) (tickets []string) {
	t.Helper()
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // Redis has the same clock
	for i := range n {
		tickets = append(tickets, join(t, r, fmt.Sprintf("%s-%03d", name, i)).Ticket)
	}
	return tickets
}

func look(t *testing.T, r *room.Room, ticket string) room.Place {
	t.Helper()
	return must.Get(r.Look(t.Context(), ticket))(t)
}

// await looks until a ticket is in a state.
func await(t *testing.T, r *room.Room, ticket string, state room.State) (p room.Place) {
	t.Helper()
	if !labtest.Eventually(10*time.Second, func() bool { p = look(t, r, ticket); return p.State == state }) {
		t.Fatalf("waited 10s until it is %s: %+v", state, p)
	}
	return p
}

func enter(t *testing.T, r *room.Room, buyer, requestID string) (leave func(context.Context, error)) {
	t.Helper()
	return must.Get(r.Enter(t.Context(), goods, buyer, requestID))(t)
}

func rejects(t *testing.T, r *room.Room, buyer, requestID string) {
	t.Helper()
	should.Reject(r.Enter(t.Context(), goods, buyer, requestID))(t, stock.ErrNotAdmitted)
}

// count is how many of the tickets are in a state.
func count(t *testing.T, r *room.Room, tickets []string, state room.State) (n int) {
	t.Helper()
	for _, ticket := range tickets {
		if look(t, r, ticket).State == state {
			n++
		}
	}
	return n
}

// admitted waits until one of the tickets is admitted.
func admitted(t *testing.T, r *room.Room, tickets []string) (in int) {
	t.Helper()
	if !labtest.Eventually(10*time.Second, func() bool {
		in = slices.IndexFunc(tickets, func(ticket string) bool { return look(t, r, ticket).State == room.Admitted })
		return in >= 0
	}) {
		t.Fatal("waited 10s until one is admitted")
	}
	return in
}

func TestADrawOrdersTheBuyersOfOneSecond(t *testing.T) {
	const buyers = 40
	s := open(t, lab.Redis(t), 1_000_000)
	r := s.replica(t)
	first := crowd(t, r, "first", buyers)
	should.Be(t, count(t, r, first, room.Waiting), buyers, "waiting until their second is over")
	s.left.Store(0)
	time.Sleep(time.Second) // what was known of the item is old, and so is the second
	second := crowd(t, r, "second", buyers)
	time.Sleep(time.Second)
	places := make([]int64, 0, 2*buyers)
	for i, ticket := range append(first, second...) {
		p := look(t, r, ticket)
		if places = append(places, p.Place); (p.Place <= buyers) != (i < buyers) {
			t.Errorf("number %d in coming has place %d", i, p.Place)
		}
	}
	for _, of := range [][]int64{places[:buyers], places[buyers:]} {
		if slices.IsSorted(of) {
			t.Errorf("the places of one second are in the order of coming: %v", of)
		}
	}
	s.left.Store(1)
	await(t, r, first[slices.Index(places, 1)], room.Admitted)
	should.Be(t, count(t, r, append(first, second...), room.Admitted), 1, "admitted to one unit")
}

func TestABuyerHasOnePlaceAndOneTicketAtEveryReplica(t *testing.T) {
	s := open(t, lab.Redis(t), 1)
	a, b := s.replica(t), s.replica(t)
	tickets := crowd(t, a, "buyer", 5)
	in := admitted(t, b, tickets)
	for i, ticket := range tickets {
		was := look(t, b, ticket)
		for _, replica := range []*room.Room{a, b} {
			p := join(t, replica, fmt.Sprintf("buyer-%03d", i))
			if p.Ticket != ticket || p.Place != was.Place || p.State != was.State || (p.State == room.Admitted) != (i == in) {
				t.Errorf("number %d has %+v, and again %+v", i, was, p)
			}
		}
	}
}

func TestNoMoreAreAdmittedThanTheRateAndWhatIsLeftAllow(t *testing.T) {
	s := open(t, lab.Redis(t), 8)
	s.options.Share = 0.5
	a, b := s.replica(t), s.replica(t)
	tickets := crowd(t, a, "buyer", 20)
	labtest.Eventually(2*time.Second, func() bool { return count(t, a, tickets, room.Admitted)+count(t, b, tickets, room.Admitted) > 2*4 })
	should.Be(t, count(t, b, tickets, room.Admitted), 4, "admitted, of 20, for half of 8 units")
	s.left.Store(1000)
	slow := s.options
	slow.Rate = 4
	s.options = slow
	c := s.replica(t)
	begun := time.Now()
	labtest.Eventually(2*time.Second, func() bool { return count(t, c, tickets, room.Admitted) == len(tickets) })
	if n, most := count(t, c, tickets, room.Admitted), 4+4+int(4*time.Since(begun).Seconds())+1; n > most || n < 4+4 {
		t.Errorf("%d are admitted after %s, of 4 a second and a second's worth at once", n, time.Since(begun))
	}
}

func TestABuyerThatHasLeftIsNotCountedAndNotAdmitted(t *testing.T) {
	s := open(t, lab.Redis(t), 0)
	s.options.Away = 1500 * time.Millisecond
	r := s.replica(t)
	tickets := crowd(t, r, "buyer", 6)
	gone, rest := tickets[:3], tickets[3:]
	labtest.Eventually(2*s.options.Away, func() bool { count(t, r, rest, room.Closed); return false })
	should.Be(t, must.Get(r.Line(t.Context(), goods))(t), room.Line{Waiting: 3, Left: 3})
	s.left.Store(3)
	for _, ticket := range rest {
		await(t, r, ticket, room.Admitted)
	}
	should.Be(t, count(t, r, gone, room.Ended), 3, "those who have left")
	if p := join(t, r, "buyer-000"); p.State != room.Waiting || p.Place != 1 || p.Ticket == gone[0] {
		t.Errorf("one that comes back has %+v", p)
	}
}

// They are more than one call lets go.
func TestACrowdThatHasLeftUsesUpNoAdmission(t *testing.T) {
	s := open(t, lab.Redis(t), 0)
	s.options.Away = 1500 * time.Millisecond
	r := s.replica(t)
	crowd(t, r, "gone", 250)
	time.Sleep(time.Second)
	last := join(t, r, "late").Ticket
	s.left.Store(1000)
	time.Sleep(s.options.Away / 2)
	await(t, r, last, room.Admitted)
	should.Be(t, must.Get(r.Lines(t.Context()))(t), room.Line{Admitted: 1, Admissions: 1, Left: 250})
}

func TestAnAdmissionIsForOnePurchaseThatIsAccepted(t *testing.T) {
	ctx := t.Context()
	r := open(t, lab.Redis(t), 1).replica(t)
	rejects(t, r, "buyer-0", "too early")
	tickets := crowd(t, r, "buyer", 2)
	in := admitted(t, r, tickets)
	out := 1 - in
	buyer, other := fmt.Sprintf("buyer-%03d", in), fmt.Sprintf("buyer-%03d", out)
	rejects(t, r, other, "k")
	if p := look(t, r, tickets[in]); time.Until(p.AdmittedUntil) > time.Minute || time.Until(p.AdmittedUntil) < 30*time.Second {
		t.Errorf("the admission is %+v", p)
	}
	first, copied := enter(t, r, buyer, "first"), enter(t, r, buyer, "first")
	rejects(t, r, buyer, "second")
	first(ctx, stock.ErrInsufficientStock)
	rejects(t, r, buyer, "second") // the copy may be sold
	copied(ctx, stock.ErrBusy)
	enter(t, r, buyer, "second")(ctx, fmt.Errorf("no answer: %w", stock.ErrUnknownOutcome))
	rejects(t, r, buyer, "third") // the second may be sold
	enter(t, r, buyer, "second")(ctx, nil)
	rejects(t, r, buyer, "second")
	should.Be(t, look(t, r, tickets[in]).State, room.Ended)
	await(t, r, tickets[out], room.Admitted)
}

func TestAnAdmissionEnds(t *testing.T) {
	s := open(t, lab.Redis(t), 1)
	s.options.Admission = 500 * time.Millisecond
	r := s.replica(t)
	ticket := join(t, r, "buyer-0").Ticket
	await(t, r, ticket, room.Admitted)
	await(t, r, ticket, room.Ended)
	rejects(t, r, "buyer-0", "too late")
	await(t, r, join(t, r, "buyer-1").Ticket, room.Admitted)
}

func TestAClosedItemTellsTheWholeLine(t *testing.T) {
	s := open(t, lab.Redis(t), 0)
	r := s.replica(t)
	tickets := crowd(t, r, "buyer", 5)
	should.Be(t, count(t, r, tickets, room.Closed), 5)
	should.Be(t, must.Get(r.Line(t.Context(), goods))(t), room.Line{Waiting: 5}, "no one knows how long they wait")
	s.left.Store(5)
	for _, ticket := range tickets {
		await(t, r, ticket, room.Admitted)
	}
}

func TestTheLineWaitsForASaleToBeginAndIsToldOfItsEnd(t *testing.T) {
	s, now := open(t, lab.Redis(t), 5), time.Now()
	r := s.replica(t)
	s.sale.Store(&stock.Sale{StartsAt: new(now.Add(time.Hour)), Now: now})
	tickets := crowd(t, r, "buyer", 5)
	time.Sleep(time.Second)
	should.Be(t, count(t, r, tickets, room.Waiting), 5, "waiting before the sale")
	s.sale.Store(&stock.Sale{StartsAt: &now, EndsAt: &now, Now: now})
	time.Sleep(500 * time.Millisecond) // what was known of the item is old
	should.Be(t, count(t, r, tickets, room.Closed), 5, "closed after it")
	s.sale.Store(nil)
	for _, ticket := range tickets {
		await(t, r, ticket, room.Admitted)
	}
}

func TestTheWaitIsEstimatedByThePace(t *testing.T) {
	s := open(t, lab.Redis(t), 1000)
	s.options.Rate, s.options.Away = 2, time.Hour
	r := s.replica(t)
	p := look(t, r, crowd(t, r, "buyer", 40)[39])
	if want := time.Duration(p.Place) * time.Second / 2; p.Wait < want/2 || p.Wait > 2*want {
		t.Errorf("number %d waits for %s at 2 a second", p.Place, p.Wait)
	}
	if l := must.Get(r.Line(t.Context(), goods))(t); l.Wait < 10*time.Second || l.Wait > 40*time.Second {
		t.Errorf("one that joins after %d at 2 a second waits for %s", l.Waiting, l.Wait)
	}
	if p.AskAfter < time.Second || p.AskAfter > p.Wait {
		t.Errorf("it is to ask after %s, and waits for %s", p.AskAfter, p.Wait)
	}
}

// Who is next in a fast line asks again soon: a wait of less than a second is not an unknown one.
func TestAShortWaitIsKnown(t *testing.T) {
	p := join(t, open(t, lab.Redis(t), 1000).replica(t), "buyer")
	if p.Wait != time.Second || p.AskAfter < time.Second || p.AskAfter > 2*time.Second {
		t.Errorf("the first of a fast line waits for %s, and asks after %s", p.Wait, p.AskAfter)
	}
}

func TestALineThatIsLostIsANewOne(t *testing.T) {
	server := lab.OwnRedis(t)
	s := open(t, server, 1)
	a, b := s.replica(t), s.replica(t)
	tickets := crowd(t, a, "buyer", 3)
	leave := enter(t, a, fmt.Sprintf("buyer-%03d", admitted(t, a, tickets)), "k")
	client := labtest.RedisClient(server)
	defer client.Close() //nolint:errcheck // the test is over
	must.Do(t, client.FlushAll(t.Context()).Err())
	leave(t.Context(), nil)
	for i, ticket := range tickets {
		should.Be(t, look(t, b, ticket).State, room.Ended, ticket)
		rejects(t, b, fmt.Sprintf("buyer-%03d", i), "another")
	}
	again := crowd(t, b, "buyer", 3)
	labtest.Eventually(2*time.Second, func() bool { return count(t, b, again, room.Admitted) > 1 })
	should.Be(t, count(t, a, again, room.Admitted), 1, "admitted to one unit")
}

// The buyers try everything at every replica, and replicas die with what they were doing; then Redis loses everything. A ticket
// is good for one purchase in spite of that, and no more are admitted at a time than there are units.
func TestKillsAndALossOfRedisGiveNoTicketASecondAdmission(t *testing.T) {
	const units, buyers = 8, 12
	server := lab.OwnRedis(t)
	s := open(t, server, units)
	s.options.Admission = 3 * time.Second
	replicas := []*room.Room{s.replica(t), s.replica(t), s.replica(t)}
	client := labtest.RedisClient(server)
	defer client.Close() //nolint:errcheck // the test is over
	tickets, bought := crowd(t, replicas[0], "buyer", buyers), make(map[string]int)
	for step, lost := 0, false; s.left.Load() > 0; step++ {
		if step > 5000 {
			t.Fatalf("%d units are left, and %v has bought", s.left.Load(), bought)
		}
		if !lost && s.left.Load() <= units/2 {
			lost = true
			must.Do(t, client.FlushAll(t.Context()).Err())
			should.Be(t, count(t, replicas[0], tickets, room.Ended), buyers, "tickets that have ended with the line")
		}
		n, r := step%buyers, replicas[step%len(replicas)]
		buyer := fmt.Sprintf("buyer-%03d", n)
		if look(t, r, tickets[n]).State == room.Ended {
			tickets[n] = join(t, r, buyer).Ticket
		}
		if in := count(t, r, tickets, room.Admitted); in > units {
			t.Errorf("%d are admitted to %d units", in, units)
		}
		leave, err := r.Enter(t.Context(), goods, buyer, fmt.Sprint("purchase ", step))
		if err != nil {
			continue
		}
		switch (step + step/buyers) % 3 {
		case 0: // the replica dies before anything was sold, and its buyer finds that out nowhere
		case 1:
			leave(t.Context(), stock.ErrBusy)
		case 2:
			s.left.Add(-1)
			if bought[tickets[n]]++; bought[tickets[n]] > 1 {
				t.Errorf("%s has bought %d times with one ticket", buyer, bought[tickets[n]])
			}
			leave(t.Context(), nil)
			rejects(t, replicas[(step+1)%len(replicas)], buyer, "with the same admission")
		}
	}
	should.Be(t, len(bought), units, "tickets have bought units")
}

func TestATicketOfOthersIsUnknown(t *testing.T) {
	s := open(t, lab.Redis(t), 1)
	r := s.replica(t)
	own := join(t, r, "buyer-0").Ticket
	secret := s.options.Secret
	s.options.Secret = []byte("another")
	should.Reject(s.replica(t).Look(t.Context(), own))(t, stock.ErrUnknownTicket)
	s.options.Secret = secret
	changed := []byte(own)
	changed[len(changed)-2] ^= 1
	for _, ticket := range []string{"", "none", own[1:], own + "A", string(changed), "buyer-0"} {
		should.Reject(r.Look(t.Context(), ticket))(t, stock.ErrUnknownTicket)
	}
	s.options.Items = nil
	should.Reject(s.replica(t).Look(t.Context(), own))(t, stock.ErrUnknownTicket)
	should.Reject((*room.Room)(nil).Look(t.Context(), own))(t, stock.ErrUnknownTicket)
}

func TestAnItemWithoutARoomNeedsNoAdmission(t *testing.T) {
	s := open(t, lab.Redis(t), 1)
	s.options.Items = []int64{8}
	for _, r := range []*room.Room{nil, s.replica(t)} {
		should.Reject(r.Join(t.Context(), goods, "buyer-0"))(t, stock.ErrNoRoom)
		enter(t, r, "", "k")(t.Context(), nil)
	}
	should.Reject(s.replica(t).Join(t.Context(), 8, "buyer-0"))(t, stock.ErrUnknownGoods)
}

func TestAFrozenRedisIsNamed(t *testing.T) {
	server := lab.Redis(t)
	s := open(t, server, 1)
	way := labtest.NewProxy(t, server.Address)
	s.redis.Addresses, s.redis.Timeout = []string{way.Address}, 200*time.Millisecond
	r := s.replica(t)
	ticket := join(t, r, "buyer-0").Ticket
	await(t, r, ticket, room.Admitted)
	way.Freeze()
	_, joined := r.Join(t.Context(), goods, "buyer-1")
	_, looked := r.Look(t.Context(), ticket)
	_, entered := r.Enter(t.Context(), goods, "buyer-0", "k")
	_, counted := r.Line(t.Context(), goods)
	for _, err := range []error{joined, looked, entered, counted} {
		if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != string(backend.Redis) || errors.Is(err, stock.ErrInsufficientStock) {
			t.Errorf("it ends with %v", err)
		}
	}
}

func TestMetricsTellOfALineBesideADatabaseThatHangs(t *testing.T) {
	s := open(t, lab.Redis(t), 0)
	answers, hangs := s.options.Goods, new(atomic.Bool)
	s.options.Goods = func(ctx context.Context, id int64) (stock.Goods, error) {
		if hangs.Load() {
			<-ctx.Done()
		}
		return answers(ctx, id)
	}
	r := s.replica(t)
	crowd(t, r, "buyer", 5)
	hangs.Store(true)
	time.Sleep(500 * time.Millisecond) // what was known of the item is old
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	should.Be(t, must.Get(r.Lines(ctx))(t), room.Line{Waiting: 5})
}

// The line keeps its order, and no one is admitted who could not buy.
func TestADatabaseThatFailsKeepsTheLine(t *testing.T) {
	s := open(t, lab.Redis(t), 5)
	r := s.replica(t)
	tickets := crowd(t, r, "buyer", 5)
	s.down.Store(true)
	labtest.Eventually(1500*time.Millisecond, func() bool { return count(t, r, tickets, room.Waiting) < 5 })
	should.Be(t, count(t, r, tickets, room.Waiting), 5)
	should.Reject(r.Join(t.Context(), goods, "buyer-9"))(t, stock.ErrBackendUnavailable)
	s.down.Store(false)
	for _, ticket := range tickets {
		await(t, r, ticket, room.Admitted)
	}
}
