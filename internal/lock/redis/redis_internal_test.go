package redis

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func message(payload string) *redis.Message { return &redis.Message{Payload: payload} }

// A message wakes the waiter of its id, or the first where it has none; a connection that was
// made anew wakes all, because messages may have been lost before.
func TestAMessageWakesTheWaiterThatItNames(t *testing.T) {
	for name, c := range map[string]struct {
		said *redis.Message
		want []string
	}{
		"to any":     {message("key"), []string{"first"}},
		"to one":     {message("key second"), []string{"second"}},
		"to another": {message("key gone"), nil},
		"to none":    {message(""), nil},
		"to all":     {nil, []string{"first", "second", "third"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWakeups(nil, "", nil)
			must.Do(t, w.Close()) // from now on it subscribes to nothing
			all := []*sleeper{w.enter("key", "first"), w.enter("key", "second"), w.enter("other", "third")}
			w.deliver(c.said)
			var woken []string
			for _, s := range all {
				if len(s.wake) > 0 {
					woken = append(woken, s.id)
				}
			}
			should.Equal(t, woken, c.want, "woken")
		})
	}
}

// A waiter that was woken and leaves without looking hands its wake-up on, to the next of
// its name and to no other.
func TestAWakeUpThatIsNotUsedIsTheNextWaiters(t *testing.T) {
	woken := func(s *sleeper) bool { return len(s.wake) > 0 }
	for _, said := range []*redis.Message{message("key"), message("key first")} {
		w := newWakeups(nil, "", nil)
		must.Do(t, w.Close()) // it subscribes to nothing
		first, second, third, other := w.enter("key", "first"), w.enter("key", "second"), w.enter("key", "third"), w.enter("other", "other")
		w.deliver(said)
		w.leave("key", first)
		if !woken(second) || woken(third) || woken(other) {
			t.Fatalf("woken: the second %v, the third %v, another name's %v; want the second alone", woken(second), woken(third), woken(other))
		}
		w.leave("key", third) // nothing woke it
		<-second.wake
		w.leave("key", second)
		w.leave("other", other)
		if woken(other) || len(w.waiting) != 0 {
			t.Errorf("another name's is woken: %v; %d names are remembered", woken(other), len(w.waiting))
		}
	}
}

// Masters that are down are no failure for as long as the others can grant the name.
func TestAFailureIsThatOfMostMasters(t *testing.T) {
	down, taken := &redsync.RedisError{Err: errors.New("connection refused")}, &redsync.ErrNodeTaken{}
	for _, c := range []struct {
		nodes, failed int
		want          bool
	}{{1, 0, false}, {1, 1, true}, {3, 1, false}, {3, 2, true}, {5, 2, false}, {5, 3, true}, {5, 5, true}} {
		var err error
		for i := range c.nodes {
			if i < c.failed {
				err = errors.Join(err, down)
			} else {
				err = errors.Join(err, taken)
			}
		}
		should.Be(t, noQuorum(err, c.nodes), c.want, "of … masters are down, and that is a failure", c.failed, c.nodes)
	}
}

// One of several masters has half a second to answer, a single one as long as a lease allows;
// none has more than a third of a lease.
func TestAMasterHasItsTimeToAnswer(t *testing.T) {
	for _, c := range []struct {
		ttl   time.Duration
		nodes int
		want  time.Duration
	}{
		{30 * time.Second, 5, 500 * time.Millisecond},
		{1500 * time.Millisecond, 5, 500 * time.Millisecond},
		{300 * time.Millisecond, 5, 100 * time.Millisecond},
		{30 * time.Second, 1, 10 * time.Second},
		{300 * time.Millisecond, 1, 100 * time.Millisecond},
	} {
		should.Be(t, time.Duration(float64(c.ttl)*nodeTimeout(c.ttl, c.nodes)).Round(time.Millisecond), c.want, "of a lease of … one of … masters", c.ttl, c.nodes)
	}
}

// A lease is over where masters say so that are all there: one that is away may have it still, and is
// asked again.
func TestANameIsGoneWhereNoMasterIsAway(t *testing.T) {
	down, taken := &redsync.RedisError{Err: errors.New("connection refused")}, &redsync.ErrNodeTaken{}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"most have another holder":      {&redsync.ErrTaken{Nodes: []int{0, 1, 2}}, true},
		"one has another holder":        {errors.Join(taken), true},
		"its time is over":              {redsync.ErrLockAlreadyExpired, true},
		"one has another, two are away": {errors.Join(taken, down, down), false},
		"one is away":                   {errors.Join(down), false},
		"there is no failure":           {nil, false},
	} {
		should.Be(t, isTaken(c.err), c.want, "the name is gone", name)
	}
}

// FuzzRedisValues reads what others may have written into the keys of locks: a token
// is what stands there or none, and what is no time holds no lock.
func FuzzRedisValues(f *testing.F) {
	for _, seed := range []string{"1000000000000001", "18446744073709551615", "18446744073709551616", "0", "0x10", "-1", "+1", "1e9", " 1", "", "1\n", "\xff"} {
		f.Add(int64(taken), seed)
	}
	f.Add(int64(noFloor), "0")
	f.Add(int64(taken), "1700000000000") // the time of the look: it is over
	now := time.UnixMilli(1_700_000_000_000)
	f.Fuzz(func(t *testing.T, status int64, stored string) {
		number, isNumber := new(big.Int).SetString(stored, 10)
		g, err := readGrant([]any{status, stored}, nil)
		switch {
		case err != nil && g != outcome{}:
			t.Errorf("%q is no token (%v), and still %+v is granted", stored, err, g)
		case err == nil && (!isNumber || !number.IsUint64() || number.Uint64() != g.token || g.status != status):
			t.Errorf("%d with %q is read as %+v", status, stored, g)
		}
		if isHeld(stored, now) && (!isNumber || number.Cmp(big.NewInt(now.UnixMilli())) <= 0) {
			t.Errorf("%q holds the lock at %d", stored, now.UnixMilli())
		}
	})
}

// A script that others have put in the place of ours may answer anything.
func TestAnAnswerThatIsNoGrantIsRefused(t *testing.T) {
	for _, answer := range [][]any{nil, {}, {int64(1)}, {int64(1), nil}, {int64(1), int64(1)}, {"1", "1"}, {int64(1), "1", "1"}} {
		if g, err := readGrant(answer, nil); err == nil {
			t.Errorf("%v is read as %+v", answer, g)
		}
	}
}
