package failpoint_test

import (
	"context"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lock"
)

// talkative is a lock that tells what it does.
type talkative struct{ began time.Time }

func (l talkative) Acquire(ctx context.Context, _ string) (lock.Lease, error) {
	lock.Tell(ctx, lock.Note{At: l.began, Took: time.Millisecond, What: lock.NoVote, By: "5", Err: context.DeadlineExceeded})
	lock.Tell(ctx, lock.Note{At: l.began, What: lock.Woken, By: lock.ByWatch})
	lock.Tell(ctx, lock.Note{At: l.began, What: lock.Placed, Key: "node-7"})
	held := lock.NewHeld(7, func(context.Context) error { return nil })
	held.ExpiresAfter(l.began, time.Minute)
	return held, nil
}

func TestWhatALockTellsIsRecordedWithItsLease(t *testing.T) {
	lab, path := open(t)
	began := time.Now().Add(-time.Second).Round(0)
	if _, err := lab.Record("redlock", talkative{began}).Acquire(t.Context(), "goods/1"); err != nil {
		t.Fatal(err)
	}
	h := read(t, path)
	if len(h.Leases) != 1 {
		t.Fatalf("leases are %+v, want one", h.Leases)
	}
	l := h.Leases[0]
	if l.Key != "node-7" || l.TTL != time.Minute || !l.Expires.Equal(began.Add(time.Minute)) {
		t.Errorf("the lease has key %q, TTL %s and expires at %s, want node-7, 1m0s and %s", l.Key, l.TTL, l.Expires, began.Add(time.Minute))
	}
	if len(l.Notes) != 2 || l.Notes[0].What != history.NoVote || l.Notes[0].By != "5" || l.Notes[0].Error == "" || l.Notes[1].By != lock.ByWatch {
		t.Errorf("notes are %+v, want a vote that did not come and a wake-up", l.Notes)
	}
}
