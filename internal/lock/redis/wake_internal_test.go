package redis

import (
	"slices"
	"testing"
)

// A message wakes the waiter of its id, or the first where it has none; a connection that was
// made anew wakes all, because messages may have been lost before.
func TestAMessageWakesTheWaiterThatItNames(t *testing.T) {
	for name, c := range map[string]struct {
		rouse func(*wakeups)
		want  []string
	}{
		"to any":     {func(w *wakeups) { w.deliver("channel", "") }, []string{"first"}},
		"to one":     {func(w *wakeups) { w.deliver("channel", "second") }, []string{"second"}},
		"to another": {func(w *wakeups) { w.deliver("channel", "gone") }, nil},
		"to all":     {(*wakeups).rouseAll, []string{"first", "second", "third"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWakeups(nil, "")
			if err := w.Close(); err != nil { // from now on it subscribes to nothing
				t.Fatal(err)
			}
			all := []*sleeper{w.enter("channel", "first"), w.enter("channel", "second"), w.enter("other", "third")}
			c.rouse(w)
			var woken []string
			for _, s := range all {
				if len(s.wake) > 0 {
					woken = append(woken, s.id)
				}
			}
			if !slices.Equal(woken, c.want) {
				t.Errorf("woken: %q, want %q", woken, c.want)
			}
		})
	}
}

// A waiter that was woken and leaves without looking hands its wake-up on, to the next of
// its channel and to no other.
func TestAWakeUpThatIsNotUsedIsTheNextWaiters(t *testing.T) {
	woken := func(s *sleeper) bool { return len(s.wake) > 0 }
	for _, rouse := range []func(*wakeups){
		func(w *wakeups) { w.deliver("channel", "") },
		func(w *wakeups) { w.deliver("channel", "first") },
	} {
		w := newWakeups(nil, "")
		w.closed = true // it subscribes to nothing
		first, second, third, other := w.enter("channel", "first"), w.enter("channel", "second"), w.enter("channel", "third"), w.enter("other", "other")
		rouse(w)
		w.leave("channel", first)
		if !woken(second) || woken(third) || woken(other) {
			t.Fatalf("woken: the second %v, the third %v, another channel's %v; want the second alone", woken(second), woken(third), woken(other))
		}
		w.leave("channel", third) // nothing woke it
		<-second.wake
		w.leave("channel", second)
		w.leave("other", other)
		if woken(other) || len(w.waiting) != 0 {
			t.Errorf("another channel's is woken: %v; %d channels are remembered", woken(other), len(w.waiting))
		}
	}
}
