package locktest

import (
	"testing"
	"time"
)

// survivesACrash kills the process that holds a name.
func survivesACrash(t *testing.T, s *subject) {
	holder, next, name := s.process(t), s.replica(t), unique()
	holder.obeys(t, order{Do: doAcquire, Name: name})
	holder.kill()
	limit := s.site.ttl() + time.Second
	if !s.entry.Guarantees.SurvivesCrash {
		if isFreeWithin(t, next, name, limit) {
			t.Error("claims not to survive a crash, and did")
		}
		return
	}
	release(t, acquireWithin(t, next, name, limit))
	s.assertClean(t, name)
}

// dropsADeadWaiter kills a process that waits: those behind it must not wait for
// it.
func dropsADeadWaiter(t *testing.T, s *subject) {
	holder, behind, dead, name := s.replica(t), s.replica(t), s.process(t), unique()
	lease := acquire(t, holder, name)
	before := len(s.site.litter(t, name))
	dead.send(t, order{Do: doAcquire, Name: name})
	if s.entry.Guarantees.Fair {
		s.awaitLitter(t, name, before+1)
	} else {
		time.Sleep(aWhile)
	}
	got := make(chan error, 1)
	traces := len(s.site.litter(t, name))
	go func() { got <- serve(t.Context(), behind, name) }()
	if s.entry.Guarantees.Fair {
		s.awaitLitter(t, name, traces+1)
	}
	dead.kill()
	release(t, lease)
	released := time.Now()
	if err := <-got; err != nil {
		t.Errorf("the one behind a dead waiter: %v", err)
	}
	if waited := time.Since(released); waited > s.site.ttl()+time.Second {
		t.Errorf("a dead waiter held up the one behind it for %s", waited)
	}
	s.assertClean(t, name)
}
