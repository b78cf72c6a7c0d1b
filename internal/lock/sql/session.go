package sql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// sessionLock is a lock that the server ties to a connection: each waiter and each holder
// has one of its own. The server frees the name when the connection ends.
//
// One connection of the pool is never given to them: it is for renewals, releases and
// tokens. So a pool that is full of waiters does not block the holder that they wait for.
// Without a free connection an Acquire waits as for the name itself.
type sessionLock struct {
	*base
	// take waits for the name for a slice of time.
	take func(ctx context.Context, conn *sql.Conn, name string) (won bool, err error)
	// count issues the token of a name that was taken.
	count func(ctx context.Context, conn *sql.Conn, name string) (token uint64, err error)
	// free gives the name back, if it is the connection's.
	free func(ctx context.Context, conn *sql.Conn, name string) (was bool, err error)
}

// Acquire waits for a connection and then, by it, for the name.
func (l *sessionLock) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	s, err := l.open(ctx, name)
	if err != nil {
		return nil, lock.NotAcquired(ctx, l.deps.Dialect, err)
	}
	if err := s.await(ctx); err != nil {
		return nil, lock.NotAcquired(ctx, l.deps.Dialect, err)
	}
	token, err := l.count(ctx, s.conn, name)
	lease := lock.NewHeld(token, s.release)
	if err != nil {
		lock.TakeBack(ctx, lease.Release)
		return nil, lock.NotAcquired(ctx, l.deps.Dialect, err)
	}
	// The grant may be old: a process that was stopped reads it when it goes on.
	// Only a question asked now shows that the connection is alive.
	asked := time.Now()
	if err := answered(ctx, s.conn.PingContext); err != nil {
		s.discard()
		return nil, lock.NotAcquired(ctx, l.deps.Dialect, err)
	}
	context.AfterFunc(lease.Context(), s.discard)
	lock.Watch(lease, asked, l.deps.TTL, s.ping)
	return lock.Granted(ctx, lease)
}

// session is the connection of one lease, or of a waiter.
type session struct {
	*sessionLock
	name string
	conn *sql.Conn
	id   int64 // by which the server knows the connection

	silence, rowWait int64 // how many seconds the server bore silence, and waited for a row, before

	mu   sync.Mutex // one statement at a time
	over bool       // the connection is not ours any more
}

// open takes a connection of the pool, unless it were the last.
func (l *sessionLock) open(ctx context.Context, name string) (*session, error) {
	for ctx.Err() == nil {
		if !l.spare(2) {
			_ = pause.About(ctx, l.deps.Retry)
			continue
		}
		conn, err := l.conn(ctx)
		if err != nil {
			return nil, err
		}
		if !l.spare(1) { // several came at once
			conn.Close() //nolint:errcheck // it goes back to the pool
			_ = pause.About(ctx, l.deps.Retry)
			continue
		}
		s := &session{sessionLock: l, name: name, conn: conn}
		if err := answered(ctx, s.prepare); err != nil {
			s.discard()
			return nil, err
		}
		return s, nil
	}
	return nil, context.Cause(ctx)
}

// prepare has the server end the connection, and so the lease, after a TTL without a
// statement: a host that has lost its network, or a process that was stopped, does not
// close its connections. And it bounds how long the server waits for a row by a slice,
// whatever the pool has configured.
func (s *session) prepare(ctx context.Context) error {
	err := s.conn.QueryRowContext(ctx, `SELECT CONNECTION_ID(), @@SESSION.wait_timeout, @@SESSION.innodb_lock_wait_timeout`).
		Scan(&s.id, &s.silence, &s.rowWait)
	if err != nil {
		return err
	}
	return s.limit(ctx, int64(math.Ceil(s.deps.TTL.Seconds())), int64(waitSlice.Seconds()))
}

// limit sets how many seconds the server bears the connection's silence, and waits for a row.
func (s *session) limit(ctx context.Context, silence, rowWait int64) error {
	_, err := s.conn.ExecContext(ctx, fmt.Sprintf(`SET SESSION wait_timeout = %d, innodb_lock_wait_timeout = %d`, silence, rowWait))
	return err
}

// await waits for the name, slice by slice, and returns with ctx; what is under
// way then is interrupted and tidied away behind its back.
func (s *session) await(ctx context.Context) error {
	won := make(chan error)
	go func() {
		err := s.interruptible(ctx)
		if err != nil {
			s.tidy(ctx)
		}
		select {
		case won <- err:
		case <-ctx.Done(): // Acquire has returned
			s.tidy(ctx)
		}
	}()
	select {
	case err := <-won:
		if ctx.Err() == nil || !errors.Is(err, errSilent) {
			return err
		}
		// A slice that was cut short says nothing of the server.
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// interruptible waits and, when ctx ends, interrupts itself. What follows on the
// connection is not hit by that.
func (s *session) interruptible(ctx context.Context) error {
	interrupted := make(chan struct{})
	spared := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		s.interrupt(ctx)
	})
	err := s.waits(ctx)
	if !spared() {
		<-interrupted
	}
	return err
}

func (s *session) waits(ctx context.Context) error {
	for ctx.Err() == nil {
		won := false
		err := answered(ctx, func(ctx context.Context) (err error) {
			won, err = s.take(ctx, s.conn, s.name)
			return err
		})
		switch {
		case won:
			return nil
		case s.contended(err):
			_ = pause.About(ctx, s.deps.Retry)
		case err != nil:
			return err
		}
	}
	return context.Cause(ctx)
}

// interrupt ends the slice that is under way, from another connection: to close
// this one would not, the server looks at it only when it has an answer for it.
// Where it fails, the slice ends by itself.
func (s *session) interrupt(ctx context.Context) {
	_ = s.insist(ctx, func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, fmt.Sprintf(`KILL QUERY %d`, s.id))
		return err
	})
}

// ping renews: it shows that the connection is alive, and with it the lease. A
// connection that does not answer is lost for good: there is no second try.
func (s *session) ping(ctx context.Context) (alive bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return true, nil // given back just now, and not lost
	}
	bounded, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return s.conn.PingContext(bounded) == nil, nil
}

// release gives the name back, and the connection to the pool.
func (s *session) release(ctx context.Context) error {
	was, err := s.end(ctx)
	switch {
	case err != nil:
		// It was freed when the connection ended, at an unknown time.
		return fmt.Errorf("%w: %w", lock.ErrLost, err)
	case !was:
		return lock.ErrLost
	default:
		return nil
	}
}

func (s *session) tidy(ctx context.Context) { _, _ = s.end(ctx) }

// end frees the name and gives the connection back as it came; one that failed,
// or is not as it should be, is closed.
func (s *session) end(ctx context.Context) (was bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false, nil
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if was, err = s.free(own, s.conn, s.name); err != nil {
		s.drop()
		return false, err
	}
	if err := s.limit(own, s.silence, s.rowWait); err != nil {
		s.drop()
		return was, nil // the name was given back, and that was the question
	}
	s.over = true
	return was, s.conn.Close()
}

// discard closes the connection, if it is ours still.
func (s *session) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.drop()
	}
}

// drop closes the connection for good: the pool must not hand out one that may
// hold a name.
func (s *session) drop() {
	s.over = true
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}
