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

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// A renewal that is under way while the name is given back finds it gone.
func TestALeaseIsNotLostByItsOwnRelease(t *testing.T) {
	var lease *Held
	lease = NewHeld(1, func(context.Context) error {
		lease.Lose()
		return nil
	})
	must.Do(t, lease.Release(t.Context()))
	if cause := context.Cause(lease.Context()); cause == nil || errors.Is(cause, ErrLost) {
		t.Errorf("a lease that was given back ended with %v", cause)
	}
}

// A name that belonged to another by the time it was given back was lost.
func TestALeaseIsLostWhereTheReleaseFindsOut(t *testing.T) {
	lease := NewHeld(1, func(context.Context) error { return ErrLost })
	should.Fail(t, lease.Release(t.Context()), ErrLost)
	should.Fail(t, context.Cause(lease.Context()), ErrLost, "ended with")
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
			should.Fail(t, lease.Release(t.Context()), c.answer)
			if cause := context.Cause(lease.Context()); cause == nil || errors.Is(cause, ErrLost) != c.lost {
				t.Errorf("it ended with %v, and was lost: %v", cause, c.lost)
			}
			should.Do(t, lease.Release(t.Context()))
			should.Be(t, gaveUp, c.want, "given up … times")
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
		should.Be(t, time.Since(begun), 400*time.Millisecond, "a slow backend kept its caller")
		time.Sleep(time.Minute)
		synctest.Wait()
		should.Be(t, lasted, 2*time.Second, "the context of taking back ended")
		begun = time.Now()
		TakeBack(ended, func(context.Context) error { return nil })
		should.Be(t, time.Since(begun), 0, "a quick backend kept its caller")
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
		"mysql":  Released("mysql", false, failed),
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
			must.Do(t, c.end(lease, leave, stop))
			<-work.Done()
			should.Fail(t, context.Cause(work), c.want, "the work ended with")
		})
	}
}

// watch is Watch with renewals that are bounded.
func watch(lease *Held, asked time.Time, ttl time.Duration, renew func(context.Context) (bool, error)) {
	Watch(lease, asked, ttl, bounded(lease, renew))
}

// bounded ends a lease that is renewed without an end: its test fails then, and does not hang.
func bounded(lease *Held, renew func(context.Context) (bool, error)) func(context.Context) (bool, error) {
	tries := 0
	return func(ctx context.Context) (bool, error) {
		if tries++; tries > 100 {
			lease.end(errors.New("it is renewed without an end"))
		}
		return renew(ctx)
	}
}

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
			watch(l, time.Now().Add(-ttl/2), ttl, func(context.Context) (bool, error) { return false, silent })
		}, -ttl / 2},
		"not answered": {func(l *Held) {
			watch(l, time.Now(), ttl, func(context.Context) (bool, error) { return false, silent })
		}, 0},
		"answered once": {func(l *Held) {
			answers := 0
			watch(l, time.Now(), ttl, func(context.Context) (bool, error) {
				if answers++; answers > 1 {
					return false, silent
				}
				return true, nil
			})
		}, ttl / 3},
		"answered late": {func(l *Held) {
			answers := 0
			watch(l, time.Now(), ttl, func(context.Context) (bool, error) {
				if answers++; answers > 1 {
					return false, silent
				}
				time.Sleep(ttl / 2)
				return true, nil
			})
		}, ttl / 3},
		"kept waiting": {func(l *Held) {
			watch(l, time.Now(), ttl, func(ctx context.Context) (bool, error) {
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
				should.Fail(t, context.Cause(lease.Context()), ErrLost, "it ended with")
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
		watch(lease, begun, ttl, func(ctx context.Context) (bool, error) {
			if len(steps) > 0 {
				return false, ctx.Err()
			}
			time.Sleep(paused) // the server has answered before
			return true, nil
		})
		<-lease.Context().Done()
		should.Be(t, time.Since(begun), ttl/3+paused, "it was held")
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
	watch(lease, begun.Add(-ago), 30*time.Second, func(context.Context) (bool, error) {
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
				should.Fail(t, context.Cause(lease.Context()), c.cause, "it ended with")
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
	must.Do(t, lease.Release(t.Context()))
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
			d.Keep(lease, time.Now(), bounded(lease, func(context.Context) (bool, error) { renewed++; return renewed == 1, nil }))
			<-lease.Context().Done() // unrenewed, or taken from it at the second time
			should.Be(t, renewed, tries, "unrenewed …: … renewals were tried", unrenewed)
		})
	}
}

// notes collects what a lock tells, from any goroutine.
type notes struct {
	mu   sync.Mutex
	list []Note
}

func (n *notes) take(one Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, one)
}

// all are those that were told so far.
func (n *notes) all() []Note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list
}

func TestALeaseTellsItsExpiryAndItsRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, took = 900 * time.Millisecond, 20 * time.Millisecond
		began, silent := time.Now(), errors.New("no answer")
		answers := []error{nil, silent, nil}
		held := NewHeld(7, func(context.Context) error { return nil })
		Watch(held, began, ttl, func(context.Context) (bool, error) {
			err := answers[0]
			answers = answers[1:]
			time.Sleep(took)
			return true, err
		})
		var told, late notes
		held.Follow(told.take)
		time.AfterFunc(ttl*3/4, func() { held.Follow(late.take) })
		time.Sleep(ttl * 9 / 10) // renewed at 300, not at 620, and at 730
		must.Do(t, held.Release(t.Context()))
		time.Sleep(ttl)
		want := []Note{
			{At: began, What: Expires, TTL: ttl},
			{At: began.Add(ttl / 3), Took: took, What: Renewed, TTL: ttl, Left: 589 * time.Millisecond},
			{At: began.Add(ttl*2/3 + took), Took: took, What: NotRenewed, Left: 569 * time.Millisecond, Err: silent},
			{At: began.Add(ttl*2/3 + ttl/10 + 2*took), Took: took, What: Renewed, TTL: ttl, Left: 459 * time.Millisecond},
		}
		got := told.all()
		must.Be(t, len(got), len(want), "the notes", got)
		for i, n := range got {
			if !n.At.Equal(want[i].At) || n.Took != want[i].Took || n.What != want[i].What || n.TTL != want[i].TTL || n.Left != want[i].Left || !errors.Is(n.Err, want[i].Err) {
				t.Errorf("note %d is %+v, want %+v", i, n, want[i])
			}
		}
		// A renewal that failed prolongs nothing.
		if got := late.all(); len(got) == 0 || !got[0].At.Equal(want[1].At) {
			t.Errorf("after a renewal that failed it told %+v, want the expiry after the one before", got)
		}
	})
}

// A lease that is not renewed has an expiry as well, and one that never ends has none.
func TestALeaseTellsItsExpiryWhereItHasOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		giveUp := func(context.Context) error { return nil }
		endless, ends := NewHeld(7, giveUp), NewHeld(8, giveUp)
		Expire(ends, time.Now(), time.Second)
		var none, one notes
		endless.Follow(none.take)
		ends.Follow(one.take)
		should.Equal(t, none.all(), nil, "a lease without an expiry told")
		if got := one.all(); len(got) != 1 || got[0] != (Note{At: time.Now(), What: Expires, TTL: time.Second}) {
			t.Errorf("told %+v, want the expiry in a second", got)
		}
	})
}

func TestAVoteIsToldAsItWasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, silent := time.Now(), errors.New("no answer")
		time.Sleep(time.Second)
		var told notes
		ctx := WithNotes(t.Context(), told.take)
		TellVote(ctx, 1, asked, true, nil)
		TellVote(ctx, 2, asked, false, nil)
		TellVote(ctx, 5, asked, false, silent)
		want := []Note{
			{At: asked, Took: time.Second, What: VotedFor, By: "1"},
			{At: asked, Took: time.Second, What: VotedAgainst, By: "2"},
			{At: asked, Took: time.Second, What: NoVote, By: "5", Err: silent},
		}
		should.Equal(t, told.all(), want, "told")
	})
}

// A lease that joined another is renewed with it. What is followed late has the expiry as it is.
func TestALeaseThatJoinedTellsTheRenewalsOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Second
		began := time.Now()
		held := NewHeld(7, func(context.Context) error { return nil })
		Watch(held, began, ttl, func(context.Context) (bool, error) { return true, nil })
		r := NewReentrant(grants{held})
		ctx := WithOwner(t.Context(), "one")
		joined := must.Get(r.Acquire(ctx, "n"))(t)
		time.Sleep(ttl / 2) // renewed at a third
		var told notes
		second, ok := joined.(*Held)
		if !ok {
			t.Fatalf("it is a %T", joined)
		}
		second.Follow(told.take)
		time.Sleep(ttl / 4)
		must.Do(t, joined.Release(ctx))
		if got := told.all(); len(got) != 2 || !got[0].At.Equal(began.Add(ttl/3)) || got[1].What != Renewed {
			t.Errorf("told %+v, want the expiry after the first renewal, and the second", got)
		}
	})
}

// grants is a lock that grants one lease to all.
type grants struct{ lease Lease }

func (g grants) Acquire(context.Context, string) (Lease, error) { return g.lease, nil }

func TestOnlyAContextThatAsksIsTold(t *testing.T) {
	var told notes
	Tell(t.Context(), Note{What: Woken})
	Tell(WithNotes(t.Context(), told.take), Note{What: Placed, Key: "k"})
	if got := told.all(); len(got) != 1 || got[0].Key != "k" {
		t.Errorf("told %+v", got)
	}
}

// What is not given has a default: the clock of the machine, and no tokens.
func TestWhatIsNotGivenHasADefault(t *testing.T) {
	fixed, broken := time.Unix(1, 0), errors.New("no token can be issued")
	given := Deps{
		Now:   func() time.Time { return fixed },
		Issue: func(_ context.Context, name string) (uint64, error) { return uint64(len(name)), broken },
	}
	if now := given.Clock()(); !now.Equal(fixed) {
		t.Errorf("the clock that was given shows %s", now)
	}
	if token, err := given.NextToken(t.Context(), "name"); token != 4 || !errors.Is(err, broken) {
		t.Errorf("the token of a counter that was given is %d (%v)", token, err)
	}
	if late := time.Since(Deps{}.Clock()()); late < 0 || late > time.Minute {
		t.Errorf("the clock of the machine is %s late", late)
	}
	if token, err := (Deps{}).NextToken(t.Context(), "name"); token != 0 || err != nil {
		t.Errorf("without a counter the token is %d (%v)", token, err)
	}
}

const (
	most = 50 * time.Millisecond
	// endless is far more tries than any test wants. Without a pause, the clock of a bubble stands still.
	endless = 10_000
)

// tries counts the tries of so many waiters for a name in one replica within a time, in a
// bubble of time.
func tries(t *testing.T, waiters int, within time.Duration) (n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		polls, each := NewPolling(most, nil), make([]int, waiters)
		for i := range waiters {
			go func() {
				waiter := polls.Begin("name")
				defer waiter.End()
				for each[i]++; waiter.Pause(ctx) && each[i] < endless; {
					each[i]++
				}
			}()
		}
		<-ctx.Done()
		synctest.Wait()
		for _, one := range each {
			n += one
		}
		should.Be(t, len(polls.waiting), 0, "waiters that are gone are kept", polls.waiting)
	})
	return n
}

func TestASingleWaiterNoticesSoonThatANameIsFree(t *testing.T) {
	for _, held := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			waiter := NewPolling(most, nil).Begin("name")
			for n := 0; time.Since(begun) < held && n < endless; n++ {
				waiter.Pause(t.Context())
			}
			// A pause is drawn from half to half as long again.
			if late := time.Since(begun) - held; late < 0 || late > 3*held/8+3*soonest/2 {
				t.Errorf("a name that was held for %s was noticed to be free %s late", held, late)
			}
		})
	}
}

func TestALongWaitTriesSeldom(t *testing.T) {
	const minute = time.Minute
	if n, seldom := tries(t, 1, minute), int(minute/most); n > seldom*11/10 || n < seldom*9/10 {
		t.Errorf("%d tries in %s, want about %d", n, minute, seldom)
	}
}

func TestACrowdTriesNoMoreOftenThanWithTheLongestPause(t *testing.T) {
	const crowd, within = 30, time.Second
	baseline := crowd * int(within/most)
	if n := tries(t, crowd, within); n > baseline*13/10 {
		t.Errorf("%d waiters tried %d times in %s, want about %d", crowd, n, within, baseline)
	}
}

func TestWaitersForAnotherNameDoNotCount(t *testing.T) {
	inVain := 0
	polls := NewPolling(most, func() { inVain++ })
	for range 20 {
		polls.Begin("crowded").next()
	}
	should.Be(t, polls.Begin("name").next(), soonest, "the only waiter for a name pauses")
	should.Be(t, inVain, 21, "tries in vain are counted")
}

func TestAPauseGrowsWithTheWaitAndTheSquareOfTheWaiters(t *testing.T) {
	polls := NewPolling(most, nil)
	for _, c := range []struct {
		waiting      int
		waited, want time.Duration
	}{{1, 0, soonest}, {1, 40 * time.Millisecond, 10 * time.Millisecond}, {3, 0, 9 * soonest}, {3, 40 * time.Millisecond, 10 * time.Millisecond}, {8, time.Second, most}} {
		should.Be(t, polls.after(c.waiting, c.waited), c.want, "one of … waiters pauses after", c.waiting, c.waited)
	}
}

func TestNoPauseIsLongerThanLockRetry(t *testing.T) {
	polls := NewPolling(most, nil)
	for _, waiting := range []int{1, 2, 7, 8, 1_000_000, 4_000_000, 1 << 62} {
		for _, waited := range []time.Duration{0, time.Second, 1000 * time.Hour} {
			if pause := polls.after(waiting, waited); pause < soonest || pause > most {
				t.Errorf("one of %d waiters pauses after %s for %s, want %s to %s", waiting, waited, pause, soonest, most)
			}
		}
	}
}
