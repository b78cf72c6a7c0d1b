package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// sqlTTL is a short one that MySQL still counts exactly.
	sqlTTL = 2 * time.Second
	// sqlSoon is how long what happens at once may take on a busy machine.
	sqlSoon = 700 * time.Millisecond
)

// sqlPool is what the locks of one replica have on a database.
func sqlPool(t *testing.T, d *servers.Database, connections int) *sql.DB {
	t.Helper()
	pool, dialect, err := d.Pool(connections, 5*time.Second)
	must.Do(t, err)
	must.Be(t, dialect, d.Driver, "dialect is")
	t.Cleanup(func() { pool.Close() }) //nolint:errcheck // a test may have closed it
	return pool
}

func sqlDeps(pool *sql.DB, d *servers.Database) lock.Deps {
	return lock.Deps{
		Clients: &backend.Clients{DB: pool, Dialect: d.Driver},
		TTL:     sqlTTL, Retry: 10 * time.Millisecond,
	}
}

// sqlLock makes a lock of the registry for a replica of its own.
func sqlLock(t *testing.T, d *servers.Database, name string) lock.Locker {
	t.Helper()
	return sqlLockOn(t, sqlPool(t, d, 8), d, name)
}

func sqlLockOn(t *testing.T, pool *sql.DB, d *servers.Database, name string) lock.Locker {
	t.Helper()
	entry := must.Get(registry.Find(name))(t)
	return closing(t, entry.New(sqlDeps(pool, d)))
}

// closing closes a lock with the test.
func closing(t *testing.T, l lock.Locker) lock.Locker {
	t.Helper()
	t.Cleanup(func() {
		if closer, ok := l.(io.Closer); ok {
			must.Do(t, closer.Close())
		}
	})
	return l
}

// migrated brings the schema of a database up to date.
func migrated(t *testing.T, d *servers.Database) *servers.Database {
	t.Helper()
	labtest.Open(t, d, "migrates")
	return d
}

// eachDatabase and eachServer run a test on every database, or on every one that is a server.
func eachDatabase(t *testing.T, test func(t *testing.T, d *servers.Database)) {
	t.Helper()
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) { test(t, migrated(t, d)) })
}

func eachServer(t *testing.T, test func(t *testing.T, d *servers.Database)) {
	t.Helper()
	lab.EachServer(t, func(t *testing.T, d *servers.Database) { test(t, migrated(t, d)) })
}

// eachSQLLock runs a test on every SQL lock and every database that it can do
// with.
func eachSQLLock(t *testing.T, test func(t *testing.T, d *servers.Database, name string)) {
	t.Helper()
	together(t, sqlEntries(), eachDatabase, test)
}

// eachLockOnServer is eachSQLLock without SQLite.
func eachLockOnServer(t *testing.T, test func(t *testing.T, d *servers.Database, name string)) {
	t.Helper()
	together(t, sqlEntries(), eachServer, test)
}

// eachSessionLock is eachSQLLock for those that live on a connection.
func eachSessionLock(t *testing.T, test func(t *testing.T, d *servers.Database, name string)) {
	t.Helper()
	together(t, slices.DeleteFunc(sqlEntries(), func(e lock.Entry) bool { return !onlyOnServers(e) }), eachServer, test)
}

func sqlEntries() []lock.Entry {
	return registry.Family(lock.FamilySQL)
}

func onlyOnServers(e lock.Entry) bool { return slices.Contains(e.Needs, backend.MySQL) }

// together runs a test on several locks at the same time: most of them wait most
// of the time.
func together(t *testing.T, entries []lock.Entry, on func(*testing.T, func(*testing.T, *servers.Database)), test func(*testing.T, *servers.Database, string)) {
	t.Helper()
	var running sync.WaitGroup
	for _, e := range entries {
		each := on
		if onlyOnServers(e) {
			each = eachServer
		}
		running.Go(func() {
			t.Run(e.Name, func(t *testing.T) {
				each(t, func(t *testing.T, d *servers.Database) { test(t, d, e.Name) })
			})
		})
	}
	running.Wait()
}

// isHeld finds that a name is not to be had.
func isHeld(t *testing.T, l lock.Locker, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := l.Acquire(ctx, name)
	if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stock.ErrBackendUnavailable) {
		t.Errorf("a name that is held: %v, want %v and the end of the wait", err, lock.ErrNotAcquired)
	}
}

// count reads a number by SQL.
func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	must.Do(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

// A pool as small as can be, and more waiters than connections: the holder
// can renew and release, and all get their turn.
func TestSQLWaitersLeaveTheHolderAConnection(t *testing.T) {
	t.Parallel()
	eachSQLLock(t, func(t *testing.T, d *servers.Database, kind string) {
		for _, connections := range []int{2, 4} {
			pool := sqlPool(t, d, connections)
			// Two locks share the pool, as those of two strategies do.
			locks := []lock.Locker{sqlLockOn(t, pool, d, kind), sqlLockOn(t, pool, d, kind)}
			first := locktest.HoldWithin(t, locks[0], "gate", 5*time.Second)
			var waiters sync.WaitGroup
			for i := range 16 {
				waiters.Go(func() {
					locktest.Release(t, locktest.HoldWithin(t, locks[i%2], "gate", 20*time.Second))
				})
			}
			time.Sleep(sqlTTL / 2) // the waiters have what they can get, and the holder renews
			should.Be(t, context.Cause(first.Context()), nil, "the holder lost the name")
			locktest.Release(t, first)
			waiters.Wait()
			// The reaper's round, and a renewal that ends with its lease, have one for a moment.
			should.Be(t, labtest.Eventually(sqlSoon, func() bool { return pool.Stats().InUse == 0 }), true, "… connections are not given back", pool.Stats().InUse)
		}
	})
}

// While waiters for a row or a name fill the pool, the locks that need a connection only
// now and then go on.
func TestSQLWaitersLeaveOtherLocksAConnection(t *testing.T) {
	eachSessionLock(t, func(t *testing.T, d *servers.Database, kind string) {
		pool := sqlPool(t, d, 4)
		crowded, other := sqlLockOn(t, pool, d, kind), sqlLockOn(t, pool, d, "sql-insert-lock")
		held := locktest.HoldWithin(t, crowded, "gate", 5*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		for range 12 {
			waiters.Go(func() {
				should.Reject(crowded.Acquire(ctx, "gate"))(t, context.Canceled)
			})
		}
		time.Sleep(100 * time.Millisecond)
		for range 5 {
			locktest.Release(t, locktest.HoldWithin(t, other, "gate", sqlSoon))
		}
		cancel()
		waiters.Wait()
		locktest.Release(t, held)
	})
}

// The locks of different kinds do not meet: one name is held through all of them at once. Tries that
// found it taken are counted, by those that try again.
func TestSQLLocksOfTwoKindsDoNotMeet(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		pool := sqlPool(t, d, 8)
		tries, locks := make(map[string]int), make(map[string]lock.Locker)
		for _, e := range sqlEntries() {
			if onlyOnServers(e) && d.Driver != repo.MySQL {
				continue
			}
			deps := sqlDeps(pool, d)
			deps.TriedInVain = func() { tries[e.Name]++ }
			locks[e.Name] = closing(t, e.New(deps))
			locktest.Release(t, locktest.HoldWithin(t, locks[e.Name], "everywhere", 5*time.Second)) // makes what is made once for a name
		}
		for _, e := range sqlEntries() {
			l := locks[e.Name]
			if l == nil {
				continue
			}
			defer locktest.Release(t, locktest.HoldWithin(t, l, "everywhere", 5*time.Second))
			should.Be(t, tries[e.Name], 0, "a try that was granted the name is counted", e.Name)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, _ = l.Acquire(ctx, "everywhere") // it is held
			cancel()
			if (tries[e.Name] == 0) != onlyOnServers(e) {
				t.Errorf("%s: %d tries in vain are counted", e.Name, tries[e.Name])
			}
		}
	})
}

// A lease is counted from before the database was asked, and not from the answer: the database counts
// from in between.
func TestASQLLeaseIsCountedFromItsRequest(t *testing.T) {
	d := migrated(t, lab.Database(t, servers.MariaDB))
	through, way := labtest.Through(t, d)
	owned := lock.WithOwner(t.Context(), "me")
	const ping = "\x01\x00\x00\x00\x0e"
	for _, c := range []struct{ kind, statement string }{
		{"sql-version-lock", "UPDATE distribute_lock"},
		{"sql-insert-lock", "INSERT INTO record_lock"},
		{"sql-insert-lock", "depth = depth + 1"},
		{"sql-row-lock", ping},
		{"sql-named-lock", ping},
	} {
		l := sqlLock(t, through, c.kind)
		if c.statement == "depth = depth + 1" {
			first := locktest.HoldUnder(owned, t, l, "again")
			defer locktest.Release(t, first)
		}
		held := way.Arm(servers.Rule{Sent: c.statement, Do: servers.Hold})
		granted := make(chan lock.Lease, 1)
		go func() {
			ctx, cancel := context.WithTimeout(owned, 30*time.Second)
			defer cancel()
			lease, err := l.Acquire(ctx, "again")
			if err != nil {
				t.Errorf("%s: %v", c.kind, err)
			}
			granted <- lease
		}()
		labtest.AwaitReached(t, held)
		reached := time.Now()
		held.Pass()
		lease := <-granted
		if lease == nil {
			continue
		}
		lease.(*lock.Held).Follow(func(n lock.Note) { //nolint:forcetypeassert // each of them is one
			if n.TTL != sqlTTL || n.What == lock.Expires && !n.At.Before(reached) {
				t.Errorf("%s: it told %+v, want an expiry %s from before %s", c.kind, n, sqlTTL, reached)
			}
		})
		locktest.Release(t, lease)
	}
}

// The connection of a renewal is dead, and the server is not: the lease is renewed on another one.
func TestASQLLeaseOutlivesADeadConnection(t *testing.T) {
	d := migrated(t, lab.Database(t, servers.MariaDB))
	var running sync.WaitGroup
	for kind, statement := range map[string]string{"sql-version-lock": "UPDATE distribute_lock SET expires_at", "sql-insert-lock": "UPDATE record_lock SET expires_at"} {
		running.Go(func() { t.Run(kind, func(t *testing.T) { renewsOnAnother(t, d, kind, statement) }) })
	}
	running.Wait()
}

// renewsOnAnother finds that a renewal is repeated where the connection keeps its statement.
func renewsOnAnother(t *testing.T, d *servers.Database, kind, statement string) {
	t.Helper()
	through, way := labtest.Through(t, d)
	deps := sqlDeps(sqlPool(t, through, 4), through)
	deps.TTL = 3 * sqlTTL
	entry := must.Get(registry.Find(kind))(t)
	lease := must.Get(closing(t, entry.New(deps)).Acquire(t.Context(), "dead "+kind))(t)
	defer locktest.Release(t, lease)
	held := way.Arm(servers.Rule{Sent: statement, Do: servers.Hold})
	defer held.Pass()
	renewed := make(chan struct{}, 1)
	lease.(*lock.Held).Follow(func(n lock.Note) { //nolint:forcetypeassert // each of them is one
		if n.What == lock.Renewed {
			renewed <- struct{}{}
		}
	})
	labtest.AwaitReached(t, held)
	select {
	case <-renewed:
	case <-lease.Context().Done():
		t.Errorf("it ended with %v", context.Cause(lease.Context()))
	}
}

// A release that meets another writer, who has the file, is tried again.
func TestASQLReleaseOutlastsAnotherWriter(t *testing.T) {
	d := migrated(t, lab.Database(t, servers.SQLite))
	pool, _, err := backend.OpenPool(backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, MaxOpen: 2, LockWait: 20 * time.Millisecond, ConnectTimeout: time.Second,
	})
	must.Do(t, err)
	t.Cleanup(func() { _ = pool.Close() }) // the test is over
	for _, kind := range []string{"sql-insert-lock", "sql-version-lock"} {
		lease := locktest.HoldWithin(t, sqlLockOn(t, pool, d, kind), "gate", 5*time.Second)
		writer := must.Get(sqlPool(t, d, 1).Conn(t.Context()))(t)
		must.Get(writer.ExecContext(t.Context(), `BEGIN IMMEDIATE`))(t)
		time.AfterFunc(150*time.Millisecond, func() {
			_, _ = writer.ExecContext(context.Background(), `COMMIT`)
			_ = writer.Close()
		})
		locktest.Release(t, lease)
		locktest.Release(t, locktest.HoldWithin(t, sqlLockOn(t, pool, d, kind), "gate", sqlSoon))
	}
}

// statementsOf are the statements of a kind of lock. A kind without any would be tested
// for nothing.
func statementsOf(t *testing.T, statements map[string][]string, kind string) []string {
	t.Helper()
	if len(statements[kind]) == 0 {
		t.Fatalf("no statements of %s are listed", kind)
	}
	return statements[kind]
}

// A replica that is stopped in the midst of a transaction has rows locked: the
// server ends it, and the pool lets no connection become that old.
func TestSQLServersBearNoLongSilence(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		should.Be(t, count(t, sqlPool(t, d, 2), `SELECT @@session.wait_timeout`), 10, "the server bears … s of silence")
	})
}

// A statement may reach the server only when its sender has given up and has
// taken it back: then it must come to nothing.
func TestSQLLateStatementsComeToNothing(t *testing.T) {
	statements := map[string][]string{
		"sql-insert-lock":  {"INSERT INTO record_lock", "\x03COMMIT", "depth = depth + 1"},
		"sql-version-lock": {"UPDATE distribute_lock"},
		"sql-row-lock":     {"FOR UPDATE"},
		"sql-named-lock":   {"GET_LOCK"},
	}
	eachLockOnServer(t, func(t *testing.T, d *servers.Database, kind string) {
		through, way := labtest.Through(t, d)
		l, other := sqlLock(t, through, kind), sqlLock(t, d, kind)
		for i, statement := range statementsOf(t, statements, kind) {
			name, ctx := strconv.Itoa(i), lock.WithOwner(t.Context(), "me")
			first := locktest.HoldWithin(t, l, name, 5*time.Second)
			if statement == "depth = depth + 1" {
				locktest.Release(t, first)
				var err error
				if first, err = l.Acquire(ctx, name); err != nil {
					t.Fatal(err)
				}
			} else {
				locktest.Release(t, first)
			}
			late := way.Arm(servers.Rule{Sent: statement, Do: servers.Hold})
			should.Reject(l.Acquire(ctx, name))(t, stock.ErrBackendUnavailable, statement, "late")
			if !late.Disarm() {
				t.Errorf("%s was not sent", statement)
			}
			time.Sleep(100 * time.Millisecond) // the server has time to act
			should.Do(t, first.Release(t.Context()))
			locktest.Release(t, locktest.HoldWithin(t, other, name, sqlSoon))
		}
	})
}

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
				must.Do(t, lease.Release(t.Context()))
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
