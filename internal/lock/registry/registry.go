// Package registry lists the locks.
package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lock"
	etcdlock "github.com/stockd/stockd/internal/lock/etcd"
	redislock "github.com/stockd/stockd/internal/lock/redis"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	zklock "github.com/stockd/stockd/internal/lock/zk"
)

// Locks lists every lock that is kept outside of this process, in the order
// in which they are shown. The strategies, the conformance suite and the
// benchmark range over it; a new lock is its own file and one line here.
func Locks() []lock.Entry {
	return []lock.Entry{
		sqllock.InsertLock(),
		sqllock.RowLock(),
		sqllock.VersionLock(),
		sqllock.NamedLock(),
		redislock.SetNX(),
		redislock.SetNXTTL(),
		redislock.SetNXOwner(),
		redislock.GetSet(),
		redislock.Lua(),
		redislock.Reentrant(),
		redislock.Fair(),
		redislock.Redsync(),
		redislock.Redlock(),
		zklock.Ephemeral(),
		zklock.Herd(),
		zklock.Sequential(),
		etcdlock.Lock(),
	}
}

// Family lists the locks of a family.
func Family(name string) []lock.Entry {
	return slices.DeleteFunc(Locks(), func(e lock.Entry) bool { return e.Family != name })
}

// Find returns the lock of a name. The error names what is allowed.
func Find(name string) (lock.Entry, error) {
	locks := Locks()
	i := slices.IndexFunc(locks, func(e lock.Entry) bool { return e.Name == name })
	if i < 0 {
		names := make([]string, len(locks))
		for i, l := range locks {
			names[i] = l.Name
		}
		return lock.Entry{}, fmt.Errorf("%q is not a lock; there are %s", name, strings.Join(names, ", "))
	}
	return locks[i], nil
}
