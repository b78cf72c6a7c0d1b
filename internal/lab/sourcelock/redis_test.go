package sourcelock_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
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

// stamps are the locks whose value is a time, and what takes an expired one over by GETSET.
func stamps() []string {
	return append(slices.Clone(getSets()), sourcelock.StampDel, sourcelock.StampScript)
}

func getSets() []string {
	return []string{sourcelock.StampGetSet, sourcelock.StampSeconds, sourcelock.StampImproved, sourcelock.StampChecked, sourcelock.StampInit}
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
		if value := l.Redis.Get(t.Context(), key).Val(); value != later {
			t.Errorf("%s: %q, whose time has not come, was replaced by %q", kind, later, value)
		}
		l.Redis.Del(t.Context(), key)
	})
}

// around is a hook of a client of Redis: it has each single command pass through a function.
type around func(cmd redis.Cmder, pass func() error) error

func (around) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return a(cmd, func() error { return next(ctx, cmd) })
	}
}

func (around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// before does something before each command of a name.
func before(command string, do func()) around {
	return func(cmd redis.Cmder, pass func() error) error {
		if cmd.Name() == command {
			do()
		}
		return pass()
	}
}

// Where another contender is quicker between the look and the takeover: DEL deletes its lock,
// and both hold it; GETSET finds its time, and has moved it; the script changes nothing.
func TestATakeoverThatComesTooLate(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_000)
	const quicker = "2900000000000"
	for kind, c := range map[string]struct {
		command string
		granted bool
		moved   bool
	}{
		sourcelock.StampDel:    {"del", true, true},
		sourcelock.StampGetSet: {"getset", false, true},
		sourcelock.StampScript: {"eval", false, false},
	} {
		l, watcher, name := contend(t, kind, at(now)), labtest.RedisClient(lab.Redis(t)), "late-"+kind
		defer watcher.Close() //nolint:errcheck // the test is over
		key := keyOf(kind, name)
		watcher.Set(t.Context(), key, "7", 0)
		l.Redis.AddHook(before(c.command, sync.OnceFunc(func() { watcher.Set(t.Context(), key, quicker, 0) })))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := l.Acquire(ctx, name)
		cancel()
		if value := watcher.Get(t.Context(), key).Val(); (err == nil) != c.granted || (value != quicker) != c.moved {
			t.Errorf("%s: the takeover ends with %v, and the value is %s", kind, err, value)
		}
		watcher.Del(t.Context(), key)
	}
}

// A key that goes between the look and the GETSET is nil there, which is a grant; one that goes
// before the look is left to the next SETNX.
func TestAGetSetOfAKeyThatIsGoneIsAGrant(t *testing.T) {
	now := time.UnixMilli(1_900_000_000_000)
	for _, kind := range getSets() {
		for _, command := range []string{"getset", "get"} {
			l, name := contend(t, kind, at(now)), "gone-"+kind
			key := keyOf(kind, name)
			if kind == sourcelock.StampInit {
				locktest.Release(t, locktest.Hold(t, l, name)) // it has deleted what it found
			}
			l.Redis.Set(t.Context(), key, "7", 0)
			sets := 0
			l.Redis.AddHook(before("set", func() { sets++ }))
			l.Redis.AddHook(before(command, sync.OnceFunc(func() { l.Redis.Del(t.Context(), key) })))
			lease := locktest.Hold(t, l, name)
			if want := map[string]int{"getset": 1, "get": 2}[command]; sets != want {
				t.Errorf("%s: where the key goes before %s it is granted after %d tries, want %d", kind, command, sets, want)
			}
			locktest.Release(t, lease)
		}
	}
}

// A late holder deletes the lock of another, but where it looks at its own clock first: its
// time is over when its clock shows it.
func TestALateHolderDeletesTheLockOfAnother(t *testing.T) {
	begin := time.UnixMilli(1_900_000_000_000)
	for _, kind := range stamps() {
		for late, isLate := range map[time.Duration]bool{lasting - time.Millisecond: false, lasting: true, 2 * lasting: true} {
			now := begin
			l := contend(t, kind, func(d *lock.Deps) { d.Now = func() time.Time { return now } })
			name := "released-" + kind
			lease := locktest.Hold(t, l, name)
			now = begin.Add(late)
			err := lease.Release(t.Context())
			deleted := l.Redis.Exists(t.Context(), keyOf(kind, name)).Val() == 0
			if leaves := kind == sourcelock.StampChecked && isLate; errors.Is(err, lock.ErrLost) != leaves || deleted == leaves || err != nil && !leaves {
				t.Errorf("%s: released %s after the grant with %v, and deleted the key: %v", kind, late, err, deleted)
			}
			l.Redis.Del(t.Context(), keyOf(kind, name))
		}
	}
}

// The constructor deletes the lock of another, once.
func TestAClientThatIsMadeDeletesTheLockOnce(t *testing.T) {
	const name = "made"
	one, other := contend(t, sourcelock.StampInit), contend(t, sourcelock.StampInit)
	locktest.Hold(t, one, name)
	held := locktest.Hold(t, other, name)
	assertNotGranted(t, other, name)
	locktest.Release(t, held)
}

// A contender tries again after its pause: at once, after 50 ms, or as it is told.
func TestAContenderPausesBetweenItsTries(t *testing.T) {
	tries := map[string]struct{ least, most int }{
		sourcelock.SetNXSpin: {20, 1 << 20}, sourcelock.SetNXPause: {2, 5}, sourcelock.SetNXThenExpire: {2, 3}, sourcelock.SetNXExpireScript: {2, 3},
	}
	together(t, slices.Collect(maps.Keys(tries)), func(t *testing.T, kind string) {
		c := tries[kind]
		l, name := contend(t, kind, func(d *lock.Deps) { d.Retry = 110 * time.Millisecond }), "pauses-"+kind
		held := locktest.Hold(t, l, name)
		n := 0
		command := "set"
		if kind == sourcelock.SetNXExpireScript {
			command = "eval"
		}
		l.Redis.AddHook(before(command, func() { n++ }))
		ctx, cancel := context.WithTimeout(t.Context(), 220*time.Millisecond)
		if _, err := l.Acquire(ctx, name); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("%s: %v beside its holder", kind, err)
		}
		cancel()
		if n < c.least || n > c.most {
			t.Errorf("%s tries %d times in 220 ms, want from %d to %d", kind, n, c.least, c.most)
		}
		locktest.Release(t, held)
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
