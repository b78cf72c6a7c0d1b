package sql_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
)

// Between the look and the write the holder has renewed: it keeps the name, whose version is the same.
func TestTheVersionLockIsNotTakenFromAHolderThatRenews(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	labtest.Open(t, d, "migrates")
	pool := sqlPool(t, d, 2)
	_, err := pool.ExecContext(t.Context(), `INSERT INTO distribute_lock (lock_name, kind, version, owner, expires_at)
		VALUES ('gate', 'version', 7, 'late', '2001-01-01 00:00:00')`)
	if err != nil {
		t.Fatal(err)
	}
	through, way := labtest.Through(t, d)
	looked := way.Arm(servers.Rule{Sent: "UPDATE distribute_lock", Do: servers.Hold})
	l := sqlLock(t, through, "sql-version-lock")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := locktest.HoldLater(ctx, l, "gate")
	labtest.AwaitReached(t, looked)
	if _, err := pool.ExecContext(t.Context(), `UPDATE distribute_lock SET expires_at = '2999-01-01 00:00:00'`); err != nil {
		t.Fatal(err)
	}
	again := way.Arm(servers.Rule{Sent: "SELECT version", Do: servers.Hold})
	looked.Pass()
	select {
	case <-again.Reached(): // it looks again
		again.Pass()
		cancel()
		if err := answered.Fails(t); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("the waiter is answered with %v", err)
		}
	case <-answered.Done:
		t.Errorf("a name that is held is answered with %v", answered.Err)
	}
	if n := count(t, pool, `SELECT version FROM distribute_lock WHERE owner = 'late'`); n != 7 {
		t.Errorf("the holder has version %d, want 7", n)
	}
}
