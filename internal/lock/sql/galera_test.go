package sql_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/stock"
)

// Of a cluster whose nodes all take writes, a lock that is one server's is granted to a holder on each of
// them. The others exclude the second one, as on one server.
func TestALockOfOneServerExcludesNoHolderOnAnotherNode(t *testing.T) {
	excludeOnAnotherNode(t, lab.Galera(t))
}

func TestALockOfOneServerExcludesNoHolderOnAnotherPrimary(t *testing.T) {
	excludeOnAnotherNode(t, lab.Group(t))
}

func excludeOnAnotherNode(t *testing.T, nodes []*servers.Database) {
	t.Helper()
	labtest.Open(t, nodes[0], "schema")
	for _, entry := range registry.Family(lock.FamilySQL) {
		t.Run(entry.Name, func(t *testing.T) {
			name := "gate/" + lock.NewOwner()
			first := locktest.HoldWithin(t, sqlLock(t, nodes[0], entry.Name), name, 10*time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			second, err := sqlLock(t, nodes[1], entry.Name).Acquire(ctx, name)
			if granted := err == nil; granted != entry.OneServer || !granted && !errors.Is(err, stock.ErrBusy) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("on another node it is answered with %v, %v, and the entry says OneServer: %v", second, err, entry.OneServer)
			}
			for _, lease := range []lock.Lease{second, first} {
				if lease == nil {
					continue
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Contenders on three nodes make the row of a name that is new, and only one of them does. The others
// wait for it: what a node rolls back because another one was faster is no failure.
func TestContendersOnAllNodesMakeANewNameOnce(t *testing.T) {
	makeNewNames(t, lab.Galera(t))
}

func TestContendersOnAllPrimariesMakeANewNameOnce(t *testing.T) {
	makeNewNames(t, lab.Group(t))
}

func makeNewNames(t *testing.T, nodes []*servers.Database) {
	t.Helper()
	labtest.Open(t, nodes[0], "schema")
	for _, entry := range registry.Family(lock.FamilySQL) {
		if entry.OneServer {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			lockers := make([]lock.Locker, len(nodes))
			for i, node := range nodes {
				lockers[i] = sqlLock(t, node, entry.Name)
			}
			for range 40 {
				name := "new/" + lock.NewOwner()
				var contenders sync.WaitGroup
				for _, locker := range lockers {
					contenders.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
						defer cancel()
						lease, err := locker.Acquire(ctx, name)
						if err == nil {
							err = lease.Release(ctx)
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				contenders.Wait()
			}
		})
	}
}
