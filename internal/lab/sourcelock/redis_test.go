package sourcelock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// entry is a lock by its name.
func entry(t *testing.T, kind string) lock.Entry {
	t.Helper()
	all := sourcelock.Registry()
	i := slices.IndexFunc(all, func(e lock.Entry) bool { return e.Name == kind })
	if i < 0 {
		t.Fatalf("there is no lock %s", kind)
	}
	return all[i]
}

// contender is a lock with a client of its own.
type contender struct {
	lock.Locker
	lock.Deps
}

// contend makes a contender on the servers that its lock needs.
func contend(t *testing.T, kind string, change ...func(*lock.Deps)) contender {
	t.Helper()
	e := entry(t, kind)
	deps := lab.Locks(t, lab.Database(t, servers.SQLite), e.Needs[0])
	deps.TTL, deps.Retry = lasting, 5*time.Millisecond
	for _, do := range change {
		do(&deps)
	}
	return contender{e.New(deps), deps}
}

// together tests some locks at the same time, because they wait for what must not happen.
func together(t *testing.T, kinds []string, test func(t *testing.T, kind string)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// at sets the clock of a contender.
func at(now time.Time) func(*lock.Deps) {
	return func(d *lock.Deps) { d.Now = func() time.Time { return now } }
}

func lastingFor(ttl time.Duration) func(*lock.Deps) { return func(d *lock.Deps) { d.TTL = ttl } }

// stamps are the locks whose value is a time.
func stamps() []string {
	return []string{
		sourcelock.StampGetSet, sourcelock.StampSeconds, sourcelock.StampImproved, sourcelock.StampChecked, sourcelock.StampInit,
		sourcelock.StampDel, sourcelock.StampScript,
	}
}

func keyOf(kind, name string) string { return "stockd:{" + name + "}:" + kind }

// A key in Redis is the name's and the lock's own, holds the value that the source gives it,
// and expires where the source says so. Another contender waits for the release.
func TestAKeyOfRedisIsHeldByOneUntilItsRelease(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_999)
	until := now.Add(lasting)
	for kind, c := range map[string]struct {
		value string
		ttl   time.Duration // 0: it does not expire
	}{
		sourcelock.SetNXThenExpire: {"1", lasting}, sourcelock.SetNXExpireScript: {"1", lasting},
		sourcelock.SetNXSpin: {"1", lasting}, sourcelock.SetNXPause: {"1", lasting},
		sourcelock.StampDel: {strconv.FormatInt(until.UnixMilli(), 10), 0}, sourcelock.StampGetSet: {strconv.FormatInt(until.UnixMilli(), 10), 0},
		sourcelock.StampScript: {strconv.FormatInt(until.UnixMilli(), 10), 0}, sourcelock.StampSeconds: {strconv.FormatInt(until.Unix(), 10), 0},
		sourcelock.StampImproved: {strconv.FormatInt(until.Add(time.Second).UnixMilli(), 10), lasting + time.Second},
		sourcelock.StampChecked:  {strconv.FormatInt(until.UnixMilli(), 10), 0}, sourcelock.StampInit: {strconv.FormatInt(until.UnixMilli(), 10), 0},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // it waits for what must not happen
			one, other := contend(t, kind, at(now)), contend(t, kind, at(now))
			if kind == sourcelock.StampInit {
				locktest.Release(t, locktest.Hold(t, other, "first/"+kind)) // it has deleted what it found
			}
			name := "held/" + kind
			key := keyOf(kind, strings.Replace(name, "/", "%2F", 1))
			lease := locktest.Hold(t, one, name)
			left, err := one.Redis.PTTL(t.Context(), key).Result()
			if value := one.Redis.Get(t.Context(), key).Val(); err != nil || value != c.value || c.ttl == 0 && left > 0 || left > c.ttl || c.ttl-left > lasting/2 {
				t.Errorf("%s is %q and expires in %s (%v), want %q and %s", key, value, left, err, c.value, c.ttl)
			}
			assertNotGranted(t, other, name)
			assertNotGranted(t, one, name) // none of them is reentrant
			locktest.Release(t, locktest.Hold(t, other, name+"/2"))
			if lease.Context().Err() != nil || lease.Token() != 0 {
				t.Errorf("the lease has ended with %v, or has the token %d", lease.Context().Err(), lease.Token())
			}
			locktest.Release(t, lease)
			if lease.Context().Err() == nil {
				t.Error("the lease goes on after its release")
			}
			locktest.Release(t, locktest.Hold(t, other, name))
			if n := one.Redis.Exists(t.Context(), key).Val(); n != 0 {
				t.Error("the key is left after the release")
			}
		})
	}
}

// A value that is the present time has come, and the next contender takes the key over; a
// later one has not.
func TestAStampIsTakenOverWhenItsTimeHasCome(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_000)
	together(t, stamps(), func(t *testing.T, kind string) {
		l, name := contend(t, kind, at(now)), "stamp-"+kind
		key := keyOf(kind, name)
		unit := int64(1)
		if kind == sourcelock.StampSeconds {
			unit = 1000
		}
		if kind == sourcelock.StampInit {
			locktest.Release(t, locktest.Hold(t, l, name)) // it has deleted what it found
		}
		for _, found := range []string{strconv.FormatInt(now.UnixMilli()/unit, 10), strconv.FormatInt(now.UnixMilli()/unit-1, 10), "no time"} {
			l.Redis.Set(t.Context(), key, found, 0)
			lease := locktest.Hold(t, l, name)
			if value := l.Redis.Get(t.Context(), key).Val(); value == found || value == "" {
				t.Errorf("%s: %q was taken over by %q", kind, found, value)
			}
			locktest.Release(t, lease)
		}
		later := strconv.FormatInt(now.UnixMilli()/unit+1, 10)
		l.Redis.Set(t.Context(), key, later, 0)
		assertNotGranted(t, l, name)
		should.Be(t, l.Redis.Get(t.Context(), key).Val(), later, kind, "a value whose time has not come")
		l.Redis.Del(t.Context(), key)
	})
}

// A Redis that is not there is named.
func TestARedisThatIsNotThereIsNamed(t *testing.T) {
	gone := backend.NewRedis(backend.RedisOptions{Addresses: []string{"127.0.0.1:1"}, Timeout: time.Second, PoolSize: 1})
	defer gone.Close() //nolint:errcheck // it was never connected
	for _, e := range sourcelock.Registry() {
		if e.Needs[0] != backend.Redis {
			continue
		}
		l := e.New(lock.Deps{Clients: &backend.Clients{Redis: gone}, TTL: lasting, Retry: time.Millisecond})
		_, err := l.Acquire(t.Context(), "x")
		if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != "redis" || !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("%s: %v, want a failure of redis", e.Name, err)
		}
	}
}

func quorums() []string {
	return []string{sourcelock.QuorumInTime, sourcelock.QuorumUntimed, sourcelock.QuorumAcknowledged}
}

// values are those of a key on each master.
func values(t *testing.T, masters []redis.UniversalClient, key string) (all []string) {
	t.Helper()
	for _, master := range masters {
		value, err := master.Get(context.WithoutCancel(t.Context()), key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		all = append(all, value)
	}
	return all
}

// block has another hold a key on some masters, until the test ends.
func block(t *testing.T, masters []redis.UniversalClient, key string) {
	t.Helper()
	for _, master := range masters {
		must.Do(t, master.Set(t.Context(), key, "another's", time.Minute).Err())
		t.Cleanup(func() { master.Del(context.WithoutCancel(t.Context()), key) })
	}
}

// More than half of the masters grant a name, each with the same owner and the TTL; what fewer
// have granted is given back, and so is everything with the release, but nothing of another's.
func TestAMajorityOfTheMastersGrantsAName(t *testing.T) {
	for _, kind := range quorums() {
		l, name := contend(t, kind), "majority-"+kind
		key, majority := keyOf(kind, name), len(l.Redlock)/2+1
		var votes []lock.Note
		ctx := lock.WithNotes(t.Context(), func(n lock.Note) { votes = append(votes, n) })
		block(t, l.Redlock[majority:], key)
		lease, err := l.Acquire(ctx, name)
		if err != nil {
			t.Fatalf("%s: a majority is free: %v", kind, err)
		}
		held := values(t, l.Redlock, key)
		owners := slices.Compact(slices.Clone(held[:majority]))
		if len(owners) != 1 || owners[0] == "" || owners[0] == "another's" {
			t.Errorf("%s: the masters have %q, want one owner on the first %d", kind, held, majority)
		}
		if left := l.Redlock[0].PTTL(t.Context(), key).Val(); left > lasting || left < lasting/2 {
			t.Errorf("%s: a key expires in %s, want %s", kind, left, lasting)
		}
		for i, n := range votes[:min(len(votes), len(l.Redlock))] {
			if want := map[bool]lock.NoteKind{true: lock.VotedFor, false: lock.VotedAgainst}[i < majority]; n.What != want || n.By != string(rune('1'+i)) {
				t.Errorf("%s: vote %d is %+v, want %s", kind, i+1, n, want)
			}
		}
		should.Be(t, len(votes), len(l.Redlock), kind, "votes that are told")
		locktest.Release(t, lease)
		if held = values(t, l.Redlock, key); !slices.Equal(held[:majority], make([]string, majority)) || slices.Contains(held[majority:], "") {
			t.Errorf("%s: after the release the masters have %q, want what is another's", kind, held)
		}
		block(t, l.Redlock[majority-1:majority], key)
		leave, cancel := context.WithCancel(t.Context()) // with the last vote: one that is cut off may be a grant
		last := lock.WithNotes(leave, func(n lock.Note) {
			if n.By == strconv.Itoa(len(l.Redlock)) {
				cancel()
			}
		})
		assertNotGrantedUnder(last, t, l, name)
		should.Equal(t, values(t, l.Redlock, key)[:majority-1], make([]string, majority-1), kind, "of a try that failed the masters keep")
	}
}

// A lease ends one TTL after it was asked for: it is not renewed.
func TestALeaseOfAMajorityEndsAfterItsTTL(t *testing.T) {
	together(t, quorums(), func(t *testing.T, kind string) {
		l := contend(t, kind, lastingFor(150*time.Millisecond))
		start := time.Now()
		lease := locktest.Hold(t, l, "ends-"+kind)
		labtest.AwaitLoss(t, lease, 5*time.Second)
		if took := time.Since(start); took < 100*time.Millisecond { // a part is left for clocks that differ
			t.Errorf("%s: the lease ended after %s", kind, took)
		}
	})
}
