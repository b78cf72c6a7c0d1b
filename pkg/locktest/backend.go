package locktest

import (
	"context"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
)

// site is what locks are kept in, as the topics need it.
type site interface {
	// addresses tell where its servers are.
	addresses() addresses
	// ttl is a short one that the backend still counts exactly.
	ttl() time.Duration
	// named is what errors call it.
	named() backend.Name
	// drop takes a name away from its holder, as the backend itself would.
	drop(t *testing.T, name string)
	// litter lists what the backend keeps because of a name, for people: holder
	// and waiters. What stays on purpose, such as the counter of its tokens, is
	// not listed.
	litter(t *testing.T, name string) []string
	// requests are bytes by which the requests of an Acquire are known; what is
	// empty stands for the name.
	requests() []string
}

// crashable is a server, or several, that can be killed and started again.
type crashable interface {
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
}

// forgetful is a backend that keeps its data in memory, and may lose them while
// it runs.
type forgetful interface {
	site
	// forget makes it lose everything.
	forget(t *testing.T)
}

func isServed(s *subject) bool        { return !s.direct && s.site.addresses().served() }
func hasPassword(s *subject) bool     { return isServed(s) && s.site.addresses().Password != "" }
func claimsReentrant(s *subject) bool { return s.entry.Guarantees.Reentrant }

func isForgetful(s *subject) bool {
	_, ok := s.site.(forgetful)
	return ok && !s.direct
}

// kinds are the backends that a lock is tried on: one, or for SQL every database
// that it can do with.
func kinds(entry lock.Entry) []string {
	switch {
	case slices.Contains(entry.Needs, backend.MySQL):
		return []string{servers.MariaDB, servers.MySQL}
	case slices.Equal(entry.Needs, []backend.Name{backend.Database}):
		return []string{servers.SQLite, servers.MariaDB, servers.MySQL}
	default:
		return []string{string(entry.Needs[0])}
	}
}

// shared is the backend of a kind that all topics share. A test without one is
// skipped.
func shared(t *testing.T, lab *labtest.Lab, kind string) site {
	t.Helper()
	switch backend.Name(kind) {
	case backend.Redis:
		return newRedisBackend(t, redisAt(lab.Redis(t)))
	case backend.Redlock:
		return newRedlockBackend(t, lab.Redlock(t))
	case backend.ZooKeeper:
		return newZooKeeperBackend(t, lab.ZooKeeper(t).Address)
	case backend.Etcd:
		return newEtcdBackend(t, lab.Etcd(t).Endpoint)
	default:
		return newDatabaseBackend(t, lab.Database(t, kind))
	}
}

// private is a backend that a topic may break, one topic at a time. It is
// started when it is first asked for, and ends with the run.
type private struct {
	turn   sync.Mutex
	whole  site
	server crashable
}

// privates are the private backends of a run, by their kind.
type privates struct {
	t     *testing.T // of the run
	lab   *labtest.Lab
	where *topology

	mu  sync.Mutex
	all map[string]*private
}

// own is the private backend of a kind, for as long as the test runs.
func (p *privates) own(t *testing.T, kind string) *private {
	t.Helper()
	p.mu.Lock()
	one := p.all[kind]
	if one == nil {
		one = new(private)
		p.all[kind] = one
	}
	p.mu.Unlock()
	one.turn.Lock()
	t.Cleanup(one.turn.Unlock)
	if one.whole == nil {
		// What runs for a server is not the topic's.
		pprof.SetGoroutineLabels(context.Background())
		one.whole, one.server = p.start(kind)
		one.whole.litter(t, unique())
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), labelOf(t)))
	}
	return one
}

func (p *privates) start(kind string) (site, crashable) {
	if p.where != nil {
		return p.where.start(p.t, p.lab)
	}
	switch backend.Name(kind) {
	case backend.Redis:
		server := p.lab.OwnRedis(p.t)
		return newRedisBackend(p.t, redisAt(server)), server
	case backend.Redlock:
		server := p.lab.OwnRedlock(p.t)
		return newRedlockBackend(p.t, server), masters(server.Nodes)
	case backend.ZooKeeper:
		server := p.lab.OwnZooKeeper(p.t)
		return newZooKeeperBackend(p.t, server.Address), server
	case backend.Etcd:
		server := p.lab.OwnEtcd(p.t)
		return newEtcdBackend(p.t, server.Endpoint), server
	default:
		server := ownDatabase(p.t, p.lab, kind)
		return newDatabaseBackend(p.t, server), server
	}
}
