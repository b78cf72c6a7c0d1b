package locktest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// Family lists the locks of a family.
func Family(family string, state func(lock string, c *backend.Clients) State) (all []Lock) {
	for _, entry := range registry.Family(family) {
		all = append(all, Lock{Entry: entry, State: func(c *backend.Clients) State { return state(entry.Name, c) }})
	}
	return all
}

// Hold takes a name that is free, or becomes free soon.
func Hold(t *testing.T, l lock.Locker, name string) lock.Lease {
	t.Helper()
	return HoldWithin(t, l, name, patience)
}

// HoldWithin takes a name that is free by then.
func HoldWithin(t *testing.T, l lock.Locker, name string, limit time.Duration) lock.Lease {
	t.Helper()
	return holdUntil(t.Context(), t, l, name, limit)
}

// HoldUnder is Hold for the owner, or the listener, that a context names.
func HoldUnder(ctx context.Context, t *testing.T, l lock.Locker, name string) lock.Lease {
	t.Helper()
	return holdUntil(ctx, t, l, name, patience)
}

func holdUntil(parent context.Context, t *testing.T, l lock.Locker, name string, limit time.Duration) lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	lease, err := attempt(ctx, t, l, name, lateInACrowd)
	if err != nil {
		t.Fatalf("not acquired within %s: %v", limit, err)
	}
	return lease
}

// Release gives a name back, which must not fail.
func Release(t *testing.T, lease lock.Lease) {
	t.Helper()
	should.Be(t, lease.Release(within(t)), nil, "release")
}

// Later is an Acquire under way. Lease and Err may be read when it is done.
type Later struct {
	Lease lock.Lease
	Err   error
	Done  chan struct{}
}

// HoldLater begins an Acquire.
func HoldLater(ctx context.Context, l lock.Locker, name string) *Later {
	w := &Later{Done: make(chan struct{})}
	go func() {
		defer close(w.Done)
		w.Lease, w.Err = l.Acquire(ctx, name)
	}()
	return w
}

// Within is the lease, which must be granted in time.
func (w *Later) Within(t *testing.T, limit time.Duration) lock.Lease {
	t.Helper()
	must.Do(t, w.end(t, limit))
	return w.Lease
}

// Fails is the error of an Acquire that is to end, and is granted nothing.
func (w *Later) Fails(t *testing.T) error {
	t.Helper()
	err := w.end(t, patience)
	should.Be(t, w.Lease != nil, false, "an Acquire that was to fail is granted the name")
	return err
}

func (w *Later) end(t *testing.T, limit time.Duration) error {
	t.Helper()
	select {
	case <-w.Done:
		return w.Err
	case <-time.After(limit):
		t.Fatalf("the Acquire has not ended within %s", limit)
		return nil
	}
}

// IsDone reports whether it has ended.
func (w *Later) IsDone() bool {
	select {
	case <-w.Done:
		return true
	default:
		return false
	}
}

// Notes collects what locks tell.
type Notes struct {
	mu   sync.Mutex
	list []lock.Note
}

// Take takes a note.
func (n *Notes) Take(one lock.Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, one)
}

// All are those that were told so far.
func (n *Notes) All() []lock.Note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

// Count counts those of a kind that name a waker or a key.
func (n *Notes) Count(kind lock.NoteKind, by string) (count int) {
	for _, one := range n.All() {
		if one.What == kind && by == one.By+one.Key {
			count++
		}
	}
	return count
}
