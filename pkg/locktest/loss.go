package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
)

// signalsLoss has the backend take a name from its holder, who is told, or not
// where nothing is claimed.
func signalsLoss(t *testing.T, s *subject) {
	l, next, name := s.replica(t), s.replica(t), unique()
	lease := acquire(t, l, name)
	s.site.drop(t, name)
	if !s.entry.Guarantees.SignalsLoss {
		if endsWithin(lease, s.site.ttl()+grace) {
			t.Error("claims not to signal a loss, and did")
		}
		_ = lease.Release(within(t)) // whatever it answers: the name is gone
		return
	}
	if !endsWithin(lease, s.site.ttl()+grace) {
		t.Fatalf("the loss was not signalled within the TTL of %s", s.site.ttl())
	}
	assertLost(t, lease)
	s.assertClean(t, name)
	others := acquire(t, next, name)
	if err := lease.Release(within(t)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("released after the loss with %v, want %v", err, lock.ErrLost)
	}
	assertHeld(t, others, l, name)
	release(t, others)
	s.assertClean(t, name)
}

// signalsLossWhenCutOff cuts the holder off from the backend, which goes on
// without him: he is told in time, not after another has the name because his
// time was over, and finds his way back.
func signalsLossWhenCutOff(t *testing.T, s *subject) {
	at, cuts := s.site.addresses().through(t)
	l, other, name := s.replicaAt(t, at, nil), s.replica(t), unique()
	lease := acquire(t, l, name)
	cuts.mute(true)
	cut := time.Now()
	if s.entry.Guarantees.SurvivesCrash {
		others := acquireWithin(t, other, name, s.site.ttl()+time.Second)
		expired := time.Since(cut) > s.site.ttl()/2 // or else the end of the connection freed it
		if s.entry.Guarantees.SignalsLoss && expired && !endsWithin(lease, aWhile/2) {
			t.Error("the time of a lease was over for the backend, and not yet for its holder")
		}
		if s.entry.Guarantees.Renews {
			defer release(t, others)
			defer assertHeld(t, others, other, name)
		} else {
			defer others.Release(within(t)) //nolint:errcheck // its time may be over by then
		}
	}
	signalled := endsWithin(lease, s.site.ttl()+grace-time.Since(cut))
	if signalled != s.entry.Guarantees.SignalsLoss {
		t.Errorf("claims to signal a loss: %v; signalled within the TTL: %v", s.entry.Guarantees.SignalsLoss, signalled)
	}
	if signalled {
		assertLost(t, lease)
		if err := lease.Release(within(t)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("released after the loss with %v, want %v", err, lock.ErrLost)
		}
	}
	cuts.mute(false)
	release(t, s.recover(t, l, unique(), patience))
}

// endsWithin reports whether a lease is over by then.
func endsWithin(lease lock.Lease, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-lease.Context().Done():
		return true
	case <-timer.C:
		return false
	}
}

// recover takes a name as soon as the backend is back, with clients that have
// seen it fail. Until then they may say so, and nothing else.
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
