package locktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
)

// outlivesItsRequest ends the context that Acquire was given: the work may go on
// after it, and the name has to be given back in any case, also where the release is
// given a context that has ended.
func outlivesItsRequest(t *testing.T, s *subject) {
	l, other, name := s.replica(t), s.replica(t), unique()
	ctx, cancel := context.WithCancelCause(t.Context())
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	cancel(errHungUp)
	if s.lock.Guarantees.Renews {
		time.Sleep(s.site.at.TTL)
	}
	assertHeld(t, lease, other, name)
	release(t, lease)
	s.assertClean(t, name)
	if err := acquire(t, l, name).Release(ctx); err != nil {
		t.Errorf("released under a context that has ended with %v", err)
	}
	s.assertClean(t, name)
}

func endsItsContextWithTheRelease(t *testing.T, s *subject) {
	lease := acquire(t, s.replica(t), unique())
	release(t, lease)
	if !endsWithin(lease, soon) {
		t.Error("the context of a lease goes on after its release")
	}
	if errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
		t.Error("a lease that was released ended as lost")
	}
}

// releasesTwiceHarmlessly releases a lease again: at once, from several goroutines, and when another
// holds the name.
func releasesTwiceHarmlessly(t *testing.T, s *subject) {
	l, name := s.replica(t), unique()
	first := acquire(t, l, name)
	release(t, first)
	release(t, first)
	together := acquire(t, l, name)
	var releases sync.WaitGroup
	for range 4 {
		releases.Go(func() { release(t, together) })
	}
	releases.Wait()
	for _, other := range []*replica{l, s.replica(t)} {
		second := acquire(t, other, name)
		release(t, first)
		assertHeld(t, second, l, name)
		release(t, second)
	}
	s.assertClean(t, name)
}

// releasesOnlyItsOwn has a holder release too late: the backend has taken the name from it
// and granted it to another.
func releasesOnlyItsOwn(t *testing.T, s *subject) {
	if !s.lock.Guarantees.ReleasesOnlyItsOwn {
		freesAnothers(t, s)
		return
	}
	late, next, third, name := s.replica(t), s.replica(t), s.replica(t), unique()
	lost := acquire(t, late, name)
	s.take(t, name)
	lease := acquire(t, next, name)
	s.assertLater(t, lost.Token(), lease.Token())
	assertReleaseLost(t, lost)
	if err := lost.Release(within(t)); err != nil {
		t.Errorf("released once more with %v, want nil", err)
	}
	assertLost(t, lost)
	assertHeld(t, lease, third, name)
	release(t, lease)
	s.assertClean(t, name)
}

// freesAnothers shows the damage of a release that does not compare the owner, or compares
// it and only then deletes: in between, the TTL passes, another is granted the name, and
// loses it to a third while it works.
func freesAnothers(t *testing.T, s *subject) {
	at := s.site.at
	at.TTL = 3 * patience // the name becomes free by the release, and not by its expiry
	late, next, third, name := s.replicaAt(t, at, nil), s.replicaAt(t, at, nil), s.replicaAt(t, at, nil), unique()
	if late.clients.Redis == nil {
		t.Fatal("does not guarantee ReleasesOnlyItsOwn, and the suite can show the damage on Redis alone")
	}
	lease := acquire(t, late, name)
	var others lock.Lease
	late.clients.Redis.AddHook(&deleteHook{do: func() {
		s.take(t, name)
		others = acquire(t, next, name)
	}})
	if err := lease.Release(within(t)); err != nil {
		t.Errorf("the release that frees another's name: %v", err)
	}
	if others == nil {
		t.Fatal("does not guarantee ReleasesOnlyItsOwn, and its release sent no DEL")
	}
	if !isFreeWithin(t, third, name, patience) {
		t.Error("does not guarantee ReleasesOnlyItsOwn, and did not free another's name")
	}
	if others.Context().Err() != nil {
		t.Error("the holder whose name was freed received the loss: then the lock can guarantee more")
	}
	_ = others.Release(within(t)) // it was lost
}
