package strategy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// Redis is away in the middle of a copying: the mark of it is still there, and the
// replica goes on where it began, long before the mark expires.
func TestACopyingThatWasCutOffIsGoneOnWith(t *testing.T) {
	cuts := map[string]servers.Rule{
		"at its mark": {Sent: ":filling", Do: servers.LoseReply},
		"at its end":  {Sent: "\r\npersist\r\n", Do: servers.Lose},
	}
	server := lab.OwnRedis(t)
	way := labtest.NewProxy(t, server.Address)
	d := lab.Database(t, servers.SQLite)
	store := labtest.Open(t, d, "replica-1")
	var goods int64
	for _, entry := range copying() {
		for name, rule := range cuts {
			goods++
			t.Run(entry.Name+" "+name, func(t *testing.T) {
				must.Do(t, store.CreateGoods(t.Context(), goods, 10, rand.Text()))
				s := newCopying(t, entry, store, locksAt(t, d, server, way.Address), "")
				cut := way.Arm(rule)
				_, _ = s.Deduct(t.Context(), goods, oneUnit()) // as it may be
				labtest.AwaitReached(t, cut)
				for range 7 {
					outcomes, err := s.Deduct(t.Context(), goods, oneUnit())
					if err != nil || outcomes[0].Rejected != nil {
						t.Fatalf("after it was cut off: %+v (%v)", outcomes, err)
					}
				}
			})
		}
	}
}

// Items have the same ids in every database.
func TestDatabasesOnOneRedisShareNoCopy(t *testing.T) {
	for _, entry := range copying() {
		t.Run(entry.Name, func(t *testing.T) {
			for i, units := range []int64{3, 5} {
				d := lab.Database(t, servers.SQLite)
				store := onSale(t, d, units)
				s := newCopying(t, entry, store, lab.Locks(t, d, backend.Redis), "test-"+rand.Text())
				var sold int64
				for range units + 2 {
					if deduct(t, s) == nil {
						sold++
					}
				}
				should.Be(t, sold, units, "database … sold", i+1)
			}
		})
	}
}

// What SQL rejects of a batch returns to the copy, whatever else the batch has: the copy
// has what the row has.
func TestTheCopyHasWhatTheRowHas(t *testing.T) {
	const per, left = 5, 2
	server := lab.Redis(t)
	way := labtest.NewProxy(t, server.Address)
	for _, entry := range copying("redis-decr", "redis-list") {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := labtest.Open(t, d, "replica-1")
			must.Do(t, store.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 4 + left, PerUser: per}, rand.Text()))
			locks, prefix := locksAt(t, d, server, way.Address), rand.Text()
			s := newCopying(t, entry, store, locks, prefix)
			outcomes, err := s.Deduct(t.Context(), 1, []stock.Purchase{
				{RequestID: "fits", UserID: "小明", Quantity: 4},
				{RequestID: "beyond the stock", UserID: "小红", Quantity: 3},
				{RequestID: "beyond the limit", UserID: "小明", Quantity: 2},
			})
			if err != nil || outcomes[0].Rejected != nil || outcomes[1].Rejected == nil || outcomes[2].Rejected == nil {
				t.Fatalf("%+v (%v), want the first sold and the others rejected", outcomes, err)
			}
			should.Be(t, unitsOfCopy(t, locks, prefix, entry.Name), left, "the copy")
			takes := way.Arm(servers.Rule{Sent: takeOf(entry.Name), Nth: 1000, Do: servers.Count})
			beyond := stock.Purchase{RequestID: "beyond the known limit", UserID: "小明", Quantity: 2}
			if err := oneOf(s.Deduct(t.Context(), 1, []stock.Purchase{beyond})); !errors.Is(err, stock.ErrUserLimit) || takes.Seen() != 0 {
				t.Errorf("a buyer beyond its limit is answered with %v, and takes %d times of what others could buy", err, takes.Seen())
			}
			outcomes, err = s.Deduct(t.Context(), 1, []stock.Purchase{beyond, {RequestID: "the rest", UserID: "小红", Quantity: left}})
			if err != nil || !errors.Is(outcomes[0].Rejected, stock.ErrUserLimit) || outcomes[1].Rejected != nil {
				t.Errorf("%+v (%v), want the first rejected and the second sold", outcomes, err)
			}
		})
	}
}

// takeOf is a part of the command that takes units off a copy.
func takeOf(kind string) string {
	return map[string]string{"redis-decr": "decrby", "redis-list": "lpop", "redis-get-set": ":redis-get-set\r\n"}[kind]
}

// A list has a token a unit, which bounds the stock that it can have. Nothing is left of the attempt.
func TestACopyHasABound(t *testing.T) {
	for _, entry := range copying() {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := labtest.Open(t, d, "replica-1")
			units, want := int64(stock.MaxStock), error(nil)
			if entry.Name == "redis-list" {
				units, want = 1_000_001, stock.ErrStockLimit
			}
			must.Do(t, store.CreateGoods(t.Context(), 1, units, rand.Text()))
			locks, prefix := lab.Locks(t, d, backend.Redis), rand.Text()
			should.Fail(t, deduct(t, newCopying(t, entry, store, locks, prefix)), want, "with … units in stock, a purchase is answered with", units)
			if keys := redisKeys(t, prefix); want != nil && len(keys) != 0 {
				t.Errorf("%q are left of the copy", keys)
			}
		})
	}
}

// redisKeys lists the keys of a prefix, which a replica may not.
func redisKeys(t *testing.T, prefix string) []string {
	t.Helper()
	client := labtest.RedisClient(lab.Redis(t))
	defer client.Close() //nolint:errcheck // what it was for has been answered
	return client.Keys(t.Context(), prefix+"*").Val()
}

// An attempt that fails before it replaces the copy leaves nothing that stays, and neither does one that takes its place.
func TestWhatAFailedCopyLeavesExpires(t *testing.T) {
	server := lab.Redis(t)
	way := labtest.NewProxy(t, server.Address)
	for _, entry := range copying("redis-decr", "redis-list", "redis-get-set") {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := onSale(t, d, 7_000)
			locks, prefix := locksAt(t, d, server, way.Address), rand.Text()
			s := newCopying(t, entry, store, locks, prefix)
			for attempt := 1; attempt <= 2; attempt++ {
				cut := way.Arm(servers.Rule{Sent: "watch", Do: servers.Lose})
				should.Fail(t, deduct(t, s), stock.ErrBackendUnavailable, "attempt … is answered with", attempt)
				labtest.AwaitReached(t, cut)
				keys := redisKeys(t, prefix)
				if len(keys) != attempt+1 { // what it had, and its mark
					t.Errorf("%q are left of %d attempts", keys, attempt)
				}
				for _, key := range keys {
					if left := locks.Redis.PTTL(t.Context(), key).Val(); left <= 0 || left > 30*time.Second {
						t.Errorf("%s expires in %s", key, left)
					}
				}
			}
		})
	}
}

// An attempt whose mark has expired meanwhile leaves the mark of the one that took its place: two would copy at once.
func TestAnAttemptThatIsOvertakenKeepsTheMarkOfTheOther(t *testing.T) {
	server := lab.Redis(t)
	way := labtest.NewProxy(t, server.Address)
	d := lab.Database(t, servers.SQLite)
	store := onSale(t, d, 10)
	locks, prefix, entry := locksAt(t, d, server, way.Address), rand.Text(), copying("redis-decr")[0]
	s := newCopying(t, entry, store, locks, prefix)
	held := way.Arm(servers.Rule{Sent: "exists", Do: servers.Hold})
	done := make(chan error, 1)
	go func() { done <- deduct(t, s) }()
	labtest.AwaitReached(t, held)
	direct := labtest.RedisClient(server)
	defer direct.Close() //nolint:errcheck // the test is over
	key := copyOf(prefix, entry.Name)
	for name, value := range map[string]string{":filling": "the mark of another", ":ready": "the copy of a third"} {
		must.Do(t, direct.Set(t.Context(), key+name, value, time.Minute).Err())
	}
	held.Pass()
	<-done //nolint:errcheck // it has the copy of the third, or failed for want of it
	should.Be(t, must.Get(direct.Get(t.Context(), key+":filling").Result())(t), "the mark of another", "the mark of the other attempt")
}

// Another replica copies the item: its copy is waited for no longer than for a lock, and not by a client that has
// left.
func TestACopyIsWaitedForAsLongAsALock(t *testing.T) {
	for _, entry := range copying("redis-decr", "redis-list", "redis-get-set") {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := onSale(t, d, 10)
			locks, prefix := lab.Locks(t, d, backend.Redis), rand.Text()
			waiting := func(limit time.Duration) strategy.Strategy {
				s := entry.New(strategy.Deps{
					Store: store.As(entry.Name), Lock: locks, LockWait: limit, Retry: strategy.Retry{Tries: 1},
					RedisStock: redisstock.Options{Prefix: prefix}, Log: slog.New(slog.DiscardHandler),
				})
				closeAfter(t, s)
				return s
			}
			s := waiting(time.Minute)
			filling := copyOf(prefix, entry.Name) + ":filling"
			locks.Redis.Set(t.Context(), filling, "the mark of another replica", time.Minute)
			should.Fail(t, deduct(t, waiting(20*time.Millisecond)), stock.ErrBusy) // without a copy, a purchase
			left, leave := context.WithCancel(t.Context())
			leave()
			hasLeft := func(when string) {
				t.Helper()
				if _, err := s.Deduct(left, 1, oneUnit()); !errors.Is(err, context.Canceled) || errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrBackendUnavailable) {
					t.Errorf("%s, a client that has left is answered with %v, want %v", when, err, context.Canceled)
				}
			}
			hasLeft("without a copy")
			locks.Redis.Del(t.Context(), filling)
			should.Do(t, deduct(t, s)) // when the other has given up, a purchase
			hasLeft("with a copy")
		})
	}
}

// copyOf is the key of the copy of item 1.
func copyOf(prefix, kind string) string { return prefix + ":{goods/1}:" + kind }

func unitsOfCopy(t *testing.T, locks lock.Deps, prefix, kind string) int64 {
	t.Helper()
	units, err := locks.Redis.LLen(t.Context(), copyOf(prefix, kind)).Result()
	if kind != "redis-list" {
		units, err = locks.Redis.Get(t.Context(), copyOf(prefix, kind)).Int64()
	}
	must.Do(t, err)
	return units
}

// A copy is sold from until another one takes its place, however long that is: what is left beside
// it by an attempt that failed expires, and it does not.
func TestACopyThatIsSoldFromDoesNotExpire(t *testing.T) {
	for _, entry := range copying() {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := onSale(t, d, 5)
			locks, prefix := lab.Locks(t, d, backend.Redis), rand.Text()
			s := newCopying(t, entry, store, locks, prefix)
			for _, again := range []bool{false, true} {
				if again { // sold out, and copied anew
					restock(t, store, 5)
				}
				for sold := range 4 {
					must.Do(t, deduct(t, s))
					for _, key := range []string{copyOf(prefix, entry.Name), copyOf(prefix, entry.Name) + ":ready"} {
						should.Be(t, must.Get(locks.Redis.PTTL(t.Context(), key).Result())(t), -1, "copied again", again, "after", sold+1, "sales", key, "expires in")
					}
				}
				if err := deduct(t, s); err != nil { // the last one: an empty list is no key
					t.Fatal(err)
				}
			}
		})
	}
}

// Another strategy has sold the rest: the copy that takes the place of the old one has nothing, and
// nothing is sold from the old one, which SQL would not notice.
func TestACopyOfNothingTakesThePlaceOfTheOldOne(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	store := onSale(t, d, 5)
	locks, prefix, entry := lab.Locks(t, d, backend.Redis), rand.Text(), copying("redis-get-set-locked")[0]
	s, other := newCopying(t, entry, store, locks, prefix), newCopying(t, copying("sql-conditional")[0], store, locks, prefix)
	must.Do(t, deduct(t, s))
	for range 4 {
		must.Do(t, deduct(t, other))
	}
	should.Fail(t, deduct(t, s), stock.ErrInsufficientStock) // a purchase of what is sold out
	if audit, err := store.Audit(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 5 {
		t.Errorf("the audit is %+v (%v), want 5 of 5 sold", audit, err)
	}
}

// Units that SQL did not take return to the copy. Those that it may have taken do not: they would
// be sold from the copy once more.
func TestUnitsOfAnUnknownOutcomeStayOutOfTheCopy(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		through, way := labtest.Through(t, d)
		store := onSale(t, through, 100)
		beyond := []stock.Purchase{{RequestID: rand.Text(), Quantity: 1000}} // for which the row is read
		for _, entry := range copying("redis-decr", "redis-list") {
			for name, c := range map[string]struct {
				rule servers.Rule
				err  error
				gone int64 // of 3 units
				more []stock.Purchase
			}{
				"the ledger is not written":      {servers.Rule{Sent: "INSERT INTO tb_stock_ledger", Do: servers.Lose}, stock.ErrBackendUnavailable, 0, nil},
				"the commit is lost":             {servers.Rule{Sent: "COMMIT", Do: servers.Lose}, stock.ErrUnknownOutcome, 3, nil},
				"the answer to a commit is lost": {servers.Rule{Sent: "COMMIT", Do: servers.LoseReply}, stock.ErrUnknownOutcome, 3, nil},
				"the row is not read":            {servers.Rule{Sent: "FROM tb_goods_stock", Do: servers.LoseReply}, stock.ErrBackendUnavailable, 0, beyond},
			} {
				t.Run(entry.Name+", "+name, func(t *testing.T) {
					locks, prefix := lab.Locks(t, d, backend.Redis), rand.Text()
					s := newCopying(t, entry, store, locks, prefix)
					must.Do(t, deduct(t, s))
					before := unitsOfCopy(t, locks, prefix, entry.Name)
					defer way.Arm(c.rule).Disarm()
					_, err := s.Deduct(t.Context(), 1, append([]stock.Purchase{{RequestID: rand.Text(), Quantity: 3}}, c.more...))
					if !errors.Is(err, c.err) || errors.Is(err, stock.ErrUnknownOutcome) != errors.Is(c.err, stock.ErrUnknownOutcome) {
						t.Errorf("the purchase is answered with %v, want %v", err, c.err)
					}
					if err := s.(io.Closer).Close(); err != nil { //nolint:forcetypeassert // what is on its way back is there then
						t.Error(err)
					}
					should.Be(t, unitsOfCopy(t, locks, prefix, entry.Name), before-c.gone, "the copy had", before)
				})
			}
		}
	})
}

// An attempt has read the row before a restock, and puts its copy in place after it.
func TestARestockDuringACopyIsNotLost(t *testing.T) {
	server := lab.OwnRedis(t)
	way := labtest.NewProxy(t, server.Address)
	for _, entry := range copying() {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := onSale(t, d, 1)
			s := newCopying(t, entry, store, locksAt(t, d, server, way.Address), rand.Text())
			counted := way.Arm(servers.Rule{Sent: "watch", Do: servers.Hold})
			next := make(chan error, 1)
			go func() { next <- deduct(t, s) }()
			labtest.AwaitReached(t, counted)
			restock(t, store, 1)
			counted.Pass()
			must.Do(t, <-next)
			should.Do(t, deduct(t, s)) // the unit of the restock
		})
	}
}

// Another replica replaces the copy between the take of a purchase, which found the
// old copy empty, and its look at the mark.
func TestACopyThatWasReplacedRejectsNoPurchase(t *testing.T) {
	server := lab.OwnRedis(t)
	way := labtest.NewProxy(t, server.Address)
	for _, entry := range copying("redis-decr", "redis-list", "redis-get-set") {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := onSale(t, d, 1)
			prefix := rand.Text()
			slow := newCopying(t, entry, store, locksAt(t, d, server, way.Address), prefix)
			near := locksAt(t, d, server, server.Address)
			other := newCopying(t, entry, store, near, prefix)
			must.Do(t, deduct(t, slow))
			taken := way.Arm(servers.Rule{Sent: takeOf(entry.Name), Do: servers.HoldReply})
			rejected := make(chan error, 1)
			go func() { rejected <- deduct(t, slow) }()
			labtest.AwaitReached(t, taken)
			restock(t, store, 2)
			must.Do(t, deduct(t, other))
			ready := func() string {
				return locksAt(t, d, server, server.Address).Redis.Get(t.Context(), copyOf(prefix, entry.Name)+":ready").Val()
			}
			replaced := ready()
			taken.Pass()
			should.Do(t, <-rejected) // one unit is left
			if mark := ready(); mark != replaced || mark == "" {
				t.Errorf("the copy that took the place of the old one is %q, and was %q: it was to be left alone", mark, replaced)
			}
		})
	}
}

// abandoned are two replicas of redis-get-set-locked, with an item of 3 units. The first
// one's buyer has left while its attempt to copy the item is held up by a rule.
type abandoned struct {
	copying *servers.Trigger
	ways    [2]*servers.Proxy
	other   strategy.Strategy
}

func abandon(t *testing.T, rule servers.Rule, before func(other strategy.Strategy, locks lock.Deps, prefix string)) abandoned {
	t.Helper()
	server, d, prefix := lab.OwnRedis(t), lab.Database(t, servers.SQLite), rand.Text()
	store := onSale(t, d, 3)
	var a abandoned
	var replicas [2]strategy.Strategy
	entry := copying("redis-get-set-locked")[0]
	for i := range a.ways {
		a.ways[i] = labtest.NewProxy(t, server.Address)
		replicas[i] = newCopying(t, entry, store, locksAt(t, d, server, a.ways[i].Address), prefix)
	}
	a.other = replicas[1]
	before(a.other, locksAt(t, d, server, server.Address), prefix+":{goods/1}:"+entry.Name)
	a.copying = a.ways[0].Arm(rule)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _ = replicas[0].Deduct(ctx, 1, oneUnit())
	}()
	labtest.AwaitReached(t, a.copying)
	leave()
	<-left
	return a
}

// sellsTheRest buys until the item is sold out.
func (a abandoned) sellsTheRest(t *testing.T, want int) {
	t.Helper()
	sold := 0
	for deduct(t, a.other) == nil {
		sold++
	}
	should.Be(t, sold, want, "units of the rest were sold")
}

func TestACopyThatIsSoldFromIsNotMadeAnew(t *testing.T) {
	a := abandon(t, servers.Rule{Sent: ":filling", Do: servers.Hold}, func(strategy.Strategy, lock.Deps, string) {})
	must.Do(t, deduct(t, a.other))
	set := a.ways[1].Arm(servers.Rule{Sent: "\r\nset\r\n", Do: servers.HoldReply})
	sold := make(chan error, 1)
	go func() { sold <- deduct(t, a.other) }() // it is off the copy, and not off the row
	labtest.AwaitReached(t, set)
	ended := a.ways[0].Arm(servers.Rule{Sent: "\r\neval\r\n", Do: servers.HoldReply})
	a.copying.Pass()
	labtest.AwaitReached(t, ended)
	ended.Pass()
	set.Pass()
	must.Do(t, <-sold)
	a.sellsTheRest(t, 1)
}

func TestNothingIsSoldFromACopyThatIsBeingReplaced(t *testing.T) {
	a := abandon(t, servers.Rule{Sent: "watch", Do: servers.Hold}, func(other strategy.Strategy, locks lock.Deps, key string) {
		must.Do(t, errors.Join(deduct(t, other), locks.Redis.Del(t.Context(), key+":ready").Err()))
	})
	waits := a.ways[1].Arm(servers.Rule{Sent: ":filling", Do: servers.Hold})
	sold := make(chan error, 1)
	go func() { sold <- deduct(t, a.other) }()
	select {
	case <-waits.Reached():
	case err := <-sold:
		t.Errorf("a purchase was answered with %v from the old copy", err)
		sold <- err
	}
	waits.Pass()
	a.copying.Pass()
	must.Do(t, <-sold)
	a.sellsTheRest(t, 1)
}

// onSale is a store with so many units of item 1.
func onSale(t *testing.T, d *servers.Database, units int64) *repo.Store {
	t.Helper()
	store := labtest.Open(t, d, "replica-1")
	must.Do(t, store.CreateGoods(t.Context(), 1, units, rand.Text()))
	return store
}

// copying are the strategies that sell from a copy in Redis, or those of the names.
func copying(names ...string) []strategy.Entry {
	if len(names) == 0 {
		names = []string{"redis-decr", "redis-list", "redis-get-set", "redis-get-set-locked"}
	}
	return slices.DeleteFunc(strategy.Registry(), func(e strategy.Entry) bool { return !slices.Contains(names, e.Name) })
}

func newCopying(t *testing.T, entry strategy.Entry, store *repo.Store, locks lock.Deps, prefix string) strategy.Strategy {
	t.Helper()
	s := entry.New(strategy.Deps{
		Store: store.As(entry.Name), Lock: locks, LockWait: 3 * time.Second, Retry: strategy.Retry{Tries: 1},
		RedisStock: redisstock.Options{Prefix: prefix}, Log: slog.New(slog.DiscardHandler),
	})
	closeAfter(t, s)
	return s
}

// locksAt has Redis at another address than the server's own.
func locksAt(t *testing.T, d *servers.Database, server *servers.Redis, address string) lock.Deps {
	t.Helper()
	locks := lab.Locks(t, d)
	locks.RedisOptions = labtest.RedisOptions(server)
	locks.RedisOptions.Addresses = []string{address}
	locks.Redis = backend.NewRedis(locks.RedisOptions)
	return locks
}

// deduct buys one unit of item 1; the error is also why it was rejected.
func deduct(t *testing.T, s strategy.Strategy) error {
	t.Helper()
	outcomes, err := s.Deduct(t.Context(), 1, oneUnit())
	if err != nil {
		return err
	}
	return outcomes[0].Rejected
}

// restock adds units to item 1. No copy is notified.
func restock(t *testing.T, store *repo.Store, units int64) {
	t.Helper()
	must.Get(store.Restock(t.Context(), 1, units, rand.Text()))(t)
}

func oneUnit() []stock.Purchase {
	return []stock.Purchase{{Quantity: 1, RequestID: rand.Text()}}
}

// A buyer leaves when its unit is off the copy: it returns.
func TestUnitsOfABuyerThatLeavesReturnToTheCopy(t *testing.T) {
	server := lab.Redis(t)
	way := labtest.NewProxy(t, server.Address)
	for _, entry := range copying("redis-decr", "redis-list") {
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			store := onSale(t, d, 10)
			locks, prefix := locksAt(t, d, server, way.Address), rand.Text()
			s := newCopying(t, entry, store, locks, prefix)
			must.Do(t, deduct(t, s))
			taken := way.Arm(servers.Rule{Sent: takeOf(entry.Name), Do: servers.HoldReply})
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { left <- oneOf(s.Deduct(ctx, 1, oneUnit())) }()
			labtest.AwaitReached(t, taken)
			leave()
			taken.Pass()
			should.Fail(t, <-left, context.Canceled)
			if err := s.(io.Closer).Close(); err != nil { //nolint:forcetypeassert // it waits for what is on its way back
				t.Error(err)
			}
			should.Be(t, unitsOfCopy(t, locks, prefix, entry.Name), 9, "the copy")
		})
	}
}

// A commit that was not answered may still happen: a copy that is made meanwhile waits for it.
func TestACopyIsMadeOfWhatIsSettled(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		through, way := labtest.Through(t, d)
		store := onSale(t, through, 1)
		entry, locks, prefix := copying("redis-get-set-locked")[0], lab.Locks(t, d, backend.Redis), rand.Text()
		s := newCopying(t, entry, store, locks, prefix)
		held := way.Arm(servers.Rule{Sent: "COMMIT", Do: servers.Hold})
		defer held.Pass()
		should.Fail(t, buyWithin(t, s, "pending", 500*time.Millisecond), stock.ErrUnknownOutcome, "the first sale is")
		locks.Redis.Del(t.Context(), copyOf(prefix, entry.Name)+":ready") // Redis has forgotten the copy
		time.AfterFunc(300*time.Millisecond, held.Pass)
		should.Fail(t, deduct(t, s), stock.ErrInsufficientStock) // one more than there is
		if audit, err := store.Audit(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 1 {
			t.Errorf("the audit is %+v (%v)", audit, err)
		}
	})
}
