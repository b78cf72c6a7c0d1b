package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// survivesACrash has a process hold the name, which no other process gets, and kills it.
func survivesACrash(t *testing.T, s *subject) {
	holder, next, name := s.process(t), s.replica(t), unique()
	holder.must(t, order{Do: doAcquire, Name: name})
	should.Be(t, !isFree(t, next, name), s.lock.Guarantees.ExclusiveAcrossReplicas, "a process keeps the others out")
	holder.kill()
	limit := s.site.at.TTL + time.Second
	if !s.lock.Guarantees.SurvivesCrash {
		if isFreeWithin(t, next, name, limit) {
			t.Error("does not guarantee SurvivesCrash, and survived one")
		}
		return
	}
	Release(t, HoldWithin(t, next, name, limit))
	s.assertClean(t, name)
}

// dropsADeadWaiter kills a process that waits: later waiters must not wait for it.
func dropsADeadWaiter(t *testing.T, s *subject) {
	holder, behind, dead, name := s.replica(t), s.replica(t), s.process(t), unique()
	lease := Hold(t, holder, name)
	before := len(s.traces(t, name))
	dead.send(t, order{Do: doAcquire, Name: name})
	s.awaitWaiter(t, name, before, aWhile)
	traces := len(s.traces(t, name))
	got := HoldLater(t.Context(), behind, name)
	s.awaitWaiter(t, name, traces, 0)
	dead.kill()
	Release(t, lease)
	released := time.Now()
	lease = got.Within(t, 3*patience)
	if waited := time.Since(released); waited > s.site.at.TTL+time.Second {
		t.Errorf("a dead waiter delayed the one behind it by %s", waited)
	}
	Release(t, lease)
	s.assertClean(t, name)
}

// downFor is how long a server stays away.
const downFor = 200 * time.Millisecond

// restart kills the servers of a site, and starts them again on the same data.
func (s *site) restart(t *testing.T) {
	t.Helper()
	for _, one := range s.servers {
		must.Do(t, one.Kill(t.Context()))
	}
	time.Sleep(downFor)
	for _, one := range s.servers {
		must.Do(t, one.Restart(t.Context()))
	}
}

// outlivesARestartWhileWaiting restarts the backend during a wait, which ends with the name
// or with an error that names the backend.
func outlivesARestartWhileWaiting(t *testing.T, s *subject) {
	own := s.own(t)
	holder, waiter, name := s.replicaAt(t, own.at, nil).connected(t), s.replicaAt(t, own.at, nil).connected(t), unique()
	lease := Hold(t, holder, name)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	got := HoldLater(ctx, waiter, name)
	time.Sleep(aWhile)
	own.restart(t)
	_ = lease.Release(within(t)) // it may be lost, or the backend still down
	<-got.Done
	if got.Err != nil {
		s.assertNamed(t, got.Err)
		got.Lease = s.recover(t, waiter, name, patience)
	}
	Release(t, got.Lease)
}

// outlivesARestartWhileHolding restarts the backend under a holder: it still holds the name,
// alone, or it is notified within the TTL.
func outlivesARestartWhileHolding(t *testing.T, s *subject) {
	own := s.own(t)
	holder, other, name := s.replicaAt(t, own.at, nil).connected(t), s.replicaAt(t, own.at, nil).connected(t), unique()
	lease := Hold(t, holder, name)
	own.restart(t)
	Release(t, s.recover(t, other, unique(), patience)) // the backend is back
	taken := isFreeWithin(t, other, name, s.site.at.TTL/2)
	if !s.lock.Guarantees.SignalsLoss {
		_ = lease.Release(within(t))
		return
	}
	if taken && !endsWithin(lease, s.site.at.TTL+grace) {
		t.Error("the name was granted to another after a restart, and its holder was not notified within the TTL")
	}
	lost := errors.Is(context.Cause(lease.Context()), lock.ErrLost)
	switch err := lease.Release(within(t)); {
	case lost && !errors.Is(err, lock.ErrLost):
		t.Errorf("released after the loss with %v, want %v", err, lock.ErrLost)
	case !lost && err != nil && !errors.Is(err, lock.ErrLost):
		t.Errorf("released after a restart with %v, want nil or %v", err, lock.ErrLost)
	}
	next := s.recover(t, holder, name, patience)
	if s.lock.Guarantees.Fences && next.Token() <= lease.Token() {
		t.Errorf("after a restart, token %d came after %d", next.Token(), lease.Token())
	}
	Release(t, next)
}
