// Package etcd has the lock in etcd.
package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Lock queues in etcd behind a lease.
func Lock() lock.Entry {
	return lock.Entry{
		Name:       "etcd",
		Family:     lock.FamilyEtcd,
		Summary:    "a key under the replica's lease, first come first served by create revision; one watch a replica tells whose turn it is",
		Needs:      []backend.Name{backend.Etcd},
		Guarantees: lock.Complete(true),
		New: func(d lock.Deps) lock.Locker {
			return lock.NewReentrant(&locker{client: d.Etcd, prefix: keysOf(d.Clients), ttl: d.TTL})
		},
	}
}

func keysOf(c *backend.Clients) string { return c.KeyPrefix() + "/etcd/" }

// server is how etcd is called in errors.
const server = string(backend.Etcd)

var (
	errAgain  = errors.New("the session or the key is gone")
	errClosed = errors.New("the lock is closed")
)

// locker keeps one session a replica. It begins with the first Acquire of a
// name, and another one begins with the first after it was lost.
type locker struct {
	client *clientv3.Client
	prefix string // of every key
	ttl    time.Duration

	mu      sync.Mutex
	session *session
	closed  bool
	running sync.WaitGroup // the sessions
}

// Acquire queues for the name. Where the session is lost while it waits, its
// place is lost, too, and it queues again under the next session.
func (l *locker) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	for ctx.Err() == nil {
		lease, err := l.try(ctx, name)
		switch {
		case err == nil:
			return lock.Granted(ctx, lease)
		case !errors.Is(err, errAgain):
			return nil, lock.NotAcquired(ctx, server, err)
		}
	}
	return nil, lock.NotAcquired(ctx, server, nil)
}

// try queues under one session.
func (l *locker) try(ctx context.Context, name string) (*lock.Held, error) {
	s, err := l.current()
	if err != nil {
		return nil, err
	}
	err = bounded(ctx, func(ctx context.Context) error {
		select {
		case <-s.ready:
			return s.err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return nil, err
	}
	return s.acquire(ctx, name)
}

// current is the session, or a new one that is being opened.
func (l *locker) current() (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.session == nil || l.session.over() {
		l.session = newSession(l.client, l.prefix, l.ttl)
		l.running.Go(l.session.run)
	}
	return l.session, nil
}

// Close ends the session, and every lease with it. On a server that
// does not answer, the session ends with its TTL.
func (l *locker) Close() error {
	l.mu.Lock()
	l.closed = true
	if l.session != nil {
		l.session.life.Lose()
	}
	l.mu.Unlock()
	l.running.Wait()
	return nil
}

// patience is how long etcd may take to answer a question.
const patience = 1500 * time.Millisecond

// bounded asks one question in the course of a wait. The client itself would
// wait for a server for as long as the context lasts, so that one that is down
// would look like a name that is not free. And it is not cut off with
// ctx, but a little later: an answer that was not read may have been a grant.
func bounded(ctx context.Context, do func(context.Context) error) error {
	own, cancel := backend.Outlasting(ctx, time.Now().Add(patience))
	defer cancel()
	err := do(own)
	switch {
	case err == nil || own.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err() // the caller left early: that says nothing of etcd
	default:
		return backend.ErrUnanswered
	}
}
