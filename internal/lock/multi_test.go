package lock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/process"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// shelf is a lock of this process that writes down what is taken and given back.
type shelf struct {
	inner  *process.Locker
	did    []string
	leases map[string]*lock.Held
	// broken is a name that no Acquire gets, stuck one whose Release fails.
	broken, stuck string
	failure       error  // of stuck
	giving        func() // is called before a name is given back
	tokens        uint64
}

func newShelf() *shelf {
	return &shelf{inner: process.New(), leases: make(map[string]*lock.Held), giving: func() {}}
}

var errBroken = errors.New("the server is gone")

func (s *shelf) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	if name == s.broken {
		return nil, lock.Unreachable("shelf", errBroken)
	}
	lease, err := s.inner.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	s.did = append(s.did, "take "+name)
	s.tokens++
	held := lock.NewHeld(s.tokens, func(ctx context.Context) error {
		s.giving()
		s.did = append(s.did, "give "+name)
		err := lease.Release(ctx)
		if name == s.stuck {
			err = s.failure
		}
		return err
	})
	s.leases[name] = held
	return held, nil
}

func takeAll(t *testing.T, l lock.Locker, names ...string) *lock.MultiLease {
	t.Helper()
	return must.Get(lock.NewMulti(l).Acquire(t.Context(), names...))(t)
}

func assertDid(t *testing.T, s *shelf, want ...string) {
	t.Helper()
	should.Equal(t, s.did, want, "it did")
}

// assertFree takes and gives back each name.
func assertFree(t *testing.T, l lock.Locker, names ...string) {
	t.Helper()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		lease, err := l.Acquire(ctx, name)
		cancel()
		if err != nil {
			t.Errorf("%s is not free: %v", name, err)
			continue
		}
		must.Do(t, lease.Release(t.Context()))
	}
}

func TestNamesAreTakenInOneOrderEachOnceAndGivenBackInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.giving = synctest.Wait // what the end of a name before leads to has happened
		names := []string{"c", "a", "b", "a"}
		lease := takeAll(t, s, names...)
		for range 2 {
			must.Do(t, lease.Release(t.Context()))
		}
		assertDid(t, s, "take a", "take b", "take c", "give c", "give b", "give a")
		should.Equal(t, names, []string{"c", "a", "b", "a"}, "the caller's names are")
		if cause := context.Cause(lease.Context()); cause == nil || errors.Is(cause, lock.ErrLost) {
			t.Errorf("the lease ended because of %v", cause)
		}
	})
}

// slow pauses after each grant, so that two callers that take the same names in different
// orders have one each.
type slow struct{ lock.Locker }

func (s slow) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	lease, err := s.Locker.Acquire(ctx, name)
	time.Sleep(time.Second)
	return lease, err
}

func TestCallersWithTheSameNamesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := slow{process.New()}
		done := make(chan error, 2)
		for _, names := range [][]string{{"a", "b"}, {"b", "a"}} {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				lease, err := lock.NewMulti(l).Acquire(ctx, names...)
				if err == nil {
					err = lease.Release(ctx)
				}
				done <- err
			}()
		}
		for range 2 {
			must.Do(t, <-done)
		}
	})
}

func TestAWaitThatEndsGivesBackWhatItHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		held := takeAll(t, s.inner, "c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := lock.NewMulti(s).Acquire(ctx, "a", "b", "c")
		if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want %v and its cause", err, lock.ErrNotAcquired)
		}
		assertDid(t, s, "take a", "take b", "give b", "give a")
		must.Do(t, held.Release(t.Context()))
		assertFree(t, s, "a", "b", "c")
	})
}

func TestAFailureMidwayGivesBackWhatItHad(t *testing.T) {
	s := newShelf()
	s.broken = "c"
	_, err := lock.NewMulti(s).Acquire(t.Context(), "a", "b", "c", "d")
	if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, stock.ErrBackendUnavailable) || !errors.Is(err, errBroken) {
		t.Errorf("%v, want %v and the failure of the backend", err, lock.ErrNotAcquired)
	}
	assertDid(t, s, "take a", "take b", "give b", "give a")
	assertFree(t, s, "a", "b", "d")
}

func TestNoNameIsNotALease(t *testing.T) {
	should.Reject(lock.NewMulti(newShelf()).Acquire(t.Context()))(t, lock.ErrNotAcquired)
}

func TestTheLossOfOneNameIsTheLossOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, lost := range []string{"a", "b", "c"} {
			s := newShelf()
			lease := takeAll(t, s, "a", "b", "c")
			s.leases[lost].Lose()
			<-lease.Context().Done()
			should.Fail(t, context.Cause(lease.Context()), lock.ErrLost, "… is lost, and the lease ended", lost)
			should.Fail(t, lease.Release(t.Context()), lock.ErrLost, "… is lost, and Release answers", lost)
			given := slices.DeleteFunc([]string{"give c", "give b", "give a"}, func(did string) bool { return did == "give "+lost })
			assertDid(t, s, append([]string{"take a", "take b", "take c"}, given...)...)
		}
	})
}

func TestALossWhileTheNextNameIsWaitedForEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		held := takeAll(t, s.inner, "b")
		failed := make(chan error, 1)
		go func() {
			_, err := lock.NewMulti(s).Acquire(t.Context(), "a", "b")
			failed <- err
		}()
		synctest.Wait()
		s.leases["a"].Lose()
		if err := <-failed; !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, lock.ErrLost) {
			t.Errorf("%v, want %v and %v", err, lock.ErrNotAcquired, lock.ErrLost)
		}
		must.Do(t, held.Release(t.Context()))
		assertFree(t, s, "b")
	})
}

// losing loses the name a while b is granted.
type losing struct{ *shelf }

func (l losing) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	if name == "b" {
		l.leases["a"].Lose()
		<-ctx.Done()
	}
	return l.shelf.Acquire(context.WithoutCancel(ctx), name)
}

func TestALossInTheMomentOfTheLastGrantIsALossOfAll(t *testing.T) {
	s := newShelf()
	if _, err := lock.NewMulti(losing{s}).Acquire(t.Context(), "a", "b"); !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, lock.ErrLost) {
		t.Errorf("%v, want %v and %v", err, lock.ErrNotAcquired, lock.ErrLost)
	}
	assertDid(t, s, "take a", "take b", "give b")
}

func TestALossThatTheReleaseFindsIsTheLossOfAll(t *testing.T) {
	s := newShelf()
	s.stuck, s.failure = "b", lock.ErrLost
	lease := takeAll(t, s, "a", "b", "c")
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) || !errors.Is(context.Cause(lease.Context()), lock.ErrLost) {
		t.Errorf("Release answers %v, and the lease ended because of %v", err, context.Cause(lease.Context()))
	}
	assertDid(t, s, "take a", "take b", "take c", "give c", "give b", "give a")
}

func TestANameThatIsNotGivenBackDoesNotKeepTheOthers(t *testing.T) {
	s := newShelf()
	s.stuck, s.failure = "b", lock.Released("shelf", false, errBroken)
	if err := takeAll(t, s, "a", "b", "c").Release(t.Context()); !errors.Is(err, errBroken) || errors.Is(err, lock.ErrLost) {
		t.Errorf("Release answers %v, want %v", err, errBroken)
	}
	assertDid(t, s, "take a", "take b", "take c", "give c", "give b", "give a")
}
