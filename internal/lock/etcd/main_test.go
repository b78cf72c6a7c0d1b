package etcd_test

import (
	"os"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/locktest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(locktest.Main(m, &lab, locks()...)) }

func TestLocks(t *testing.T) { locktest.Run(t, lab, locks()...) }

// locks are the locks of this family, with their state, and one of them over two names.
func locks() (all []locktest.Lock) {
	for _, entry := range registry.Family(lock.FamilyEtcd) {
		one := locktest.Lock{Entry: entry, State: stateOf(entry.Name)}
		all = append(all, one)
		if entry.Name == "etcd" {
			all = append(all, locktest.Pair(one))
		}
	}
	return all
}
