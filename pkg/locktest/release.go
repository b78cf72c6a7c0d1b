package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
)

// outlivesItsRequest ends the context that Acquire was given: the work may go on
// after it, and the name has to be given back in any case.
func outlivesItsRequest(t *testing.T, s *subject) {
	l, other, name := s.replica(t), s.replica(t), unique()
	ctx, cancel := context.WithCancelCause(t.Context())
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	cancel(errHungUp)
	if s.entry.Guarantees.Renews {
		time.Sleep(s.site.ttl())
	}
	assertHeld(t, lease, other, name)
	release(t, lease)
	s.assertClean(t, name)
}

func endsItsContextWithTheRelease(t *testing.T, s *subject) {
	lease := acquire(t, s.replica(t), unique())
	release(t, lease)
	select {
	case <-lease.Context().Done():
		if errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
			t.Error("a lease that was released ended as lost")
		}
	case <-time.After(soon):
		t.Error("the context of a lease goes on after its release")
	}
}

func releasesTwiceHarmlessly(t *testing.T, s *subject) {
	l, name := s.replica(t), unique()
	first := acquire(t, l, name)
	release(t, first)
	release(t, first)
	for _, other := range []*replica{l, s.replica(t)} {
		second := acquire(t, other, name)
		release(t, first)
		assertHeld(t, second, l, name)
		release(t, second)
	}
	s.assertClean(t, name)
}

// releasesOnlyItsOwn has a holder release who is too late: the backend has taken
// the name from him and granted it to another.
func releasesOnlyItsOwn(t *testing.T, s *subject) {
	if s.entry.Guarantees.ReleasesOnlyItsOwn {
		late, next, third, name := s.replica(t), s.replica(t), s.replica(t), unique()
		lost := acquire(t, late, name)
		s.site.drop(t, name)
		lease := acquire(t, next, name)
		if err := lost.Release(within(t)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("a holder who was too late released with %v, want %v", err, lock.ErrLost)
		}
		if err := lost.Release(within(t)); err != nil {
			t.Errorf("and released once more with %v, want nil", err)
		}
		assertLost(t, lost)
		assertHeld(t, lease, third, name)
		release(t, lease)
		s.assertClean(t, name)
		return
	}
	gaps, has := s.site.(gapped)
	if !has {
		t.Fatal("claims not to look whose name it releases, and there is no way to show it")
	}
	freesAnothers(t, s, gaps)
}

// gapped is a backend that can step between the commands of a release.
type gapped interface {
	// beforeDelete has do called once, just before the next command of a replica
	// that deletes something.
	beforeDelete(r *replica, do func())
}

// freesAnothers shows the damage of a release that does not look whose the name
// is, or looks and only then deletes: in between, the TTL passes, another is
// granted the name, and loses it to a third while he works.
func freesAnothers(t *testing.T, s *subject, gaps gapped) {
	at := s.site.addresses()
	at.TTL = 3 * patience // the name becomes free by the release, and not by its expiry
	late, next, third, name := s.replicaAt(t, at, nil), s.replicaAt(t, at, nil), s.replicaAt(t, at, nil), unique()
	lease := acquire(t, late, name)
	var others lock.Lease
	gaps.beforeDelete(late, func() {
		s.site.drop(t, name)
		others = acquire(t, next, name)
	})
	if err := lease.Release(within(t)); err != nil {
		t.Errorf("the release that frees another's name: %v", err)
	}
	if others == nil {
		t.Fatal("the release deleted nothing")
	}
	if !isFreeWithin(t, third, name, patience) {
		t.Error("claims not to release only its own, and did not free another's name")
	}
	if others.Context().Err() != nil {
		t.Error("the holder whose name was freed was told: then the claim could be made")
	}
	_ = others.Release(within(t)) // it is not his any more
}
