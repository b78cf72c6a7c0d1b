package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/should"
)

// signalsLoss has the backend take one of two names from their holder, which is notified of that
// one, or is not where that is not guaranteed.
func signalsLoss(t *testing.T, s *subject) {
	l, next, name, ttl := s.replica(t), s.replica(t), unique(), s.site.at.TTL
	beside := unique()
	lease, kept := Hold(t, l, name), Hold(t, l, beside)
	broken := time.Now()
	s.take(t, name)
	if !s.lock.Guarantees.SignalsLoss {
		if endsWithin(lease, ttl+grace) {
			t.Error("does not guarantee SignalsLoss, and signalled one")
		}
		_ = lease.Release(within(t)) // the name is gone
		return
	}
	if !endsWithin(lease, ttl+grace-time.Since(broken)) {
		t.Fatalf("the loss was not signalled within the TTL of %s", ttl)
	}
	assertLost(t, lease)
	s.assertClean(t, name)
	others := Hold(t, next, name)
	assertReleaseLost(t, lease)
	assertHeld(t, others, l, name)
	Release(t, others)
	s.assertClean(t, name)
	// A backend may take all names of a session, or of a replica, at once: then nothing is left of
	// this one. A lease that is not renewed may have run out.
	if cause := context.Cause(kept.Context()); cause != nil && s.lock.Guarantees.Renews && len(s.traces(t, beside)) > 0 {
		t.Errorf("the loss of one name ended the lease of another with %v, and the backend still has that", cause)
	}
	_ = kept.Release(within(t)) // it was lost where the backend took it, too
}

// signalsLossWhenCutOff cuts the holder off from the backend: it is notified before another
// can have the name because the lease ran out, and it recovers afterwards.
func signalsLossWhenCutOff(t *testing.T, s *subject) {
	at, cuts := s.site.at.through(t)
	l, other, name, ttl := s.replicaAt(t, at, nil).connected(t), s.replica(t), unique(), s.site.at.TTL
	lease := Hold(t, l, name)
	cuts.silence(true)
	cut := time.Now()
	if s.lock.Guarantees.SurvivesCrash {
		others := HoldWithin(t, other, name, ttl+time.Second)
		expired := time.Since(cut) > ttl/2 // or else the end of the connection freed it
		if s.lock.Guarantees.SignalsLoss && expired && !endsWithin(lease, aWhile/2) {
			t.Error("the time of a lease was over for the backend, and not yet for its holder")
		}
		if s.lock.Guarantees.Renews {
			defer Release(t, others)
			defer assertHeld(t, others, other, name)
		} else {
			defer others.Release(within(t)) //nolint:errcheck // its time may be over by then
		}
	}
	signalled := endsWithin(lease, ttl+grace-time.Since(cut))
	should.Be(t, signalled, s.lock.Guarantees.SignalsLoss, "the loss is signalled within the TTL")
	if signalled {
		assertLost(t, lease)
		assertReleaseLost(t, lease)
	}
	cuts.silence(false)
	Release(t, s.recover(t, l, unique(), patience))
}

// endsWithin reports whether a lease is over by then.
func endsWithin(lease lock.Lease, limit time.Duration) bool {
	select {
	case <-lease.Context().Done():
		return true
	case <-time.After(limit):
		return lease.Context().Err() != nil // it may have been over before there was time to look
	}
}

// recover takes a name as soon as the backend is back, by clients that have seen it fail.
// Until then every error must name the backend.
func (s *subject) recover(t *testing.T, l lock.Locker, name string, limit time.Duration) lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		lease, err := l.Acquire(ctx, name)
		if err == nil {
			return lease
		}
		if ctx.Err() != nil {
			t.Fatalf("not acquired within %s of the backend's return: %v", limit, err)
		}
		s.assertNamed(t, err)
		time.Sleep(retry)
	}
}

// renews proves that a lease lasts for as long as its holder lives; or shows
// that it ends, and the next holder comes, while the first is still at work.
func renews(t *testing.T, s *subject) {
	l, other, name, ttl := s.replica(t), s.replica(t), unique(), s.site.at.TTL
	asked := time.Now() // the TTL begins after that, and before the answer
	lease := Hold(t, l, name)
	acquired := time.Now()
	switch {
	case s.lock.Guarantees.Renews:
		for time.Since(acquired) < 3*ttl/2 { // one renewal would not last for so long
			assertHeld(t, lease, other, name)
			if t.Failed() {
				return
			}
		}
		Release(t, lease)
	case !s.lock.Guarantees.SurvivesCrash:
		// It needs no renewal because it never ends, which is worse.
		if isFreeWithin(t, other, name, ttl+time.Second) {
			t.Error("does not guarantee SurvivesCrash, and the name became free by itself")
		}
		Release(t, lease)
	default:
		others := HoldWithin(t, other, name, ttl+time.Second)
		s.assertLater(t, lease.Token(), others.Token())
		if s.lock.Guarantees.SignalsLoss && !endsWithin(lease, soon) {
			t.Error("the name is another's, and the first holder did not receive the loss")
		}
		if !s.lock.Guarantees.SignalsLoss && lease.Context().Err() != nil {
			t.Error("does not guarantee SignalsLoss, and ended a lease that ran out")
		}
		Release(t, others)
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
	lease := HoldWithin(t, next, name, limit)
	s.assertLater(t, before.Token, lease.Token())
	frozen.thaw()
	if s.lock.Guarantees.SignalsLoss {
		should.Be(t, labtest.Eventually(soon, func() bool { return frozen.must(t, order{Do: doReport}).Lost }), true, "a holder that was frozen and replaced did not receive the loss")
	}
	if s.lock.Guarantees.ReleasesOnlyItsOwn {
		if a := frozen.ask(t, order{Do: doRelease}); !a.Lost {
			t.Errorf("a holder that was replaced released with %q, want ErrLost", a.Error)
		}
		assertHeld(t, lease, third, name)
	}
	if s.lock.Guarantees.Renews {
		Release(t, lease)
		s.assertClean(t, name)
	}
}
