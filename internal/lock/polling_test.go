package lock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/should"
)

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
