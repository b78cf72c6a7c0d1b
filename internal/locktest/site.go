package locktest

import (
	"context"
	"errors"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
)

// site is a backend that locks are kept in: one server or several.
type site struct {
	at      addresses
	name    backend.Name     // in errors
	clients *backend.Clients // of State
	servers []crashable
}

// crashable is a server, or an ensemble, that can be killed and started again.
type crashable interface {
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
}

func newSite(t *testing.T, name backend.Name, at addresses, all ...crashable) *site {
	t.Helper()
	admin := at
	admin.Conn = at.AsAdmin()
	clients := must.Get(admin.connect())(t)
	t.Cleanup(func() { _ = clients.Close() }) // their server may have been killed
	return &site{at: at, name: name, clients: clients, servers: all}
}

// kinds are the backends that a lock is tested on: one, or for SQL every database that
// it can use.
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

// start starts a backend of a kind: its own, or one on the servers of the lab. A test
// whose server is missing is skipped.
func start(t *testing.T, lab *labtest.Lab, kind string, own bool) *site {
	t.Helper()
	switch backend.Name(kind) {
	case backend.Redis:
		server := either(own, lab.OwnRedis, lab.Redis)(t)
		return newSite(t, backend.Redis, addresses{server.Conn(), 2 * time.Second}, server)
	case backend.Redlock:
		return redlockSite(t, either(own, lab.OwnRedlock, lab.Redlock)(t))
	case backend.ZooKeeper:
		server := either(own, lab.OwnZooKeeper, lab.ZooKeeper)(t)
		return zooKeeperSite(t, server.Conn(), server)
	case backend.Etcd:
		server := either(own, lab.OwnEtcd, lab.Etcd)(t)
		return newSite(t, backend.Etcd, addresses{server.Conn(), 2 * time.Second}, server)
	default:
		return databaseSite(t, either(own, ownDatabase(lab, kind), func(t *testing.T) *servers.Database { return lab.Database(t, kind) })(t))
	}
}

func either[S any](own bool, private, shared func(*testing.T) S) func(*testing.T) S {
	if own {
		return private
	}
	return shared
}

// redlockSite is several independent masters, and a database that issues the tokens that
// they cannot count together.
func redlockSite(t *testing.T, masters *servers.Redlock) *site {
	t.Helper()
	at := addresses{masters.Conn(), 2 * time.Second} // part of which passes while a token is written to the disk
	at.Database = servers.Database{Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "tokens.db")}
	migrate(t, &at.Database)
	s := newSite(t, backend.Redlock, at)
	for _, master := range masters.Nodes {
		s.servers = append(s.servers, master)
	}
	return s
}

// zooKeeperSite has every node belong to the holder of its Auth.
func zooKeeperSite(t *testing.T, to servers.Conn, server crashable) *site {
	t.Helper()
	to.Prefix, to.ZooKeeper.Auth = "locktest", "stockd:secret"
	return newSite(t, backend.ZooKeeper, addresses{to, labtest.ZooKeeperSession}, server)
}

// databaseSite is a SQL database of its own on the lab's server, or a file.
func databaseSite(t *testing.T, d *servers.Database) *site {
	t.Helper()
	s := newSite(t, backend.Name(d.Driver), addresses{servers.Conn{Database: *d}, labtest.LockTTL}, d)
	s.at.Database = *labtest.Granted(t, d) // of the replicas; State may do everything
	if d.Driver == repo.MySQL {
		// Nothing has to survive the machine, and the suite need not wait for the disk.
		must.Get(s.clients.DB.ExecContext(t.Context(), `SET GLOBAL innodb_flush_log_at_trx_commit = 2`))(t)
	}
	return s
}

func migrate(t *testing.T, d *servers.Database) {
	t.Helper()
	store := must.Get(d.Open(t.Context(), "locktest", 1))(t)
	defer closed(t, store)
	must.Get(store.MigrateUp(t.Context()))(t)
}

// ownDatabase starts a database server that topics may kill. It ends with the lab.
func ownDatabase(lab *labtest.Lab, kind string) func(*testing.T) *servers.Database {
	return func(t *testing.T) *servers.Database {
		t.Helper()
		d, err := servers.StartDatabase(t.Context(), lab.Supervisor(), servers.Choice{Mode: servers.Local, Database: kind, Volatile: true})
		must.Do(t, err)
		return d
	}
}

// requests are bytes by which the requests of an Acquire are known; "" stands for the
// name.
func (s *site) requests() []string {
	if s.clients.DB == nil || len(s.at.Redlock.Addresses) > 0 {
		return []string{""}
	}
	// A commit grants the name where a transaction ends before the work, and does not
	// contain it.
	return []string{"", "COMMIT"}
}

// masters are the servers of the site that keep their data in memory alone, and may lose
// them while they run.
func (s *site) masters() []redis.UniversalClient {
	if s.clients.Redis != nil {
		return []redis.UniversalClient{s.clients.Redis}
	}
	return s.clients.Redlock
}

// forget has Redis lose its data and its scripts.
func (s *site) forget(t *testing.T) {
	t.Helper()
	for _, master := range s.masters() {
		if err := errors.Join(master.FlushAll(t.Context()).Err(), master.ScriptFlush(t.Context()).Err()); err != nil {
			t.Fatalf("make Redis forget: %v", err)
		}
	}
}

// Hook stands around what a client of Redis sends: a command, or those of a pipeline.
type Hook func(ctx context.Context, send func() error, commands ...redis.Cmder) error

// DialHook changes nothing.
func (Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook has it around a command.
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		return h(ctx, func() error { return next(ctx, command) }, command)
	}
}

// ProcessPipelineHook has it around a pipeline.
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		return h(ctx, func() error { return next(ctx, commands) }, commands...)
	}
}

// privates are the backends of a run that topics may break, by their kind. Each is started
// when it is first needed, and ends with the run.
type privates struct {
	start func(kind string) *site
	mu    sync.Mutex
	all   map[string]*private
}

// private is used by one topic at a time.
type private struct {
	turn sync.Mutex
	site *site
}

// own is the private backend of a kind, for as long as the test runs.
func (p *privates) own(t *testing.T, kind string) *site {
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
	if one.site == nil {
		// The goroutines of a server are not those of the topic.
		pprof.SetGoroutineLabels(context.Background())
		one.site = p.start(kind)
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), labelOf(t)))
	}
	return one.site
}

// topology is a backend that is made of several servers.
type topology struct {
	of backend.Name
	// direct reports that its clients find the servers themselves: what stands between a
	// client and one server, or kills all of them, is not tested.
	direct bool
	start  func(t *testing.T, lab *labtest.Lab) *site
}

func topologies() map[string]topology {
	return map[string]topology{
		"zookeeper-ensemble": {of: backend.ZooKeeper, start: func(t *testing.T, lab *labtest.Lab) *site {
			e := labtest.Own(t, lab.Supervisor(), "zookeeper", servers.StartZooKeeperEnsemble, 3)
			return zooKeeperSite(t, e.Conn(), e)
		}},
		"etcd-cluster": {of: backend.Etcd, start: func(t *testing.T, lab *labtest.Lab) *site {
			c := labtest.Own(t, lab.Supervisor(), "etcd", servers.StartEtcdCluster, 3)
			return newSite(t, backend.Etcd, addresses{c.Conn(), 2 * time.Second}, c)
		}},
		"redis-cluster": {of: backend.Redis, direct: true, start: func(t *testing.T, lab *labtest.Lab) *site {
			c := labtest.Own(t, lab.Supervisor(), "redis", servers.StartRedisCluster, servers.RedisClusterOptions{Masters: 3, Replicas: true})
			return newSite(t, backend.Redis, addresses{c.Conn(), time.Second})
		}},
		"redis-sentinels": {of: backend.Redis, direct: true, start: func(t *testing.T, lab *labtest.Lab) *site {
			return newSite(t, backend.Redis, addresses{labtest.Own(t, lab.Supervisor(), "redis", servers.StartSentinels, nil).Conn(), time.Second})
		}},
	}
}
