package locktest

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
)

// lifetimes is how many TTLs a renewed lease is watched.
const lifetimes = 3

// renews proves that a lease lasts for as long as its holder lives; or shows
// that it ends, and the next holder comes, while the first is still at work.
func renews(t *testing.T, s *subject) {
	l, other, name, ttl := s.replica(t), s.replica(t), unique(), s.site.at.TTL
	asked := time.Now() // the TTL begins after that, and before the answer
	lease := acquire(t, l, name)
	acquired := time.Now()
	switch {
	case s.lock.Guarantees.Renews:
		for time.Since(acquired) < lifetimes*ttl {
			assertHeld(t, lease, other, name)
			if t.Failed() {
				return
			}
		}
		release(t, lease)
	case !s.lock.Guarantees.SurvivesCrash:
		// It needs no renewal because it never ends, which is worse.
		if isFreeWithin(t, other, name, ttl+time.Second) {
			t.Error("does not guarantee SurvivesCrash, and the name became free by itself")
		}
		release(t, lease)
	default:
		others := acquireWithin(t, other, name, ttl+time.Second)
		s.assertLater(t, lease.Token(), others.Token())
		if s.lock.Guarantees.SignalsLoss && !endsWithin(lease, soon) {
			t.Error("the name is another's, and the first holder did not receive the loss")
		}
		if !s.lock.Guarantees.SignalsLoss && lease.Context().Err() != nil {
			t.Error("does not guarantee SignalsLoss, and ended a lease that ran out")
		}
		release(t, others)
		if early := ttl - time.Since(asked); early > ttl/10 {
			t.Errorf("the name was free %s before its TTL was over", early)
		}
		_ = lease.Release(within(t)) // its time is over
	}
	s.assertClean(t, name)
}

// endsAnExplicitLease is renews with a lock whose watchdog is left out.
func endsAnExplicitLease(t *testing.T, s *subject) {
	explicit, made := *s, s.lock.New
	explicit.lock.Guarantees.Renews = false
	explicit.lock.New = func(d lock.Deps) lock.Locker {
		d.Unrenewed = true
		return made(d)
	}
	renews(t, &explicit)
}

// replacesAFrozenHolder stops the holder's process for longer than the TTL:
// another gets the name, and the first finds out when it goes on.
func replacesAFrozenHolder(t *testing.T, s *subject) {
	frozen, next, third, name := s.process(t), s.replica(t), s.replica(t), unique()
	before := frozen.must(t, order{Do: doAcquire, Name: name})
	frozen.freeze()
	limit := s.site.at.TTL + time.Second
	if !s.lock.Guarantees.SurvivesCrash {
		if isFreeWithin(t, next, name, limit) {
			t.Error("does not guarantee SurvivesCrash, and a frozen holder was replaced")
		}
		return
	}
	lease := acquireWithin(t, next, name, limit)
	s.assertLater(t, before.Token, lease.Token())
	frozen.thaw()
	if s.lock.Guarantees.SignalsLoss {
		if !labtest.Eventually(soon, func() bool { return frozen.must(t, order{Do: doReport}).Lost }) {
			t.Error("a holder that was frozen and replaced did not receive the loss")
		}
	}
	if s.lock.Guarantees.ReleasesOnlyItsOwn {
		if a := frozen.ask(t, order{Do: doRelease}); !a.Lost {
			t.Errorf("a holder that was replaced released with %q, want ErrLost", a.Error)
		}
		assertHeld(t, lease, third, name)
	}
	if s.lock.Guarantees.Renews {
		release(t, lease)
		s.assertClean(t, name)
	}
}
