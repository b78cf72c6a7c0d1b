package failpoint_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lock"
)

// talkative is a lock that tells what it does, with leases that end after so long; 0: never.
type talkative struct {
	began time.Time
	ttl   time.Duration
	later func(lock.Note) // of the last lease
}

func (l *talkative) Acquire(ctx context.Context, _ string) (lock.Lease, error) {
	lock.Tell(ctx, lock.Note{At: l.began, Took: time.Millisecond, What: lock.NoVote, By: "5", Err: context.DeadlineExceeded})
	lock.Tell(ctx, lock.Note{At: l.began, What: lock.Woken, By: lock.ByWatch})
	lock.Tell(ctx, lock.Note{At: l.began, What: lock.Placed, Key: "node-7"})
	held := lock.NewHeld(7, func(context.Context) error { return nil })
	held.ExpiresAfter(l.began, l.ttl)
	l.later = func(n lock.Note) { lock.Tell(ctx, n) }
	return held, nil
}

func TestWhatALockTellsIsRecordedWithItsLease(t *testing.T) {
	lab, path := open(t)
	began := time.Now().Add(-time.Second).Round(0)
	l := &talkative{began: began, ttl: time.Minute}
	recorded := lab.Record("redlock", l)
	if _, err := recorded.Acquire(t.Context(), "goods/1"); err != nil {
		t.Fatal(err)
	}
	l.later(lock.Note{At: began, What: lock.Renewed, TTL: time.Hour, Left: time.Second, Took: time.Minute})
	l.ttl = 0
	if _, err := recorded.Acquire(t.Context(), "goods/2"); err != nil {
		t.Fatal(err)
	}
	h := read(t, path)
	if len(h.Leases) != 2 {
		t.Fatalf("leases are %+v, want two", h.Leases)
	}
	first, second := h.Leases[0], h.Leases[1]
	if first.Key != "node-7" || first.TTL != time.Minute || !first.Expires.Equal(began.Add(time.Minute)) {
		t.Errorf("the lease has key %q, TTL %s and expires at %s, want node-7, 1m0s and %s", first.Key, first.TTL, first.Expires, began.Add(time.Minute))
	}
	if n := first.Notes; len(n) != 3 || n[0].What != history.NoVote || n[0].By != "5" || n[0].Error == "" || n[1].By != lock.ByWatch || n[2].What != history.Renewed {
		t.Errorf("notes are %+v, want a vote that did not come, a wake-up and a renewal", n)
	}
	if n := first.Notes; n[0].Took != time.Millisecond || n[2].TTL != time.Hour || n[2].Left != time.Second || n[2].Took != time.Minute || !n[2].At.Equal(began) {
		t.Errorf("notes are %+v, want the times that the lock has told", n)
	}
	if first.Holder != "replica-1" || first.Lock != "redlock" || first.Notes[2].Holder != first.Holder || first.Notes[2].Lock != first.Lock {
		t.Errorf("the lease is %+v, want one of replica-1 and redlock, and so its notes", first)
	}
	if content, err := os.ReadFile(path); err != nil || strings.Count(string(content), "left_ns") != 2 {
		t.Errorf("the record (%v) does not tell once what is left of a lease, and once of its renewal:\n%s", err, content)
	}
	if second.TTL != 0 || !second.Expires.IsZero() {
		t.Errorf("the lease that does not end by itself has TTL %s and expires at %s", second.TTL, second.Expires)
	}
}
