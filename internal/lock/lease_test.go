package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// A renewal that is under way while the name is given back finds it gone.
func TestALeaseIsNotLostByItsOwnRelease(t *testing.T) {
	var lease *Held
	lease = NewHeld(1, func(context.Context) error {
		lease.Lose()
		return nil
	})
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if cause := context.Cause(lease.Context()); cause == nil || errors.Is(cause, ErrLost) {
		t.Errorf("a lease that was given back ended with %v", cause)
	}
}

// A name that belonged to another by the time it was given back was lost.
func TestALeaseIsLostWhereTheReleaseFindsOut(t *testing.T) {
	lease := NewHeld(1, func(context.Context) error { return ErrLost })
	if err := lease.Release(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("released with %v, want %v", err, ErrLost)
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, ErrLost) {
		t.Errorf("ended with %v, want %v", cause, ErrLost)
	}
}

func TestANameIsGivenUpOnceAndNeverAfterItsLoss(t *testing.T) {
	failed := errors.New("connection refused")
	for name, c := range map[string]struct {
		lost    bool
		failure error // of giveUp
		answer  error // of the first Release
		want    int
	}{"released": {false, nil, nil, 1}, "lost": {true, nil, ErrLost, 0}, "not answered": {false, failed, failed, 1}} {
		t.Run(name, func(t *testing.T) {
			gaveUp := 0
			lease := NewHeld(1, func(context.Context) error { gaveUp++; return c.failure })
			if c.lost {
				lease.Lose()
			}
			if err := lease.Release(t.Context()); !errors.Is(err, c.answer) {
				t.Errorf("released with %v, want %v", err, c.answer)
			}
			if cause := context.Cause(lease.Context()); cause == nil || errors.Is(cause, ErrLost) != c.lost {
				t.Errorf("it ended with %v, and was lost: %v", cause, c.lost)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("the second Release answered %v, want nil", err)
			}
			if gaveUp != c.want {
				t.Errorf("given up %d times, want %d", gaveUp, c.want)
			}
		})
	}
}

func TestALeaseMayBeUsedByManyAtOnce(t *testing.T) {
	var gaveUp atomic.Int64
	lease := NewHeld(1, func(context.Context) error { gaveUp.Add(1); return nil })
	var users sync.WaitGroup
	for i := range 20 {
		users.Go(func() {
			if i == 10 {
				lease.Lose()
			}
			if err := lease.Release(t.Context()); err != nil && !errors.Is(err, ErrLost) {
				t.Errorf("released with %v", err)
			}
			if lease.Token() != 1 || lease.Context().Err() == nil {
				t.Errorf("after its end it has token %d and goes on: %v", lease.Token(), lease.Context().Err() == nil)
			}
		})
	}
	users.Wait()
	if n := gaveUp.Load(); n > 1 {
		t.Errorf("given up %d times", n)
	}
}

func TestAGrantAfterTheEndOfTheWaitIsGivenBack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var given error
	lease := NewHeld(1, func(ctx context.Context) error { given = ctx.Err(); return nil })
	if got, err := Granted(ctx, lease); got != lease || err != nil {
		t.Errorf("granted in time: %v, %v", got, err)
	}
	cancel()
	got, err := Granted(ctx, lease)
	if got != nil || !errors.Is(err, ErrNotAcquired) || !errors.Is(err, context.Canceled) {
		t.Errorf("granted too late: %v, %v", got, err)
	}
	if lease.Context().Err() == nil || given != nil {
		t.Errorf("it was not given back, or with a context that had ended: %v", given)
	}
}

func TestTakingBackOutlivesItsCallerAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, ctx := time.Now(), t.Context()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		var lasted time.Duration
		TakeBack(ended, func(own context.Context) error {
			<-own.Done()
			lasted = time.Since(begun)
			return own.Err()
		})
		if waited := time.Since(begun); waited != 400*time.Millisecond {
			t.Errorf("a slow backend kept its caller for %s", waited)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if lasted != 2*time.Second {
			t.Errorf("the context of taking back ended after %s", lasted)
		}
		begun = time.Now()
		TakeBack(ended, func(context.Context) error { return nil })
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("a quick backend kept its caller for %s", waited)
		}
	})
}

func TestAnErrorOfAnAcquireNamesWhatEndedIt(t *testing.T) {
	failed, hungUp := errors.New("connection refused"), errors.New("hung up")
	live := t.Context()
	expired, stop := context.WithDeadlineCause(live, time.Unix(0, 0), hungUp)
	defer stop()
	cancelled, cancel := context.WithCancelCause(live)
	cancel(hungUp)
	for name, c := range map[string]struct {
		ctx    context.Context //nolint:containedctx // the case
		err    error
		blamed bool
	}{
		"the backend fails":                       {live, failed, true},
		"the wait ends":                           {expired, nil, false},
		"the wait ends, as the backend says":      {expired, context.DeadlineExceeded, false},
		"the wait ends, and the backend says why": {expired, hungUp, false},
		"the backend fails as the wait ends":      {expired, failed, true},
		"the caller leaves":                       {cancelled, nil, false},
		"the backend fails as the caller leaves":  {cancelled, failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := NotAcquired(c.ctx, "redis", c.err)
			if blamed, ok := errors.AsType[*stock.BackendError](err); ok != c.blamed || ok && blamed.Backend != "redis" {
				t.Errorf("%v blames the backend: %v, want %v", err, ok, c.blamed)
			}
			if errors.Is(err, hungUp) == c.blamed || !errors.Is(err, ErrNotAcquired) {
				t.Errorf("%v, want the cause and %v", err, ErrNotAcquired)
			}
			if errors.Is(err, failed) != (c.blamed && c.err == failed) { //nolint:errorlint // the very error of the case
				t.Errorf("%v, want the backend's error: %v", err, c.blamed)
			}
		})
	}
}

// A backend that has its name in the error keeps it, and a failed Release names its backend.
func TestAFailureNamesTheBackendThatFailed(t *testing.T) {
	failed := errors.New("connection refused")
	for want, err := range map[string]error{
		"redis":  Unreachable("redis", failed),
		"sqlite": Unreachable("redis", fmt.Errorf("ask for the floor: %w", &stock.BackendError{Backend: "sqlite", Err: failed})),
		"mysql":  NotReleased("mysql", failed),
	} {
		var named []string
		for e := err; e != nil; {
			blamed, ok := errors.AsType[*stock.BackendError](e)
			if !ok {
				break
			}
			named, e = append(named, blamed.Backend), blamed.Err
		}
		if !slices.Equal(named, []string{want}) || !errors.Is(err, failed) {
			t.Errorf("%v blames %q, want %s alone", err, named, want)
		}
	}
}

func TestWorkEndsWithTheRequestOrTheLeaseAndKeepsTheCause(t *testing.T) {
	hungUp := errors.New("hung up")
	for name, c := range map[string]struct {
		end  func(lease *Held, leave context.CancelCauseFunc, stop func()) error
		want error
	}{
		"the lease is lost": {func(l *Held, _ context.CancelCauseFunc, _ func()) error { l.Lose(); return nil }, ErrLost},
		"the lease is released": {func(l *Held, _ context.CancelCauseFunc, _ func()) error {
			return l.Release(t.Context())
		}, errReleased},
		"the request ends": {func(_ *Held, leave context.CancelCauseFunc, _ func()) error { leave(hungUp); return nil }, hungUp},
		"the work is done": {func(_ *Held, _ context.CancelCauseFunc, stop func()) error { stop(); return nil }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancelCause(t.Context())
			defer leave(nil)
			lease := NewHeld(1, func(context.Context) error { return nil })
			work, stop := While(ctx, lease)
			defer stop()
			if err := c.end(lease, leave, stop); err != nil {
				t.Error(err)
			}
			<-work.Done()
			if cause := context.Cause(work); !errors.Is(cause, c.want) {
				t.Errorf("the work ended with %v, want %v", cause, c.want)
			}
		})
	}
}
