package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// killOthers ends every other connection to the database.
func killOthers(t *testing.T, admin *sql.DB) {
	t.Helper()
	_, others, err := servers.Rows(t.Context(), admin, `SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()`)
	if err != nil || len(others) == 0 {
		t.Fatalf("found %d other connections (%v)", len(others), err)
	}
	for _, row := range others {
		_, _ = admin.ExecContext(t.Context(), `KILL `+row[0]) // it may be gone already
	}
}

// busyOthers counts the statements that run for others.
func busyOthers(t *testing.T, admin *sql.DB) int {
	t.Helper()
	return count(t, admin, `SELECT COUNT(*) FROM information_schema.processlist
		WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command <> 'Sleep'`)
}

// The release comes before the loss was noticed: it must not take the answer of a
// connection that is gone for a name that is given back.
func TestAReleaseByAKilledConnectionIsALoss(t *testing.T) {
	eachSessionLock(t, func(t *testing.T, d *servers.Database, kind string) {
		admin := sqlPool(t, d, 2)
		admin.SetMaxOpenConns(1)
		pool := sqlPool(t, d, 4)
		l := sqlLockOn(t, pool, d, kind)
		lease := locktest.HoldWithin(t, l, "gate", 5*time.Second)
		killOthers(t, admin)
		next := locktest.HoldWithin(t, sqlLock(t, d, kind), "gate", sqlSoon)
		should.Fail(t, lease.Release(t.Context()), lock.ErrLost)
		should.Fail(t, context.Cause(lease.Context()), lock.ErrLost, "the lease ended with")
		should.Be(t, pool.Stats().InUse, 0, "connections are not given back")
		isHeld(t, l, "gate")
		locktest.Release(t, next)
	})
}

// An Acquire that gives up has the server give up, too: at once, and without the loss of a
// connection.
func TestACancelledWaiterLeavesNothingInTheServer(t *testing.T) {
	eachSessionLock(t, func(t *testing.T, d *servers.Database, kind string) {
		admin := sqlPool(t, d, 2)
		admin.SetMaxOpenConns(1)
		through, way := labtest.Through(t, d)
		interrupts := way.Arm(servers.Rule{Sent: "KILL QUERY", Do: servers.Count})
		pool := sqlPool(t, through, 4)
		holder, waiter := sqlLock(t, d, kind), sqlLockOn(t, pool, d, kind)
		lease := locktest.HoldWithin(t, holder, "gate", 5*time.Second)
		for round := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			gaveUp := locktest.HoldLater(ctx, waiter, "gate")
			labtest.Await(t, "a waiter", 5*time.Second, func() bool { return busyOthers(t, admin) > 0 })
			cancel()
			start := time.Now()
			should.Fail(t, gaveUp.Fails(t), context.Canceled)
			if late := time.Since(start); late > sqlSoon {
				t.Errorf("it returned %s after the end of the wait", late)
			}
			// An interrupt that comes before its statement ends nothing: the slice does, in a second.
			if !labtest.Eventually(sqlTTL, func() bool { return busyOthers(t, admin) == 0 && pool.Stats().InUse == 0 }) {
				t.Errorf("%d statements run on, %d connections are in use", busyOthers(t, admin), pool.Stats().InUse)
			}
			should.Be(t, interrupts.Seen(), round+1, "the server was asked … times to interrupt")
		}
		locktest.Release(t, lease)
		locktest.Release(t, locktest.HoldWithin(t, holder, "gate", sqlSoon))
		locktest.Release(t, locktest.HoldWithin(t, waiter, "gate", sqlSoon))
		if n := pool.Stats().OpenConnections; n > 2 {
			t.Errorf("%d connections were needed, want the waiter's and the one that interrupts", n)
		}
	})
}

// Many that come at once find a connection free, and take the last one before they notice: they give it
// back. Where they kept it, the pool would be used up, and no holder could be renewed or released.
func TestTheLastConnectionIsGivenBack(t *testing.T) {
	eachSessionLock(t, func(t *testing.T, d *servers.Database, kind string) {
		pool := sqlPool(t, d, 4)
		l := sqlLockOn(t, pool, d, kind)
		for round := range 5 {
			pool.SetMaxIdleConns(0) // so that all connect at once
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			var crowd sync.WaitGroup
			for i := range 12 {
				crowd.Go(func() {
					if lease, err := l.Acquire(ctx, fmt.Sprint("gate ", i)); err == nil {
						locktest.Release(t, lease)
					}
				})
			}
			crowd.Wait()
			cancel()
			if !labtest.Eventually(5*time.Second, func() bool { return pool.Stats().InUse == 0 }) {
				t.Fatalf("after round %d %d of 4 connections are in use", round+1, pool.Stats().InUse)
			}
		}
	})
}

// What is given back by a lease is given out again as it was: without the name,
// and without the short patience of the server.
func TestAConnectionGoesBackAsItCame(t *testing.T) {
	eachSessionLock(t, func(t *testing.T, d *servers.Database, kind string) {
		pool, _, err := backend.OpenPool(backend.SQLOptions{
			Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 2, LockWait: 7 * time.Second, ConnectTimeout: time.Second,
		})
		must.Do(t, err)
		t.Cleanup(func() { pool.Close() }) //nolint:errcheck // it was only read from
		pool.SetMaxIdleConns(2)
		patience := func() [2]int {
			return [2]int{count(t, pool, `SELECT @@session.wait_timeout`), count(t, pool, `SELECT @@session.innodb_lock_wait_timeout`)}
		}
		before := patience()
		l := sqlLockOn(t, pool, d, kind)
		locktest.Release(t, locktest.HoldWithin(t, l, "gate", 5*time.Second))
		for range 4 {
			should.Be(t, patience(), before, "the server bears silence and waits for a row for … s, and did for … s")
		}
		// Every connection is still there to take the name from every other.
		for range 4 {
			locktest.Release(t, locktest.HoldWithin(t, sqlLock(t, d, kind), "gate", sqlSoon))
			locktest.Release(t, locktest.HoldWithin(t, l, "gate", sqlSoon))
		}
		pool.SetMaxOpenConns(0) // no bound is room enough
		locktest.Release(t, locktest.HoldWithin(t, l, "gate", sqlSoon))
	})
}

// The connection that was granted a name has ended before the grant was answered: the name may be
// another's already.
func TestAGrantByAConnectionThatHasEndedIsNone(t *testing.T) {
	d := migrated(t, lab.Database(t, servers.MariaDB))
	admin := sqlPool(t, d, 2)
	admin.SetMaxOpenConns(1)
	through, way := labtest.Through(t, d)
	pool := sqlPool(t, through, 4)
	l := sqlLockOn(t, pool, d, "sql-row-lock")
	locktest.Release(t, locktest.HoldWithin(t, l, "gate", 5*time.Second))
	held := way.Arm(servers.Rule{Sent: "UPDATE lock_token", Do: servers.HoldReply}) // after the row was locked
	answered := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		lease, err := l.Acquire(ctx, "gate")
		if err == nil {
			t.Error("a name was granted on a connection that has ended")
			_ = lease.Release(t.Context()) // it is lost
		}
		answered <- err
	}()
	labtest.AwaitReached(t, held)
	const holders = `SELECT p.id FROM information_schema.innodb_trx t JOIN information_schema.processlist p
		ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()`
	var id int64
	// The server's list of transactions may be a tenth of a second old.
	labtest.Await(t, "a transaction that holds the row", 5*time.Second, func() bool { return admin.QueryRowContext(t.Context(), holders).Scan(&id) == nil })
	must.Get(admin.ExecContext(t.Context(), `KILL ?`, id))(t)
	next := locktest.HoldWithin(t, sqlLock(t, d, "sql-row-lock"), "gate", 5*time.Second)
	held.Pass()
	should.Fail(t, <-answered, stock.ErrBackendUnavailable)
	should.Be(t, labtest.Eventually(sqlSoon, func() bool { return pool.Stats().InUse == 0 }), true, "… connections are not given back", pool.Stats().InUse)
	locktest.Release(t, next)
}

// A waiter for a row looks at its context every second, also where others may wait for a row longer.
func TestAWaiterForARowAsksSliceBySlice(t *testing.T) {
	t.Parallel()
	d := migrated(t, lab.Database(t, servers.MariaDB))
	lease := locktest.HoldWithin(t, sqlLock(t, d, "sql-row-lock"), "gate", 5*time.Second)
	through, way := labtest.Through(t, d)
	asked := way.Arm(servers.Rule{Sent: "FOR UPDATE", Do: servers.Count})
	pool, _, err := backend.OpenPool(backend.SQLOptions{
		Driver: through.Driver, DSN: through.DSN, Password: through.Password, MaxOpen: 4, LockWait: time.Minute, ConnectTimeout: time.Second,
	})
	must.Do(t, err)
	t.Cleanup(func() { _ = pool.Close() }) // the test is over
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gaveUp := locktest.HoldLater(ctx, sqlLockOn(t, pool, d, "sql-row-lock"), "gate")
	select {
	case <-gaveUp.Done:
		t.Fatalf("a waiter gave up with %v", gaveUp.Err)
	case <-time.After(1200 * time.Millisecond): // a slice is a second
	}
	should.Be(t, labtest.Eventually(sqlSoon, func() bool { return asked.Seen() > 1 }), true, "it asked … times in two slices", asked.Seen())
	cancel()
	should.Fail(t, gaveUp.Fails(t), context.Canceled)
	locktest.Release(t, lease)
}

// A named lock belongs to the whole server, and two installations share it.
func TestNamedLocksOfTwoDatabasesDoNotMeet(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		kind := d.Name // "MariaDB" or "MySQL"
		other := lab.Database(t, map[string]string{"MariaDB": servers.MariaDB, "MySQL": servers.MySQL}[kind])
		for _, database := range []*servers.Database{d, other} {
			labtest.Open(t, database, "migrates")
		}
		here, there := sqlLock(t, d, "sql-named-lock"), sqlLock(t, other, "sql-named-lock")
		first := locktest.HoldWithin(t, here, "gate", 5*time.Second)
		second := locktest.HoldWithin(t, there, "gate", sqlSoon)
		isHeld(t, there, "gate")
		locktest.Release(t, first)
		locktest.Release(t, second)
	})
}
