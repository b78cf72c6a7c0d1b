package locktest

import (
	"context"
	"testing"
)

// fences proves that tokens grow strictly, from hold to hold, replica to replica
// and client to client; or that there are none.
//
//contract:lock.Guarantees Fences:
//contract:lock.Lease Token grows strictly
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

// ahead is by how much the tokens that the store has seen may exceed those of the backend.
const ahead = 1_000_000_000_000

// fencesAfterDataLoss makes the backend forget every name and every counter, and
// its scripts: tokens go on above those that were given, and above what the
// store has seen.
//
//contract:lock.Lease Token grows strictly
//contract:docs/locks A Redis that has lost
func fencesAfterDataLoss(t *testing.T, s *subject) {
	own := s.own(t)
	distances := []uint64{0, ahead}
	if own.at.Driver != "" {
		distances = []uint64{0} // the tokens are a database's, which loses nothing
	}
	var seen uint64
	floor := func(context.Context, string) (uint64, error) { return seen, nil }
	l, name := s.replicaAt(t, own.at, floor).connected(t), unique()
	for _, distance := range distances {
		lease := acquire(t, l, name)
		if s.lock.Guarantees.Fences && lease.Token() == 0 {
			t.Fatal("there is no token")
		}
		release(t, lease)
		seen = lease.Token() + distance
		own.forget(t)
		lease = acquire(t, l, name)
		if token := lease.Token(); s.lock.Guarantees.Fences && token <= seen {
			t.Errorf("after the data were lost, token %d was given, and the store has seen %d", token, seen)
		}
		release(t, lease)
	}
}
