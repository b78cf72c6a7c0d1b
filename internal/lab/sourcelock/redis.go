package sourcelock

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// The locks in Redis.
const (
	// SetNXThenExpire takes a name and gives it its expiry in two commands,
	// SetNXExpireScript in one script.
	SetNXThenExpire   = "setnx-then-expire"
	SetNXExpireScript = "setnx-expire-script"
	// SetNXSpin asks again at once, SetNXPause after the pause that the source adds.
	SetNXSpin  = "setnx-spin"
	SetNXPause = "setnx-pause"

	// The value of the others is the time at which the lock expires, as it is that of
	// redis-getset.

	// StampDel takes an expired lock over by DEL and SETNX.
	StampDel = "stamp-del"
	// StampGetSet takes it over by GETSET, of which nil is a grant.
	StampGetSet = "stamp-getset"
	// StampScript takes it over by a script, which changes nothing where another
	// contender was quicker.
	StampScript = "stamp-script"
	// StampSeconds counts in whole seconds.
	StampSeconds = "stamp-seconds"
	// StampImproved adds a second to each expiry for clocks that differ, and EXPIRE.
	StampImproved = "stamp-improved"
	// StampChecked deletes its lock only before the expiry.
	StampChecked = "stamp-checked"
	// StampInit deletes the key when a client is made, also where another holds the lock.
	StampInit = "stamp-init"
)

func inRedis() []lock.Entry {
	return []lock.Entry{
		inKeys(backend.Redis, SetNXThenExpire, "SETNX, and then EXPIRE", polled{try: setNXThenExpire}),
		inKeys(backend.Redis, SetNXExpireScript, "both in one script", polled{try: setNXExpireScript}),
		inKeys(backend.Redis, SetNXSpin, "SET NX PX, and again at once", polled{try: setNXPX, pause: new(time.Duration)}),
		inKeys(backend.Redis, SetNXPause, "SET NX PX, and again after 50 ms", polled{try: setNXPX, pause: new(sourcePause)}),
		inKeys(backend.Redis, StampDel, "a time as the value; DEL and SETNX where it has come", polled{try: stamp{takeOver: delSetNX}.try}),
		inKeys(backend.Redis, StampGetSet, "a time as the value; GETSET where it has come", polled{try: stamp{takeOver: getSet}.try}),
		inKeys(backend.Redis, StampScript, "a time as the value; a script compares it and sets another", polled{try: stamp{takeOver: compareAndSet}.try}),
		inKeys(backend.Redis, StampSeconds, "a time in whole seconds as the value", polled{try: stamp{takeOver: getSet, unit: time.Second}.try}),
		inKeys(backend.Redis, StampImproved, "a time and one second as the value, and EXPIRE", polled{try: stamp{takeOver: getSet, tolerance: time.Second, expires: true}.try}),
		inKeys(backend.Redis, StampChecked, "a time as the value; its holder deletes it only before that", polled{try: stamp{takeOver: getSet}.try, checks: true}),
		inKeys(backend.Redis, StampInit, "a time as the value; it is deleted when the lock is made", polled{try: stamp{takeOver: getSet}.try, deletesFirst: true}),
	}
}

// keys are those of one kind of lock in Redis.
type keys struct {
	deps lock.Deps
	kind string
}

func (k *keys) key(name string) string {
	return k.deps.KeyPrefix() + ":{" + url.PathEscape(name) + "}:" + k.kind
}

func (k *keys) set(to keys) { *k = to }

// locker is a lock that has keys.
type locker[L any] interface {
	*L
	lock.Locker
	set(to keys)
}

// inKeys is the entry of a lock that Redis, or masters of it, keep as a key a name. Each lock is a copy of one.
func inKeys[L any, P locker[L]](on backend.Name, kind, summary string, one L) lock.Entry {
	return lock.Entry{
		Name: kind, Family: lock.FamilyRedis, Needs: []backend.Name{on}, Summary: summary,
		New: func(d lock.Deps) lock.Locker {
			made := one
			P(&made).set(keys{d, kind})
			return P(&made)
		},
	}
}

// attempt tries once to take a key, which then expires at a time of the client's clock.
type attempt func(ctx context.Context, d lock.Deps, key string) (until time.Time, won bool, err error)

// polled tries again after each pause.
type polled struct {
	keys

	try                  attempt
	checks, deletesFirst bool
	// pause is the one between two tries; nil: it pauses as its contender does.
	pause *time.Duration
}

// sourcePause is what the source pauses for.
const sourcePause = 50 * time.Millisecond

// Acquire tries until ctx ends.
func (l *polled) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	key := l.key(name)
	if l.deletesFirst {
		l.deletesFirst = false
		if err := l.deps.Redis.Del(ctx, key).Err(); err != nil {
			return nil, lock.NotAcquired(ctx, string(backend.Redis), err)
		}
	}
	for {
		until, won, err := l.try(ctx, l.deps, key)
		switch {
		case err != nil:
			return nil, lock.NotAcquired(ctx, string(backend.Redis), err)
		case won:
			return lock.NewHeld(0, func(ctx context.Context) error { return l.giveBack(ctx, key, until) }), nil
		}
		if pause.For(ctx, *cmp.Or(l.pause, &l.deps.Retry)) != nil {
			return nil, lock.NotAcquired(ctx, string(backend.Redis), nil)
		}
	}
}

func (l *polled) giveBack(ctx context.Context, key string, until time.Time) error {
	if l.checks && !until.After(l.deps.Clock()()) {
		return lock.ErrLost
	}
	return l.deps.Redis.Del(ctx, key).Err()
}

func setNXThenExpire(ctx context.Context, d lock.Deps, key string) (until time.Time, won bool, err error) {
	if won, err = d.Redis.SetNX(ctx, key, "1", 0).Result(); won {
		// A client that dies here leaves the key for ever.
		err = d.Redis.PExpire(ctx, key, d.TTL).Err()
	}
	return until, won, err
}

func setNXPX(ctx context.Context, d lock.Deps, key string) (until time.Time, won bool, err error) {
	won, err = d.Redis.SetNX(ctx, key, "1", d.TTL).Result()
	return until, won, err
}

const setNXExpire = `return redis.call('SETNX', KEYS[1], '1') == 1 and redis.call('PEXPIRE', KEYS[1], ARGV[1])`

func setNXExpireScript(ctx context.Context, d lock.Deps, key string) (until time.Time, won bool, err error) {
	won, err = orNil(d.Redis.Eval(ctx, setNXExpire, []string{key}, d.TTL.Milliseconds()).Bool())
	return until, won, err
}

// stamp is a lock whose value is the time at which it expires, by its holder's clock.
type stamp struct {
	takeOver  takeOver
	unit      time.Duration // 0: a millisecond
	tolerance time.Duration
	expires   bool
}

// takeOver puts a value in the place of one that was found, and reports whether the lock
// is taken by that.
type takeOver func(ctx context.Context, r redis.UniversalClient, key, found, value string) (won bool, err error)

// try compares as the sources do: a time that is equal to the present one has come.
func (s stamp) try(ctx context.Context, d lock.Deps, key string) (until time.Time, won bool, err error) {
	now := d.Clock()()
	until = now.Add(d.TTL + s.tolerance)
	value := strconv.FormatInt(s.units(until), 10)
	won, err = d.Redis.SetNX(ctx, key, value, 0).Result()
	if !won && err == nil {
		won, err = s.replace(ctx, d, key, value, s.units(now))
	}
	if won && s.expires {
		err = d.Redis.PExpire(ctx, key, d.TTL+s.tolerance).Err()
	}
	return until, won, err
}

func (s stamp) replace(ctx context.Context, d lock.Deps, key, value string, now int64) (won bool, err error) {
	found, err := orNil(d.Redis.Get(ctx, key).Result())
	if err != nil {
		return false, err
	}
	if at, err := strconv.ParseInt(found, 10, 64); err == nil && at > now {
		return false, nil
	}
	return s.takeOver(ctx, d.Redis, key, found, value)
}

func (s stamp) units(at time.Time) int64 { return at.UnixMilli() / max(1, s.unit.Milliseconds()) }

// delSetNX deletes what is there by then, and that may be another's.
func delSetNX(ctx context.Context, r redis.UniversalClient, key, _, value string) (bool, error) {
	if err := r.Del(ctx, key).Err(); err != nil {
		return false, err
	}
	return r.SetNX(ctx, key, value, 0).Result()
}

// getSet replaces the value also where it then finds that another was quicker. A key that
// is gone is left to the next SETNX; where it goes before the GETSET, nil is a grant.
func getSet(ctx context.Context, r redis.UniversalClient, key, found, value string) (bool, error) {
	if found == "" {
		return false, nil
	}
	before, err := orNil(r.GetSet(ctx, key, value).Result())
	return err == nil && (before == "" || before == found), err
}

const replaceSame = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('SET', KEYS[1], ARGV[2]) and 1`

func compareAndSet(ctx context.Context, r redis.UniversalClient, key, found, value string) (bool, error) {
	return orNil(r.Eval(ctx, replaceSame, []string{key}, found, value).Bool())
}

// orNil takes the answer nil for the empty one.
func orNil[T any](answer T, err error) (T, error) {
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return answer, err
}
