package locktest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// patience bounds what must happen, and says nothing of how fast.
	patience = 10 * time.Second
	// soon is how late something may come on a busy machine.
	soon = time.Second
	// lateInACrowd is how late something may come while hundreds wait.
	lateInACrowd = 4 * soon
	// grace is how much later than its TTL a loss may be signalled there.
	grace = 500 * time.Millisecond
	// aWhile is how long something is watched that must not happen.
	aWhile = 150 * time.Millisecond
)

// replica is a replica like any other, closed with the test.
func (s *subject) replica(t *testing.T) *replica {
	t.Helper()
	return s.replicaAt(t, s.site.at, nil).connected(t)
}

func (s *subject) replicaAt(t *testing.T, at addresses, floor func(context.Context, string) (uint64, error)) *replica {
	t.Helper()
	r := must.Get(at.open(s.lock.Entry, floor))(t)
	t.Cleanup(func() { closed(t, r) })
	return r
}

func unique() string { return "test-" + rand.Text() }

// within is a context that bounds one call.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// attempt is an Acquire whose context ends while it waits. One that goes on for longer than
// late after that fails the test as such: what it answers in the end, on connections that may be
// closed by then, would only mislead.
func attempt(ctx context.Context, t *testing.T, l lock.Locker, name string, late time.Duration) (lease lock.Lease, err error) {
	t.Helper()
	asked := HoldLater(ctx, l, name)
	select {
	case <-asked.Done:
		return asked.Lease, asked.Err
	case <-ctx.Done():
	}
	select {
	case <-asked.Done:
		return asked.Lease, asked.Err
	case <-time.After(late):
		t.Fatalf("Acquire goes on %s after the end of its context (%v): a pause or a request of it ignores ctx", late, context.Cause(ctx))
		return nil, nil
	}
}

// isFree reports whether a client can take a name within a while. It gives the name back.
func isFree(t *testing.T, l lock.Locker, name string) bool {
	t.Helper()
	return isFreeWithin(t, l, name, aWhile)
}

func isFreeWithin(t *testing.T, l lock.Locker, name string, limit time.Duration) bool {
	t.Helper()
	return isGranted(t.Context(), t, l, name, limit)
}

// isGranted is isFreeWithin for an owner that the context names. A backend that was too
// slow to answer has not granted the name.
func isGranted(owner context.Context, t *testing.T, l lock.Locker, name string, limit time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(owner, limit)
	defer cancel()
	lease, err := attempt(ctx, t, l, name, lateInACrowd)
	if err != nil {
		if !errors.Is(err, stock.ErrBackendUnavailable) {
			assertGaveUp(t, err, context.DeadlineExceeded)
		}
		return false
	}
	_ = lease.Release(within(t)) // whether it was lost meanwhile is another topic
	return true
}

// assertHeld requires that a lease lasts, and that no other client gets its name.
func assertHeld(t *testing.T, lease lock.Lease, others lock.Locker, name string) {
	t.Helper()
	if isFree(t, others, name) {
		t.Error("a name that is held was granted to another")
	}
	should.Be(t, context.Cause(lease.Context()), nil, "a lease that was not released ended")
}

// assertGaveUp requires that an error reports the end of the wait, and no failure of the
// backend.
func assertGaveUp(t *testing.T, err, cause error) {
	t.Helper()
	if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, cause) {
		t.Errorf("gave up with %v, want %v and %v", err, lock.ErrNotAcquired, cause)
	}
	if errors.Is(err, stock.ErrBackendUnavailable) {
		t.Errorf("gave up with %v, which blames the backend for the end of the wait", err)
	}
}

// assertLost requires that a lease has ended because the backend took it.
func assertLost(t *testing.T, lease lock.Lease) {
	t.Helper()
	should.Fail(t, context.Cause(lease.Context()), lock.ErrLost, "a lease that was lost ended with")
}

// assertReleaseLost requires that a lease that was lost says so when it is released.
func assertReleaseLost(t *testing.T, lease lock.Lease) {
	t.Helper()
	should.Fail(t, lease.Release(within(t)), lock.ErrLost, "released after the loss with")
}

func closed(t *testing.T, what io.Closer) {
	t.Helper()
	should.Do(t, what.Close())
}

// showsItsState tests the State itself, which other topics trust.
func showsItsState(t *testing.T, s *subject) {
	l, name := s.replica(t), unique()
	if free := s.traces(t, name); len(free) > 0 {
		t.Errorf("State.Traces finds %q of a name that was never taken", free)
	}
	lease := Hold(t, l, name)
	if len(s.traces(t, name)) == 0 {
		t.Fatal("State.Traces finds nothing of a name that is held: does it look where the lock keeps it?")
	}
	s.take(t, name)
	_ = lease.Release(within(t)) // lost, which is not this topic
	Release(t, Hold(t, s.replica(t), name))
}

func (s *subject) traces(t *testing.T, name string) []string {
	t.Helper()
	// It is called at the end of a test as well, when the context of that has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	traces, err := s.state.Traces(ctx, name)
	if err != nil {
		t.Fatalf("State.Traces: %v", err)
	}
	return traces
}

// take takes a name that has no waiters away from its holder.
func (s *subject) take(t *testing.T, name string) {
	t.Helper()
	if err := s.state.Break(within(t), name); err != nil {
		t.Fatalf("State.Break: %v", err)
	}
	var left []string
	if !labtest.Eventually(s.site.at.TTL/2, func() bool { left = s.traces(t, name); return len(left) == 0 }) {
		t.Fatalf("State.Break left %q of a name without waiters", left)
	}
}

// assertClean requires that the backend keeps nothing because of a name.
func (s *subject) assertClean(t *testing.T, name string) {
	t.Helper()
	s.assertTraces(t, name, 0, s.site.at.TTL)
}

// assertTraces requires that no more traces than n are left, sooner than any of them could
// have expired with a TTL.
func (s *subject) assertTraces(t *testing.T, name string, n int, ttl time.Duration) {
	t.Helper()
	var left []string
	if !labtest.Eventually(ttl/2, func() bool { left = s.traces(t, name); return len(left) <= n }) {
		t.Errorf("the backend keeps %d traces of a name, want at most %d:\n%s", len(left), n, strings.Join(left, "\n"))
	}
}

// awaitTraces waits until the backend shows so many traces of a name: that is how a test
// knows that an Acquire waits in the queue.
func (s *subject) awaitTraces(t *testing.T, name string, n int) {
	t.Helper()
	var left []string
	if !labtest.Eventually(patience, func() bool { left = s.traces(t, name); return len(left) >= n }) {
		t.Fatalf("the backend shows %d traces of a name, want %d:\n%s", len(left), n, strings.Join(left, "\n"))
	}
}

// awaitWaiter waits until the Acquire that began last waits, with so many traces before it. A lock that is not fair
// may show none of it.
func (s *subject) awaitWaiter(t *testing.T, name string, before int, otherwise time.Duration) {
	t.Helper()
	if s.lock.Guarantees.Fair {
		s.awaitTraces(t, name, before+1)
	} else {
		time.Sleep(otherwise)
	}
}

// Each topic runs under a label, which the runtime hands on to every goroutine
// that is started because of it: so the goroutines of one topic can be counted
// while other topics run.
const label = "topic"

func labelOf(t *testing.T) pprof.LabelSet { return pprof.Labels(label, t.Name()) }

// lasting reports goroutines of a pool of connections: they stay for the next user of a
// connection.
func lasting(record string) bool {
	return strings.Contains(record, "mysql.(*mysqlConn).startWatcher") || strings.Contains(record, "sql.(*DB).connectionCleaner")
}

// goroutines counts the goroutines of a test, and describes them.
func goroutines(t *testing.T) (n int, stacks string) {
	t.Helper()
	var profile bytes.Buffer
	must.Do(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
	mine := fmt.Sprintf("%q:%q", label, t.Name())
	var found strings.Builder
	_, records, _ := strings.Cut(profile.String(), "\n") // after the total
	for record := range strings.SplitSeq(records, "\n\n") {
		if !strings.Contains(record, mine) || lasting(record) {
			continue
		}
		count, err := strconv.Atoi(strings.Fields(record)[0])
		if err != nil {
			t.Fatalf("a record of the profile is not understood: %s", record)
		}
		n += count
		found.WriteString(record + "\n\n")
	}
	return n, found.String()
}

// settled counts the goroutines of a test when none has come or gone for a while:
// what a client starts for itself takes its time.
func settled(t *testing.T) (n int) {
	t.Helper()
	since := time.Now()
	labtest.Eventually(patience, func() bool {
		now, _ := goroutines(t)
		if now != n {
			n, since = now, time.Now()
		}
		return time.Since(since) > aWhile
	})
	return n
}

// assertNoMoreGoroutines finds that there are as many goroutines of a test as
// there were before: none is left when it is over, with all of its clients closed.
func assertNoMoreGoroutines(t *testing.T, before int) {
	t.Helper()
	now := 0
	var stacks string
	if !labtest.Eventually(patience, func() bool { now, stacks = goroutines(t); return now <= before }) {
		t.Errorf("%d goroutines, and %d before:\n%s", now, before, stacks)
	}
}
