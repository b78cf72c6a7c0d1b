package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
)

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
		if got := noQuorum(err, c.nodes); got != c.want {
			t.Errorf("%d of %d masters are down, and that is a failure: %v, want %v", c.failed, c.nodes, got, c.want)
		}
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
		if got := time.Duration(float64(c.ttl) * nodeTimeout(c.ttl, c.nodes)).Round(time.Millisecond); got != c.want {
			t.Errorf("of a lease of %s one of %d masters has %s, want %s", c.ttl, c.nodes, got, c.want)
		}
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
		if got := isTaken(c.err); got != c.want {
			t.Errorf("%s: the name is gone: %v, want %v", name, got, c.want)
		}
	}
}
