package registry_test

import (
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// TestLocks of each family runs the suite on the locks of that family.
func TestEveryLockIsTestedByItsFamily(t *testing.T) {
	tested := []string{lock.FamilySQL, lock.FamilyRedis, lock.FamilyZooKeeper, lock.FamilyEtcd}
	for _, entry := range registry.Locks() {
		if !slices.Contains(tested, entry.Family) {
			t.Errorf("%s is of the family %q, which no suite tests", entry.Name, entry.Family)
		}
	}
}
