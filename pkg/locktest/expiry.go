package locktest

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
)

// lifetimes is how many TTLs a renewed lease is watched.
const lifetimes = 3

// renews proves that a lease lasts for as long as its holder lives; or shows
// that it ends, and the next holder comes, while the first is still at work.
func renews(t *testing.T, s *subject) {
	l, other, name := s.replica(t), s.replica(t), unique()
	lease := acquire(t, l, name)
	acquired := time.Now()
	switch {
	case s.entry.Guarantees.Renews:
		for time.Since(acquired) < lifetimes*s.site.ttl() {
			assertHeld(t, lease, other, name)
			if t.Failed() {
				return
			}
		}
		release(t, lease)
	case !s.entry.Guarantees.SurvivesCrash:
		// It needs no renewal because it never ends, and that is the worse.
		if isFreeWithin(t, other, name, s.site.ttl()+time.Second) {
			t.Error("claims not to survive a crash, and the name became free by itself")
		}
		release(t, lease)
	default:
		others := acquireWithin(t, other, name, s.site.ttl()+time.Second)
		if !s.entry.Guarantees.SignalsLoss && lease.Context().Err() != nil {
			t.Error("claims not to signal a loss, and ended a lease that ran out")
		}
		release(t, others)
		if early := s.site.ttl() - time.Since(acquired); early > s.site.ttl()/10 {
			t.Errorf("the name was free %s before its TTL was over", early)
		}
		_ = lease.Release(within(t)) // whatever it answers: the time was over
	}
	s.assertClean(t, name)
}

// replacesAFrozenHolder stops the holder's process for longer than the TTL:
// another gets the name, and the first finds out when it goes on.
func replacesAFrozenHolder(t *testing.T, s *subject) {
	frozen, next, third, name := s.process(t), s.replica(t), s.replica(t), unique()
	frozen.obeys(t, order{Do: doAcquire, Name: name})
	frozen.freeze()
	limit := s.site.ttl() + time.Second
	if !s.entry.Guarantees.SurvivesCrash {
		if isFreeWithin(t, next, name, limit) {
			t.Error("claims not to survive a crash, and a frozen holder was replaced")
		}
		return
	}
	lease := acquireWithin(t, next, name, limit)
	frozen.thaw()
	if s.entry.Guarantees.SignalsLoss {
		if !labtest.Eventually(soon, func() bool { return frozen.obeys(t, order{Do: doReport}).Lost }) {
			t.Error("a holder who was frozen and replaced was not told")
		}
	}
	if s.entry.Guarantees.ReleasesOnlyItsOwn {
		if a := frozen.ask(t, order{Do: doRelease}); !a.Lost {
			t.Errorf("a holder who was replaced released with %q, want ErrLost", a.Error)
		}
		assertHeld(t, lease, third, name)
	}
	if s.entry.Guarantees.Renews {
		release(t, lease)
		s.assertClean(t, name)
	}
}
