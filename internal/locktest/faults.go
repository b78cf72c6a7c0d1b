package locktest

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// waitLimit is the longest that a request waits for a lock here; it is longer
// than what the clients allow a server that does not answer.
const waitLimit = 4 * time.Second

// assertNamed requires that an error reports the failure of the backend, by its name.
func (s *subject) assertNamed(t *testing.T, err error) {
	t.Helper()
	should.Fail(t, err, lock.ErrNotAcquired)
	failed, ok := errors.AsType[*stock.BackendError](err)
	if !ok || failed.Backend != string(s.site.name) {
		t.Errorf("%v, want an error that names %s", err, s.site.name)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("%v, which can be taken for the end of a wait that went on", err)
	}
}

// failsNamed acquires a name from a backend that does not answer, and requires an error that
// names it, within the limit.
func (s *subject) failsNamed(t *testing.T, l lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	start := time.Now()
	lease, err := l.Acquire(ctx, unique())
	if err == nil {
		t.Error("acquired from a backend that does not answer")
		Release(t, lease)
		return
	}
	s.assertNamed(t, err)
	if waited := time.Since(start); waited > waitLimit {
		t.Errorf("the error came after %s, and the limit was %s", waited, waitLimit)
	}
}

func namesAWrongAddress(t *testing.T, s *subject) {
	at := s.site.at.each(t, func(string) string {
		port := must.Get(servers.FreePort())(t)
		return servers.Loopback(port)
	})
	s.failsNamed(t, s.replicaAt(t, at, nil))
}

func namesAWrongPassword(t *testing.T, s *subject) {
	at := s.site.at
	for _, password := range []*string{&at.Redis.Password, &at.Redlock.Password, &at.Etcd.Password, &at.Database.Password} {
		*password = "wrong"
	}
	s.failsNamed(t, s.replicaAt(t, at, nil))
}

// namesAnUnresponsiveServer has servers accept connections and not answer on them, from the
// beginning or after a while.
func namesAnUnresponsiveServer(t *testing.T, s *subject) {
	at, cuts := s.site.at.through(t)
	warm, cold := s.replicaAt(t, at, nil).connected(t), s.replicaAt(t, at, nil)
	Release(t, Hold(t, warm, unique()))
	cuts.silence(true)
	s.failsNamed(t, cold)
	s.failsNamed(t, warm)
	cuts.silence(false)
	for _, l := range []*replica{warm, cold} {
		name := unique()
		Release(t, s.recover(t, l, name, patience))
		s.assertClean(t, name)
	}
}

// namesAServerThatGoesAsAWaitEnds freezes the servers during a wait, and ends the
// connections just after it, when a last answer may still come: the name is free, so that
// it must not be reported as busy.
func namesAServerThatGoesAsAWaitEnds(t *testing.T, s *subject) {
	const wait, hope = 300 * time.Millisecond, 100 * time.Millisecond
	at, cuts := s.site.at.through(t)
	l := s.replicaAt(t, at, nil).connected(t)
	Release(t, Hold(t, l, unique()))
	cuts.each((*servers.Proxy).Freeze)
	gone := time.AfterFunc(wait+hope, func() { cuts.each((*servers.Proxy).Cut) })
	defer gone.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	_, err := l.Acquire(ctx, unique())
	s.assertNamed(t, err)
}

// losesRequests ends the connections in the middle of an Acquire, at one of its requests
// after the other, before the servers get it or before they answer. Then the name is the
// holder's, or it is free long before its TTL is over; where a release does not compare the owner, it
// cannot be taken back, and is free then.
func losesRequests(t *testing.T, s *subject, deliver bool) {
	l, cuts, other, limit := s.lossy(t)
	for _, sent := range s.site.requests() {
		for _, known := range []bool{true, false} {
			n, all := 0, requestsOf(t, l, cuts, sent, known)
			for n < all && !t.Failed() && losesRequest(t, s, l, other, cuts, lostRequest{n, sent, known, deliver, limit}) {
				n++
			}
			if n == 0 && sent == "" {
				t.Error("no request of an Acquire contains the name, so that none could be lost")
			}
		}
	}
}

// never is the number of a request that is not reached.
const never = 1 << 20

// aName is a name that was held before, so that what is made once for a name is there; or a new one.
func aName(t *testing.T, l lock.Locker, known bool) string {
	t.Helper()
	name := unique()
	if known {
		Release(t, Hold(t, l, name))
	}
	return name
}

// requestsOf counts the requests of an Acquire without contention. One more would be the
// lease's, which a busy machine may send before the Acquire returns: the lease is rightly
// lost then.
func requestsOf(t *testing.T, l lock.Locker, cuts proxies, sent string, known bool) int {
	t.Helper()
	name := aName(t, l, known)
	armed := cuts.lose(never, cmp.Or(sent, name), false)
	lease := Hold(t, l, name)
	n := armed.seen()
	armed.disarm()
	Release(t, lease)
	return n
}

// lostRequest is one that is lost: the n-th, counted from 0, of those with these
// bytes in them, or with the name where there are none.
type lostRequest struct {
	n              int
	sent           string
	known, deliver bool
	limit          time.Duration // the name is free by then
}

// losesRequest loses one of the requests of an Acquire. It reports whether there are so
// many.
func losesRequest(t *testing.T, s *subject, l, other lock.Locker, cuts proxies, lost lostRequest) (met bool) {
	t.Helper()
	name := aName(t, l, lost.known)
	armed := cuts.lose(lost.n+1, cmp.Or(lost.sent, name), lost.deliver)
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	met = armed.disarm()
	if err != nil {
		s.assertNamed(t, err)
		if lost.deliver && !s.lock.Guarantees.SurvivesCrash {
			if isFreeWithin(t, other, name, soon) {
				t.Error("does not guarantee SurvivesCrash, and gave back what a lost answer had granted")
			}
			return met
		}
		lease = s.recover(t, l, name, lost.limit)
	}
	assertHeld(t, lease, other, name)
	Release(t, lease)
	Release(t, HoldWithin(t, other, name, lost.limit))
	s.assertClean(t, name)
	return met
}

// takesNothingByALateRequest freezes the way to the servers until an Acquire has given up, and lets its
// requests through then.
func takesNothingByALateRequest(t *testing.T, s *subject) {
	l, cuts, other, limit := s.lossy(t)
	name := aName(t, l, true)
	cuts.each((*servers.Proxy).Freeze)
	ctx, cancel := context.WithTimeout(t.Context(), 2*aWhile)
	defer cancel()
	late := HoldLater(ctx, l, name)
	should.Fail(t, late.Fails(t), lock.ErrNotAcquired, "without an answer it ends with")
	cuts.each((*servers.Proxy).Thaw)
	time.Sleep(aWhile) // the servers have time to act
	Release(t, HoldWithin(t, other, name, limit))
	s.assertClean(t, name)
}

// takesNothingByALateAnswer cancels an Acquire while the answer to one of its requests is on its way, to
// one after the other.
func takesNothingByALateAnswer(t *testing.T, s *subject) {
	l, cuts, other, limit := s.lossy(t)
	for _, sent := range s.site.requests() {
		for n := range requestsOf(t, l, cuts, sent, true) {
			name := aName(t, l, true)
			held := cuts.arm(servers.Rule{Sent: cmp.Or(sent, name), Nth: n + 1, Do: servers.HoldReply})
			ctx, leave := context.WithCancelCause(t.Context())
			defer leave(nil)
			late := HoldLater(ctx, l, name)
			held.await(t)
			leave(errHungUp)
			held.disarm()
			assertGaveUp(t, late.Fails(t), errHungUp)
			Release(t, HoldWithin(t, other, name, limit))
			s.assertClean(t, name)
		}
	}
}

// namesAServerThatTakesNoRelease has no server answer when the name is given back: it may be held
// for another TTL, and that is the failure of the backend. A lock that lives in a session or on a
// connection has lost the name with it.
func namesAServerThatTakesNoRelease(t *testing.T, s *subject) {
	at, cuts := s.site.at.through(t)
	l, name := s.replicaAt(t, at, nil).connected(t), unique()
	lease := Hold(t, l, name)
	cuts.each((*servers.Proxy).Cut)
	err := lease.Release(within(t))
	failed, ok := errors.AsType[*stock.BackendError](err)
	ends := s.lock.Guarantees.Renews && !s.lock.Watchdog
	if lost := errors.Is(err, lock.ErrLost); lost && !ends || !lost && (!ok || failed.Backend != string(s.site.name)) {
		t.Errorf("released without a server with %v, want an error that names %s, or %v where it ends with its connection: %v", err, s.site.name, lock.ErrLost, ends)
	}
	Release(t, lease) // once more
	if lease.Context().Err() == nil {
		t.Error("the context of a lease goes on after its release")
	}
}

// freesANameWhoseReleaseIsLost ends the connections at a release, before the servers get it or before they answer. The
// name is free long before its TTL is over. Where a release names no hold, it must not be repeated, and the name stays
// taken.
func freesANameWhoseReleaseIsLost(t *testing.T, s *subject) {
	l, cuts, other, limit := s.lossy(t)
	for _, deliver := range []bool{false, true} {
		name := unique()
		lease := Hold(t, l, name)
		request, end := cuts.lose(1, name, deliver), cuts.lose(1, "ROLLBACK", deliver) // which ends sql-row-lock
		err := lease.Release(within(t))
		if met := request.disarm(); !end.disarm() && !met {
			t.Fatalf("no request of a release contains the name, so that none could be lost (%v)", err)
		}
		switch {
		case s.lock.Guarantees.ReleasesOnlyItsOwn:
			Release(t, HoldWithin(t, other, name, limit))
			s.assertClean(t, name)
		case !deliver && isFreeWithin(t, other, name, soon):
			t.Error("does not guarantee ReleasesOnlyItsOwn, and repeats a release")
		}
	}
}

// keepsTheOtherHoldOfALostRelease has an owner hold a name twice, and loses the answer to one of the releases:
// repeating it must not end the other hold.
func keepsTheOtherHoldOfALostRelease(t *testing.T, s *subject) {
	l, cuts, other, limit := s.lossy(t)
	for _, sent := range s.site.requests() {
		name, owner := unique(), lock.WithOwner(t.Context(), unique())
		first, second := HoldUnder(owner, t, l, name), HoldUnder(owner, t, l, name)
		armed := cuts.lose(1, cmp.Or(sent, name), true)
		_ = second.Release(within(t)) // which may be counted here
		armed.disarm()
		assertHeld(t, first, other, name)
		Release(t, first)
		Release(t, HoldWithin(t, other, name, limit))
		s.assertClean(t, name)
	}
}

// lossy is a replica behind proxies, and one beside them. A name stays taken for longer than a topic waits, which is
// until limit; but for a lock that may have to leave it taken until its TTL is over.
func (s *subject) lossy(t *testing.T) (l *replica, cuts proxies, other *replica, limit time.Duration) {
	t.Helper()
	direct := s.site.at
	if limit = direct.TTL + time.Second; s.lock.Guarantees.ReleasesOnlyItsOwn {
		direct.TTL, limit = 3*patience, patience
	}
	fronts, cuts := direct.through(t)
	return s.replicaAt(t, fronts, nil).connected(t), cuts, s.replicaAt(t, direct, nil).connected(t), limit
}
