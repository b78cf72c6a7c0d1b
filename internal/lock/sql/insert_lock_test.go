package sql_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// dies takes a name and falls silent, as a replica that was killed does: its
// row stays.
func dies(t *testing.T, d *servers.Database, name string) {
	t.Helper()
	pool := sqlPool(t, d, 2)
	l := sqllock.NewInsertLocker(sqlDeps(pool, d), false)
	locktest.HoldWithin(t, l, name, 5*time.Second)
	must.Do(t, pool.Close())
}

// The row of a dead holder goes without any Acquire, from two replicas at once.
func TestTheReaperFreesADeadHoldersName(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		look := sqlPool(t, d, 2)
		dies(t, d, "gate")
		for range 2 {
			locktest.Release(t, locktest.HoldWithin(t, sqlLock(t, d, "sql-insert-lock"), "other", 5*time.Second))
		}
		must.Be(t, count(t, look, `SELECT COUNT(*) FROM record_lock WHERE lock_name = 'gate'`), 1, "the rows of the dead holder")
		should.Be(t, labtest.Eventually(2*sqlTTL, func() bool { return count(t, look, `SELECT COUNT(*) FROM record_lock`) == 0 }), true, "the dead holder's row is not freed")
	})
}

// Between the look and the deletion the holder has renewed: it keeps the name.
func TestTheReaperLooksOnceMore(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		l := sqllock.NewInsertLocker(sqlDeps(sqlPool(t, d, 4), d), true)
		closing(t, l)
		lease := locktest.HoldWithin(t, l, "gate", 5*time.Second)
		must.Do(t, l.Free(t.Context(), "gate"))
		isHeld(t, l, "gate")
		locktest.Release(t, lease)
	})
}

// Many reapers at once take what is over, and nothing else.
func TestReapersAtOnceAreHarmless(t *testing.T) {
	const names, reapers = 40, 4
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		pool := sqlPool(t, d, 8)
		for i := range names {
			expiry := "2001-01-01 00:00:00.000"
			if i%2 == 0 {
				expiry = "2999-01-01 00:00:00.000"
			}
			_, err := pool.ExecContext(t.Context(), `INSERT INTO record_lock (lock_name, owner, host, entry, depth, token, expires_at)
				VALUES (?, 'o', 'h', 'e', 1, 1, ?)`, fmt.Sprint("n", i), expiry)
			must.Do(t, err)
		}
		var reaping sync.WaitGroup
		for range reapers {
			l := sqllock.NewInsertLocker(sqlDeps(pool, d), true)
			closing(t, l)
			reaping.Go(func() {
				for range 5 {
					should.Do(t, l.Reap(t.Context()))
				}
			})
		}
		reaping.Wait()
		should.Be(t, count(t, pool, `SELECT COUNT(*) FROM record_lock`), names/2, "names are left")
		should.Be(t, count(t, pool, `SELECT COUNT(*) FROM record_lock WHERE expires_at < '2100-01-01'`), 0, "names whose time is over are left")
	})
}

// A reaper goes on for as long as a name is held, whatever its rounds meet, and rests from when it
// finds none until the lock is used.
func TestTheReaperRestsWhereNoNameIsHeld(t *testing.T) {
	d := migrated(t, lab.Database(t, servers.SQLite))
	pool := sqlPool(t, d, 4)
	deps := sqlDeps(pool, d)
	deps.TTL = 40 * time.Millisecond // a round every 20 ms
	l := sqllock.NewInsertLocker(deps, true)
	closing(t, l)
	run := func(statement string) {
		t.Helper()
		must.Get(pool.ExecContext(t.Context(), statement))(t)
	}
	rests := func(want bool, when string) {
		t.Helper()
		rested := labtest.Eventually(map[bool]time.Duration{true: 5 * time.Second, false: 10 * deps.TTL}[want], l.Rests)
		should.Be(t, rested, want, "it rests", when)
	}
	use := func() {
		t.Helper()
		lease := locktest.HoldWithin(t, l, "used", 5*time.Second)
		// A busy machine may let so short a lease run out.
		if err := lease.Release(t.Context()); err != nil && !errors.Is(err, lock.ErrLost) {
			t.Errorf("release: %v", err)
		}
	}
	rests(true, "before the first use")
	use()
	rests(true, "after the last one")
	run(`INSERT INTO record_lock VALUES ('dead', 'o', 'h', 'e', 1, 1, '2999-01-01 00:00:00.000')`)
	use()
	rests(false, "while a name is held")
	run(`ALTER TABLE record_lock RENAME TO away`)
	rests(false, "while the database fails")
	run(`ALTER TABLE away RENAME TO record_lock`)
	run(`UPDATE record_lock SET expires_at = '2001-01-01 00:00:00.000'`)
	rests(true, "when the name has been freed")
	should.Be(t, count(t, pool, `SELECT COUNT(*) FROM record_lock`), 0, "names whose time is over are left")
	run(`INSERT INTO record_lock VALUES ('held', 'o', 'h', 'e', 1, 1, '2999-01-01 00:00:00.000')`)
	use()
	for range 2 {
		must.Do(t, l.Close())
	}
	run(`INSERT INTO record_lock VALUES ('late', 'o', 'h', 'e', 1, 1, '2001-01-01 00:00:00.000')`)
	time.Sleep(5 * deps.TTL)
	should.Be(t, count(t, pool, `SELECT COUNT(*) FROM record_lock WHERE lock_name = 'late'`), 1, "it goes on after it was closed")
}

// Each hold begins the TTL anew, and the row names the host of its holder, for people.
func TestAHoldMoreProlongsTheInsertLock(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		pool := sqlPool(t, d, 4)
		l := sqlLockOn(t, pool, d, "sql-insert-lock")
		owned := lock.WithOwner(t.Context(), "me")
		for range 2 {
			lease := locktest.HoldUnder(owned, t, l, "gate")
			defer locktest.Release(t, lease)
			host, err := os.Hostname()
			if n := count(t, pool, `SELECT COUNT(*) FROM record_lock WHERE expires_at < '2900-01-01' AND owner = 'me' AND host = ?`, host); n != 1 || err != nil {
				t.Errorf("%d rows of the holder on %s expire after its TTL, want 1 (%v)", n, host, err)
			}
			must.Get(pool.ExecContext(t.Context(), `UPDATE record_lock SET expires_at = '2999-01-01 00:00:00'`))(t)
		}
	})
}

func TestTheInsertLockCountsItsDepth(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		look := sqlPool(t, d, 2)
		depth := func() int { return count(t, look, `SELECT COALESCE(SUM(depth), 0) FROM record_lock`) }
		// The owner is one, on whichever replica it comes.
		here, there := sqlLock(t, d, "sql-insert-lock"), sqlLock(t, d, "sql-insert-lock")
		owned := lock.WithOwner(t.Context(), "me")
		leases := make([]lock.Lease, 0, 3)
		for i, l := range []lock.Locker{here, there, here} {
			lease := locktest.HoldUnder(owned, t, l, "gate")
			leases = append(leases, lease)
			if n := depth(); n != i+1 || lease.Token() != leases[0].Token() {
				t.Errorf("depth is %d and the token %d, want %d and %d", n, lease.Token(), i+1, leases[0].Token())
			}
		}
		for i, lease := range []lock.Lease{leases[0], leases[2], leases[1]} {
			isHeld(t, there, "gate")
			locktest.Release(t, lease)
			locktest.Release(t, lease) // a second release counts nothing
			should.Be(t, depth(), 2-i)
		}
		lease := locktest.HoldWithin(t, there, "gate", sqlSoon)
		if lease.Token() <= leases[0].Token() {
			t.Errorf("token %d came after %d", lease.Token(), leases[0].Token())
		}
		locktest.Release(t, lease)
	})
}

// A hold more that was counted, and the answer lost, is counted no more; one
// that was not is not subtracted.
func TestTheInsertLockTakesBackOneHoldOfMany(t *testing.T) {
	eachServer(t, func(t *testing.T, d *servers.Database) {
		through, cut := labtest.Through(t, d)
		l, other, look := sqlLock(t, through, "sql-insert-lock"), sqlLock(t, d, "sql-insert-lock"), sqlPool(t, d, 2)
		owned := lock.WithOwner(t.Context(), "me")
		for _, delivered := range []bool{true, false} {
			first := locktest.HoldUnder(owned, t, l, "gate")
			labtest.Lose(cut, "depth = depth + 1", delivered)
			should.Reject(l.Acquire(owned, "gate"))(t, stock.ErrBackendUnavailable)
			should.Be(t, count(t, look, `SELECT depth FROM record_lock`), 1)
			locktest.Release(t, first)
			locktest.Release(t, locktest.HoldWithin(t, other, "gate", sqlSoon))
		}
	})
}

// The owner's name is not enough: a hold of another time is not ours.
func TestTheInsertLockReleasesOnlyTheHoldThatItWas(t *testing.T) {
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		pool := sqlPool(t, d, 4)
		l := sqlLockOn(t, pool, d, "sql-insert-lock")
		owned := lock.WithOwner(t.Context(), "me")
		late := locktest.HoldUnder(owned, t, l, "gate")
		must.Get(pool.ExecContext(t.Context(), `DELETE FROM record_lock`))(t)
		next := locktest.HoldUnder(owned, t, l, "gate")
		should.Fail(t, late.Release(t.Context()), lock.ErrLost)
		isHeld(t, l, "gate")
		locktest.Release(t, next)
	})
}

// An owner whose lock has expired does not enter it once more: another one may free the name at any
// moment.
func TestAnOwnerDoesNotEnterALockThatHasExpired(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, d *servers.Database) {
		pool := sqlPool(t, d, 4)
		deps := sqlDeps(pool, d)
		deps.Unrenewed = true
		l := sqllock.NewInsertLocker(deps, false)
		owner := lock.WithOwner(t.Context(), "owner")
		for range 2 { // while it is the owner's
			must.Get(l.Acquire(owner, "gate"))(t)
		}
		must.Get(pool.ExecContext(t.Context(), `UPDATE record_lock SET expires_at = '2001-01-01 00:00:00'`))(t)
		ctx, cancel := context.WithTimeout(owner, 300*time.Millisecond)
		defer cancel()
		should.Reject(l.Acquire(ctx, "gate"))(t, context.DeadlineExceeded)
	})
}

// Between the look and the write the holder has renewed: it keeps the name, whose version is the same.
func TestTheVersionLockIsNotTakenFromAHolderThatRenews(t *testing.T) {
	d := migrated(t, lab.Database(t, servers.MariaDB))
	pool := sqlPool(t, d, 2)
	must.Get(pool.ExecContext(t.Context(), `INSERT INTO distribute_lock (lock_name, kind, version, owner, expires_at)
		VALUES ('gate', 'version', 7, 'late', '2001-01-01 00:00:00')`))(t)
	through, way := labtest.Through(t, d)
	looked := way.Arm(servers.Rule{Sent: "UPDATE distribute_lock", Do: servers.Hold})
	l := sqlLock(t, through, "sql-version-lock")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := locktest.HoldLater(ctx, l, "gate")
	labtest.AwaitReached(t, looked)
	must.Get(pool.ExecContext(t.Context(), `UPDATE distribute_lock SET expires_at = '2999-01-01 00:00:00'`))(t)
	again := way.Arm(servers.Rule{Sent: "SELECT version", Do: servers.Hold})
	looked.Pass()
	select {
	case <-again.Reached(): // it looks again
		again.Pass()
		cancel()
		should.Fail(t, answered.Fails(t), lock.ErrNotAcquired)
	case <-answered.Done:
		t.Errorf("a name that is held is answered with %v", answered.Err)
	}
	should.Be(t, count(t, pool, `SELECT version FROM distribute_lock WHERE owner = 'late'`), 7, "the holder has version")
}
