package repo

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// A crowd that waits for one item leaves connections to others, and those that wait are
// served in turns.
func TestAnItemUsesNotAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(8)
		const slow, honest = 1, 2
		release := make(chan struct{})
		var using atomic.Int64
		for range 100 {
			go func() {
				should.Do(t, s.take(t.Context(), slow))
				using.Add(1)
				<-release
				s.free(slow)
			}()
		}
		synctest.Wait()
		should.Be(t, using.Load(), 6, "one item uses … connections of 8")
		for range 3 { // one after the other
			must.Do(t, s.take(t.Context(), honest))
			s.free(honest)
		}
		close(release)
		synctest.Wait()
		if s.taken != 0 || len(s.users) != 0 || len(s.turns) != 0 {
			t.Errorf("%d connections, %d users and %d turns are left", s.taken, len(s.users), len(s.turns))
		}
	})
}

func TestWaitingPurchasesAreServedInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(1)
		must.Do(t, s.take(t.Context(), 9))
		var order []int64
		for _, id := range []int64{1, 1, 1, 2, 3, 2} { // in this order
			go func() {
				should.Do(t, s.take(t.Context(), id))
				order = append(order, id) // one at a time
				s.free(id)
			}()
			synctest.Wait()
		}
		s.free(9)
		synctest.Wait()
		want := []int64{1, 2, 3, 1, 2, 1}
		for i := range want {
			if len(order) != len(want) || order[i] != want[i] {
				t.Fatalf("served in the order %v, want %v", order, want)
			}
		}
	})
}

func TestAPurchaseLeavesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(1)
		const user = 1
		must.Do(t, s.take(t.Context(), user))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		should.Fail(t, s.take(ctx, 2), context.DeadlineExceeded)
		s.free(user)
		if s.taken != 0 || len(s.users) != 0 || len(s.turns) != 0 {
			t.Errorf("%d connections, %d users and %d turns are left", s.taken, len(s.users), len(s.turns))
		}
	})
}

// No connection is lost, or given twice, when waiters leave at any time.
func TestSharesAreConserved(t *testing.T) {
	const connections = 5
	s := newShares(connections)
	var using atomic.Int64
	var crowd sync.WaitGroup
	for range 32 {
		crowd.Go(func() {
			for range 300 {
				user := rand.Int64N(12)
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(200*time.Microsecond))
				if s.take(ctx, user) == nil {
					if n := using.Add(1); n > connections {
						t.Errorf("%d connections of %d are used", n, connections)
					}
					time.Sleep(rand.N(50 * time.Microsecond))
					using.Add(-1)
					s.free(user)
				}
				cancel()
			}
		})
	}
	crowd.Wait()
	if s.taken != 0 || len(s.users) != 0 {
		t.Errorf("%d connections and %d users are left", s.taken, len(s.users))
	}
}
