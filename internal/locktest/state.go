package locktest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
)

// showsItsState tests the State itself, which other topics trust.
func showsItsState(t *testing.T, s *subject) {
	l, name := s.replica(t), unique()
	if free := s.traces(t, name); len(free) > 0 {
		t.Errorf("State.Traces finds %q of a name that was never taken", free)
	}
	lease := acquire(t, l, name)
	if len(s.traces(t, name)) == 0 {
		t.Fatal("State.Traces finds nothing of a name that is held: does it look where the lock keeps it?")
	}
	s.take(t, name)
	_ = lease.Release(within(t)) // lost, which is not this topic
	release(t, acquire(t, s.replica(t), name))
}

// traces lists what the backend keeps because of a name.
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
