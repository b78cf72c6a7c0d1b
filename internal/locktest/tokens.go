package locktest

import (
	"context"
	"testing"
)

// fences proves that tokens grow strictly, from hold to hold, replica to replica
// and client to client; or that there are none.
func fences(t *testing.T, s *subject) {
	name := unique()
	var last uint64
	const generations = 4
	for range generations {
		replicas := []*replica{s.replica(t), s.replica(t)} // new clients, with new connections
		for i := range s.holds / generations {
			lease := acquire(t, replicas[i%len(replicas)], name)
			token := lease.Token()
			release(t, lease)
			if !s.lock.Guarantees.Fences {
				if token != 0 {
					t.Errorf("does not guarantee Fences, and gave token %d", token)
				}
				return
			}
			if token <= last {
				t.Fatalf("token %d came after %d", token, last)
			}
			last = token
		}
	}
	s.assertClean(t, name)
}

// assertLater requires that the next holder has a later token than one whose lease is over: it may be
// at work still.
func (s *subject) assertLater(t *testing.T, before, next uint64) {
	t.Helper()
	if s.lock.Guarantees.Fences && next <= before {
		t.Errorf("token %d came after %d, whose lease is over and was not released", next, before)
	}
}

// ahead is a token that the store may have seen, far above those of the backend: a counter of
// floating-point numbers would round it down.
const ahead = 1<<60 + 1

// fencesAfterDataLoss makes the backend forget every name and every counter, and
// its scripts: tokens go on above those that were given, and above what the
// store has seen.
func fencesAfterDataLoss(t *testing.T, s *subject) {
	own := s.own(t)
	seenElsewhere := []uint64{0, ahead}
	if own.at.Driver != "" {
		seenElsewhere = []uint64{0} // the tokens are a database's, which loses nothing
	}
	var seen uint64
	floor := func(context.Context, string) (uint64, error) { return seen, nil }
	l, name := s.replicaAt(t, own.at, floor).connected(t), unique()
	for _, token := range seenElsewhere {
		lease := acquire(t, l, name)
		if s.lock.Guarantees.Fences && lease.Token() == 0 {
			t.Fatal("there is no token")
		}
		release(t, lease)
		seen = max(lease.Token(), token)
		own.forget(t)
		lease = acquire(t, l, name)
		if token := lease.Token(); s.lock.Guarantees.Fences && token <= seen {
			t.Errorf("after the data were lost, token %d was given, and the store has seen %d", token, seen)
		}
		release(t, lease)
	}
}
