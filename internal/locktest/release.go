package locktest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// outlivesItsRequest ends the context that Acquire was given: the work may go on
// after it, and the name has to be given back in any case, also where the release is
// given a context that has ended.
func outlivesItsRequest(t *testing.T, s *subject) {
	l, other, name := s.replica(t), s.replica(t), unique()
	ctx, cancel := context.WithCancelCause(t.Context())
	lease := must.Get(l.Acquire(ctx, name))(t)
	cancel(errHungUp)
	if s.lock.Guarantees.Renews {
		time.Sleep(s.site.at.TTL)
	}
	assertHeld(t, lease, other, name)
	Release(t, lease)
	s.assertClean(t, name)
	should.Be(t, Hold(t, l, name).Release(ctx), nil, "released under a context that has ended")
	s.assertClean(t, name)
}

func endsItsContextWithTheRelease(t *testing.T, s *subject) {
	lease := Hold(t, s.replica(t), unique())
	Release(t, lease)
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
	first := Hold(t, l, name)
	Release(t, first)
	Release(t, first)
	together := Hold(t, l, name)
	var releases sync.WaitGroup
	for range 4 {
		releases.Go(func() { Release(t, together) })
	}
	releases.Wait()
	for _, other := range []*replica{l, s.replica(t)} {
		second := Hold(t, other, name)
		Release(t, first)
		assertHeld(t, second, l, name)
		Release(t, second)
	}
	s.assertClean(t, name)
}

// releasesOnlyItsOwn has a holder release too late: the backend has taken the name from it
// and granted it to another. It releases at once, and, where it is notified of its loss, after that.
func releasesOnlyItsOwn(t *testing.T, s *subject) {
	if !s.lock.Guarantees.ReleasesOnlyItsOwn {
		freesAnothers(t, s)
		return
	}
	late, next, third := s.replica(t), s.replica(t), s.replica(t)
	for _, notified := range []bool{false, s.lock.Guarantees.SignalsLoss} {
		name := unique()
		lost := Hold(t, late, name)
		broken := time.Now()
		s.take(t, name)
		lease := Hold(t, next, name)
		s.assertLater(t, lost.Token(), lease.Token())
		if notified && !endsWithin(lost, s.site.at.TTL+grace-time.Since(broken)) {
			t.Fatalf("the name is another's, and its first holder was not notified within the TTL of %s", s.site.at.TTL)
		}
		assertReleaseLost(t, lost)
		Release(t, lost) // once more
		assertLost(t, lost)
		if notified && !s.lock.Guarantees.Renews {
			_ = lease.Release(within(t)) // its time may be over by now
			continue
		}
		assertHeld(t, lease, third, name)
		Release(t, lease)
		s.assertClean(t, name)
	}
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
	lease := Hold(t, late, name)
	var others lock.Lease
	between := sync.OnceFunc(func() {
		s.take(t, name)
		others = Hold(t, next, name)
	})
	late.clients.Redis.AddHook(Hook(func(_ context.Context, send func() error, commands ...redis.Cmder) error {
		if commands[0].Name() == "del" {
			between()
		}
		return send()
	}))
	Release(t, lease) // which frees another's name
	if others == nil {
		t.Fatal("does not guarantee ReleasesOnlyItsOwn, and its release sent no DEL")
	}
	if !isFreeWithin(t, third, name, patience) {
		t.Error("does not guarantee ReleasesOnlyItsOwn, and did not free another's name")
	}
	should.Be(t, others.Context().Err(), nil, "the holder whose name was freed received the loss: then the lock can guarantee more")
	_ = others.Release(within(t)) // it was lost
}

// fences proves that tokens grow strictly, from hold to hold, replica to replica
// and client to client; or that there are none.
func fences(t *testing.T, s *subject) {
	name := unique()
	var last uint64
	const generations = 4
	for range generations {
		replicas := []*replica{s.replica(t), s.replica(t)} // new clients, with new connections
		for i := range s.holds / generations {
			lease := Hold(t, replicas[i%len(replicas)], name)
			token := lease.Token()
			Release(t, lease)
			if !s.lock.Guarantees.Fences {
				should.Be(t, token, 0, "does not guarantee Fences, and gave token")
				return
			}
			if token <= last {
				t.Fatalf("token %d came after %d", token, last)
			}
			last = token
		}
	}
	s.assertClean(t, name)
}

// assertLater requires that the next holder has a later token than one whose lease is over: it may be
// at work still.
func (s *subject) assertLater(t *testing.T, before, next uint64) {
	t.Helper()
	if s.lock.Guarantees.Fences && next <= before {
		t.Errorf("token %d came after %d, whose lease is over and was not released", next, before)
	}
}

// ahead is a token that the store may have seen, far above those of the backend: a counter of
// floating-point numbers would round it down.
const ahead = 1<<60 + 1

// fencesAfterDataLoss makes the backend forget every name and every counter, and
// its scripts: tokens go on above those that were given, and above what the
// store has seen.
func fencesAfterDataLoss(t *testing.T, s *subject) {
	own := s.own(t)
	seenElsewhere := []uint64{0, ahead}
	if own.at.Database.Driver != "" {
		seenElsewhere = []uint64{0} // the tokens are a database's, which loses nothing
	}
	var seen uint64
	floor := func(context.Context, string) (uint64, error) { return seen, nil }
	l, name := s.replicaAt(t, own.at, floor).connected(t), unique()
	for _, token := range seenElsewhere {
		lease := Hold(t, l, name)
		if s.lock.Guarantees.Fences && lease.Token() == 0 {
			t.Fatal("there is no token")
		}
		Release(t, lease)
		seen = max(lease.Token(), token)
		own.forget(t)
		lease = Hold(t, l, name)
		if token := lease.Token(); s.lock.Guarantees.Fences && token <= seen {
			t.Errorf("after the data were lost, token %d was given, and the store has seen %d", token, seen)
		}
		Release(t, lease)
	}
}
