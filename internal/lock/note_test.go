package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

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
		if err := held.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl)
		want := []Note{
			{At: began, What: Expires, TTL: ttl},
			{At: began.Add(ttl / 3), Took: took, What: Renewed, TTL: ttl, Left: 589 * time.Millisecond},
			{At: began.Add(ttl*2/3 + took), Took: took, What: NotRenewed, Left: 569 * time.Millisecond, Err: silent},
			{At: began.Add(ttl*2/3 + ttl/10 + 2*took), Took: took, What: Renewed, TTL: ttl, Left: 459 * time.Millisecond},
		}
		got := told.all()
		if len(got) != len(want) {
			t.Fatalf("%d notes, want %d: %+v", len(got), len(want), got)
		}
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
		if got := none.all(); len(got) != 0 {
			t.Errorf("a lease without an expiry told %+v", got)
		}
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
		if got := told.all(); !slices.Equal(got, want) {
			t.Errorf("told %+v, want %+v", got, want)
		}
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
		joined, err := r.Acquire(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 2) // renewed at a third
		var told notes
		second, ok := joined.(*Held)
		if !ok {
			t.Fatalf("it is a %T", joined)
		}
		second.Follow(told.take)
		time.Sleep(ttl / 4)
		if err := joined.Release(ctx); err != nil {
			t.Fatal(err)
		}
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
