package locktest

import (
	"testing"
	"time"
)

// survivesACrash kills the process that holds a name.
func survivesACrash(t *testing.T, s *subject) {
	holder, next, name := s.process(t), s.replica(t), unique()
	holder.must(t, order{Do: doAcquire, Name: name})
	holder.kill()
	limit := s.site.at.TTL + time.Second
	if !s.lock.Guarantees.SurvivesCrash {
		if isFreeWithin(t, next, name, limit) {
			t.Error("does not guarantee SurvivesCrash, and survived one")
		}
		return
	}
	release(t, acquireWithin(t, next, name, limit))
	s.assertClean(t, name)
}

// dropsADeadWaiter kills a process that waits: later waiters must not wait for it.
func dropsADeadWaiter(t *testing.T, s *subject) {
	holder, behind, dead, name := s.replica(t), s.replica(t), s.process(t), unique()
	lease := acquire(t, holder, name)
	before := len(s.traces(t, name))
	dead.send(t, order{Do: doAcquire, Name: name})
	if s.lock.Guarantees.Fair {
		s.awaitTraces(t, name, before+1)
	} else {
		time.Sleep(aWhile)
	}
	got := make(chan error, 1)
	traces := len(s.traces(t, name))
	go func() { got <- holdOnce(t.Context(), behind, name) }()
	if s.lock.Guarantees.Fair {
		s.awaitTraces(t, name, traces+1)
	}
	dead.kill()
	release(t, lease)
	released := time.Now()
	if err := <-got; err != nil {
		t.Errorf("the waiter behind a dead one: %v", err)
	}
	if waited := time.Since(released); waited > s.site.at.TTL+time.Second {
		t.Errorf("a dead waiter delayed the one behind it by %s", waited)
	}
	s.assertClean(t, name)
}
