package failpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Record is the lock of a strategy, with its leases written down.
func (l *Registry) Record(strategy string, locker lock.Locker) lock.Locker {
	if l.history == nil {
		return locker
	}
	return recorded{Locker: locker, lab: l, strategy: strategy}
}

// recorded records what a lock grants. A lease counts from when its holder has it to
// when the holder begins its release: two leases that overlap were both held at the
// same time.
type recorded struct {
	lock.Locker

	lab      *Registry
	strategy string
}

// mode is implemented by the two sides of a read-write lock, whose leases are of one lock.
type mode interface {
	Mode() (lock string, shared bool)
}

// Unwrap is the lock itself.
func (r recorded) Unwrap() lock.Locker { return r.Locker }

// Acquire asks the lock.
func (r recorded) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	page := &page{
		lab: r.lab, id: fmt.Sprintf("%s-%d", r.lab.start, r.lab.leases.Add(1)),
		name: name, strategy: r.strategy, request: telemetry.RequestID(ctx),
	}
	if side, ok := r.Locker.(mode); ok {
		page.strategy, page.shared = side.Mode()
	}
	page.write(time.Now(), history.Asked, 0, nil)
	lease, err := r.Locker.Acquire(lock.WithNotes(ctx, page.note), name)
	if err != nil {
		page.write(time.Now(), history.GaveUp, 0, err)
		return nil, err
	}
	granted := time.Now()
	if told, ok := lease.(interface{ Follow(note func(lock.Note)) }); ok {
		told.Follow(page.note)
	}
	page.write(granted, history.Granted, lease.Token(), nil)
	context.AfterFunc(lease.Context(), func() {
		if cause := context.Cause(lease.Context()); errors.Is(cause, lock.ErrLost) {
			page.write(time.Now(), history.Lost, lease.Token(), cause)
		}
	})
	return recordedLease{lease, page}, nil
}

// page is where the events of one lease are written.
type page struct {
	lab                *Registry
	id, name, strategy string
	request            string // the id of the one that asked, or empty
	shared             bool

	mu  sync.Mutex
	key string    // what stands for the lease in the backend
	end lock.Note // when it expires
}

func (p *page) write(at time.Time, what history.EventKind, token uint64, err error) {
	event := history.Event{
		At: at, ID: p.id, Name: p.name, Request: p.request, Holder: p.lab.replica, Lock: p.strategy, Shared: p.shared && what == history.Asked, What: what, Token: token,
	}
	if err != nil {
		event.Error = err.Error()
	}
	if what == history.Granted {
		p.mu.Lock()
		event.Key, event.TTL = p.key, p.end.TTL
		if event.TTL > 0 {
			event.Left = p.end.At.Add(event.TTL).Sub(at)
		}
		p.mu.Unlock()
	}
	p.lab.write(history.Line{Lease: &event})
}

// note writes down what the lock itself tells. What belongs to the grant is written with it.
func (p *page) note(n lock.Note) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch n.What {
	case lock.Placed:
		p.key = n.Key
		return
	case lock.Expires:
		p.end = n
		return
	default:
	}
	event := history.Event{
		At: n.At, ID: p.id, Name: p.name, Holder: p.lab.replica, Lock: p.strategy, What: history.EventKind(n.What),
		Took: n.Took, TTL: n.TTL, Left: n.Left, By: n.By,
	}
	if n.Err != nil {
		event.Error = n.Err.Error()
	}
	p.lab.write(history.Line{Lease: &event})
}

type recordedLease struct {
	lock.Lease

	page *page
}

// Release gives the name back. What is written is when that began.
func (r recordedLease) Release(ctx context.Context) error {
	ctx, step := telemetry.StartSpan(ctx, releaseStep)
	defer step.End()
	began := time.Now()
	err := r.Lease.Release(ctx)
	r.page.write(began, history.Released, r.Token(), err)
	return err
}
