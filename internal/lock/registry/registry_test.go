package registry_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// locks are those of each family, in the order in which they are shown. Those with a
// watchdog are marked by *: they alone can do without, which the suite tests only where
// the entry says so.
func locks() map[string]string {
	return map[string]string{
		lock.FamilySQL:       "sql-insert-lock* sql-row-lock sql-version-lock* sql-named-lock",
		lock.FamilyRedis:     "redis-setnx redis-setnx-ttl redis-setnx-owner redis-getset redis-lua redis-reentrant* redis-fair* redsync* redlock*",
		lock.FamilyZooKeeper: "zk-ephemeral zk-herd zk-sequential",
		lock.FamilyEtcd:      "etcd",
	}
}

func TestEveryLockIsInItsFamily(t *testing.T) {
	n := 0
	for family, want := range locks() {
		entries := registry.Family(family)
		names := make([]string, 0, len(entries))
		for _, e := range entries {
			name := e.Name
			if e.Watchdog {
				name += "*"
			}
			names = append(names, name)
			if e.Family != family || e.Summary == "" || len(e.Needs) == 0 {
				t.Errorf("%s is of the family %q, needs %q and is described by %q", e.Name, e.Family, e.Needs, e.Summary)
			}
		}
		should.Be(t, strings.Join(names, " "), want, "the locks of … are", family)
		n += len(names)
	}
	should.Be(t, len(registry.Locks()), n, "the locks, of which each is in a family")
}

func TestALockIsFoundByItsName(t *testing.T) {
	for _, e := range registry.Locks() {
		should.Be(t, must.Get(registry.Find(e.Name))(t).Name, e.Name, "by its name is found")
	}
	found, err := registry.Find("mutex")
	if err == nil || found.New != nil {
		t.Fatalf("by the name of no lock %q is found", found.Name)
	}
	for _, e := range registry.Locks() {
		if !slices.Contains(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == ' ' || r == ',' }), e.Name) {
			t.Errorf("%v, which does not name %s", err, e.Name)
		}
	}
}
