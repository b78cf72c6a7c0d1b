package lock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A holder that cannot renew is notified before the backend grants the name to the next, with
// time to spare for clocks that differ; so is one that renewed once, and one that never does.
func TestALeaseIsLostBeforeItsTTLIsOver(t *testing.T) {
	const ttl, spare = time.Second, 12 * time.Millisecond
	silent := errors.New("no answer")
	for name, c := range map[string]struct {
		begin func(*Held)
		after time.Duration // the last renewal that was answered
	}{
		"never renewed": {func(l *Held) { Expire(l, time.Now(), ttl) }, 0},
		// What the grant took is no time of the holder's.
		"granted late": {func(l *Held) { Expire(l, time.Now().Add(-ttl/2), ttl) }, -ttl / 2},
		"granted late, and not answered": {func(l *Held) {
			Watch(l, time.Now().Add(-ttl/2), ttl, func(context.Context) (bool, error) { return false, silent })
		}, -ttl / 2},
		"not answered": {func(l *Held) {
			Watch(l, time.Now(), ttl, func(context.Context) (bool, error) { return false, silent })
		}, 0},
		"answered once": {func(l *Held) {
			answers := 0
			Watch(l, time.Now(), ttl, func(context.Context) (bool, error) {
				if answers++; answers > 1 {
					return false, silent
				}
				return true, nil
			})
		}, ttl / 3},
		"answered late": {func(l *Held) {
			answers := 0
			Watch(l, time.Now(), ttl, func(context.Context) (bool, error) {
				if answers++; answers > 1 {
					return false, silent
				}
				time.Sleep(ttl / 2)
				return true, nil
			})
		}, ttl / 3},
		"kept waiting": {func(l *Held) {
			Watch(l, time.Now(), ttl, func(ctx context.Context) (bool, error) {
				<-ctx.Done()
				return false, ctx.Err()
			})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				lease := NewHeld(1, func(context.Context) error { return nil })
				c.begin(lease)
				<-lease.Context().Done()
				if held := time.Since(begun) - c.after; held > ttl-spare || held < ttl-2*spare {
					t.Errorf("it was held for %s of %s", held, ttl)
				}
				if cause := context.Cause(lease.Context()); !errors.Is(cause, ErrLost) {
					t.Errorf("it ended with %v, want %v", cause, ErrLost)
				}
			})
		})
	}
}

// A process that is paused in the middle of a renewal reads the answer when it goes on. The lease is not
// believed for another third of its TTL then.
func TestAnAnswerThatIsReadTooLateRenewsNothing(t *testing.T) {
	const ttl, paused = 3 * time.Second, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		lease := NewHeld(1, func(context.Context) error { return nil })
		var steps []NoteKind
		lease.Follow(func(n Note) { steps = append(steps, n.What) })
		Watch(lease, begun, ttl, func(ctx context.Context) (bool, error) {
			if len(steps) > 0 {
				return false, ctx.Err()
			}
			time.Sleep(paused) // the server has answered before
			return true, nil
		})
		<-lease.Context().Done()
		if held := time.Since(begun); held != ttl/3+paused {
			t.Errorf("it was held for %s, want %s", held, ttl/3+paused)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, ErrLost) || !slices.Equal(steps, []NoteKind{NotRenewed}) {
			t.Errorf("it ended with %v after %v", cause, steps)
		}
	})
}

// renewals are the seconds after which a lease with a TTL of 30 s was renewed that was
// requested a while ago, and the one in which it ended.
func renewals(t *testing.T, ago time.Duration, answer func(n int, lease *Held) (still bool, err error)) (at []int, ended int, lease *Held) {
	t.Helper()
	begun := time.Now()
	lease = NewHeld(1, func(context.Context) error { return nil })
	Watch(lease, begun.Add(-ago), 30*time.Second, func(context.Context) (bool, error) {
		at = append(at, int(time.Since(begun).Seconds()))
		return answer(len(at), lease)
	})
	context.AfterFunc(lease.Context(), func() { ended = int(time.Since(begun).Seconds()) })
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	return at, ended, lease
}

func TestALeaseIsRenewedEveryThirdOfItsTTL(t *testing.T) {
	silent := errors.New("no answer")
	for name, c := range map[string]struct {
		ago    time.Duration
		answer func(n int, lease *Held) (bool, error)
		at     []int // in seconds
		ended  int
		cause  error
	}{
		"until it is released": {0, func(n int, lease *Held) (bool, error) {
			if n == 3 {
				time.AfterFunc(time.Second, func() { _ = lease.Release(context.Background()) })
			}
			return true, nil
		}, []int{10, 20, 30}, 31, errReleased},
		"until it is found gone":    {0, func(n int, _ *Held) (bool, error) { return n < 2, nil }, []int{10, 20}, 20, ErrLost},
		"where the grant came late": {4 * time.Second, func(n int, _ *Held) (bool, error) { return n < 3, nil }, []int{6, 16, 26}, 26, ErrLost},
		"soon after no answer": {0, func(n int, _ *Held) (bool, error) {
			if n == 2 {
				return false, silent
			}
			return n < 4, nil
		}, []int{10, 20, 23, 33}, 33, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at, ended, lease := renewals(t, c.ago, c.answer)
				if !slices.Equal(at, c.at) || ended != c.ended {
					t.Errorf("renewed at %v until %d, want %v until %d", at, ended, c.at, c.ended)
				}
				if cause := context.Cause(lease.Context()); !errors.Is(cause, c.cause) {
					t.Errorf("it ended with %v, want %v", cause, c.cause)
				}
			})
		})
	}
}

// A renewal that is under way ends with its lease: what is given back is not prolonged any more.
func TestARenewalEndsWithItsLease(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	lease := NewHeld(1, func(context.Context) error { return nil })
	Watch(lease, time.Now().Add(-20*time.Minute), time.Hour, func(ctx context.Context) (bool, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return false, ctx.Err()
	})
	<-begun
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the renewal goes on after the release")
	}
}

// A lease is renewed unless leases are explicit.
func TestALeaseIsKeptAsTheDepsSay(t *testing.T) {
	for unrenewed, tries := range map[bool]int{false: 2, true: 0} {
		synctest.Test(t, func(t *testing.T) {
			lease, renewed := NewHeld(1, func(context.Context) error { return nil }), 0
			d := Deps{TTL: 3 * time.Second, Unrenewed: unrenewed}
			d.Keep(lease, time.Now(), func(context.Context) (bool, error) { renewed++; return renewed == 1, nil })
			<-lease.Context().Done() // unrenewed, or taken from it at the second time
			if renewed != tries {
				t.Errorf("unrenewed %v: %d renewals were tried, want %d", unrenewed, renewed, tries)
			}
		})
	}
}
