package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// gate is a lock that grants each Acquire when it is let through.
type gate struct {
	through  chan struct{}
	leases   []*Held
	released int
	onGiveUp func() // nil: nothing happens meanwhile
}

func newGate(open int) *gate {
	g := &gate{through: make(chan struct{}, 10)}
	for range open {
		g.through <- struct{}{}
	}
	return g
}

func (g *gate) Acquire(ctx context.Context, _ string) (Lease, error) {
	select {
	case <-g.through:
	case <-ctx.Done():
		return nil, NotAcquired(ctx, "", nil)
	}
	lease := NewHeld(uint64(len(g.leases)+1), func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		g.released++
		if g.onGiveUp != nil {
			g.onGiveUp()
		}
		return nil
	})
	g.leases = append(g.leases, lease)
	return lease, nil
}

func mustAcquire(ctx context.Context, t *testing.T, l Locker) Lease {
	t.Helper()
	return must.Get(l.Acquire(ctx, "name"))(t)
}

func (g *gate) assertReleased(t *testing.T, times int) {
	t.Helper()
	should.Be(t, g.released, times, "the name was given back … times")
}

func TestTheLastReleaseOfAnOwnerGivesTheNameBack(t *testing.T) {
	g := newGate(3)
	r, me := NewReentrant(g), WithOwner(t.Context(), "me")
	first, second := mustAcquire(me, t, r), mustAcquire(me, t, r)
	if first.Token() != second.Token() || len(g.leases) != 1 {
		t.Errorf("an owner was granted a name %d times, with the tokens %d and %d", len(g.leases), first.Token(), second.Token())
	}
	must.Do(t, errors.Join(first.Release(me), first.Release(me)))
	third := mustAcquire(me, t, r)
	should.Be(t, third.Token(), second.Token(), "an owner that had released one of its leases was granted token …, and holds")
	must.Do(t, second.Release(me))
	g.assertReleased(t, 0)
	must.Do(t, third.Release(me))
	g.assertReleased(t, 1)
	if one, other := mustAcquire(t.Context(), t, r), mustAcquire(t.Context(), t, r); one.Token() == other.Token() {
		t.Error("two requests without an owner share a lease")
	}
}

// What an owner holds is one name, and no other owner's.
func TestAnOwnerJoinsNeitherAnotherNameNorAnotherOwner(t *testing.T) {
	g := newGate(3)
	r, me := NewReentrant(g), WithOwner(t.Context(), "me")
	leases := []Lease{mustAcquire(me, t, r), mustAcquire(WithOwner(t.Context(), "another"), t, r)}
	other := must.Get(r.Acquire(me, "other"))(t)
	for i, lease := range append(leases, other) {
		should.Be(t, lease.Token(), uint64(i+1), "lease … has token …: it joined another", i+1)
		must.Do(t, lease.Release(me))
		g.assertReleased(t, i+1)
	}
}

// The loss is the backend's news, and may come just before the owner asks again.
func TestAnOwnerDoesNotJoinALeaseThatWasLostJustNow(t *testing.T) {
	for range 20 { // the owner and the news run at the same time
		synctest.Test(t, func(t *testing.T) {
			g := newGate(3)
			r, me := NewReentrant(g), WithOwner(t.Context(), "me")
			first := mustAcquire(me, t, r)
			g.leases[0].Lose()
			if next := mustAcquire(me, t, r); next.Token() != 2 || first.Token() != 1 {
				t.Errorf("the owner joined the lease that was lost, with token %d", next.Token())
			}
			if err := first.Release(me); !errors.Is(err, ErrLost) { // whether the news have reached it or not
				t.Errorf("the lease that was lost is released with %v, want %v", err, ErrLost)
			}
			synctest.Wait() // what ends late of the first lease is no end of the next one
			should.Be(t, mustAcquire(me, t, r).Token(), 2, "the owner joins its new lease, which has the token")
		})
	}
}

func TestAJoinerThatIsCancelledBeforeTheGrantIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(0)
		r, me := NewReentrant(g), WithOwner(t.Context(), "me")
		granted := make(chan Lease)
		go func() {
			lease, err := r.Acquire(me, "name")
			if err != nil {
				t.Error(err)
			}
			granted <- lease
		}()
		synctest.Wait()
		leaving, leave := context.WithCancel(me)
		gone := make(chan error)
		go func() {
			_, err := r.Acquire(leaving, "name")
			gone <- err
		}()
		synctest.Wait()
		leave()
		if err := <-gone; !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.Canceled) {
			t.Errorf("the joiner gave up with %v", err)
		}
		g.through <- struct{}{}
		lease := <-granted
		if lease == nil {
			return
		}
		g.assertReleased(t, 0)
		must.Do(t, lease.Release(me))
		g.assertReleased(t, 1)
	})
}

// leaving is the context of a caller that leaves in the moment in which it begins to wait.
type leaving struct {
	context.Context

	meanwhile func()
}

func (l leaving) Done() <-chan struct{} {
	l.meanwhile()
	return l.Context.Done()
}

// A joiner that leaves after all others have released is the last one: it gives the name back, although
// its own context has ended.
func TestAJoinerThatLeavesLastGivesTheNameBack(t *testing.T) {
	for range 20 { // it may join as well, because the name is granted
		g := newGate(1)
		r, me := NewReentrant(g), WithOwner(t.Context(), "me")
		first := mustAcquire(me, t, r)
		gone, leave := context.WithCancel(me)
		leave()
		release := sync.OnceFunc(func() { must.Do(t, first.Release(me)) })
		if joined, err := r.Acquire(leaving{gone, release}, "name"); err == nil {
			must.Do(t, joined.Release(me))
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("the joiner left with %v", err)
		}
		g.assertReleased(t, 1)
		must.Be(t, len(r.owned), 0, "a name that was given back is kept for its owner", r.owned)
	}
}

func TestALossEndsEveryLeaseThatJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2)
		r, me := NewReentrant(g), WithOwner(t.Context(), "me")
		leases := []Lease{mustAcquire(me, t, r), mustAcquire(me, t, r)}
		g.leases[0].Lose()
		synctest.Wait()
		for _, lease := range leases {
			should.Fail(t, context.Cause(lease.Context()), ErrLost, "a lease that joined ended with")
			should.Fail(t, lease.Release(me), ErrLost)
		}
		should.Be(t, len(r.owned), 0, "a name that was lost is kept for its owner", r.owned)
		if lease := mustAcquire(me, t, r); lease.Token() != 2 || lease.Context().Err() != nil {
			t.Errorf("the next Acquire got token %d, want a lease of its own", lease.Token())
		}
		g.assertReleased(t, 0)
	})
}

// A name that is being given back belongs to no owner any more, although its backend has not
// answered yet.
func TestAnOwnerDoesNotJoinALeaseThatIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(2)
		r, me := NewReentrant(g), WithOwner(t.Context(), "me")
		first := mustAcquire(me, t, r)
		g.onGiveUp = func() {
			if next := mustAcquire(me, t, r); next.Token() == first.Token() {
				t.Error("the owner joined the lease that it gives back")
			}
		}
		must.Do(t, first.Release(me))
		g.assertReleased(t, 1)
	})
}

// A joiner waits for the first Acquire of its owner, and begins anew where that one fails.
func TestAJoinerTriesItselfWhereTheFirstFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(0)
		r, me := NewReentrant(g), WithOwner(t.Context(), "me")
		failing, fail := context.WithCancel(me)
		first := make(chan error)
		go func() {
			_, err := r.Acquire(failing, "name")
			first <- err
		}()
		synctest.Wait()
		joined := make(chan error)
		go func() {
			_, err := r.Acquire(me, "name")
			joined <- err
		}()
		synctest.Wait()
		fail()
		should.Fail(t, <-first, ErrNotAcquired)
		g.through <- struct{}{}
		should.Do(t, <-joined)
		if _, err := r.Acquire(WithOwner(failing, "another"), "name"); err == nil || len(r.owned) != 1 {
			t.Errorf("an owner that failed with %v is kept: %v", err, r.owned)
		}
	})
}

// closable is a lock with something to close.
type closable struct {
	Locker

	err error
}

func (c closable) Close() error { return c.err }

func TestClosingAReentrantLockClosesTheOneBehind(t *testing.T) {
	stuck := errors.New("the session does not end")
	should.Fail(t, NewReentrant(closable{err: stuck}).Close(), stuck, "closed with")
	should.Do(t, NewReentrant(newGate(0)).Close())
}
