package sourcelock_test

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// A row is its holder's: the release of another leaves it, and a lease ends with its own.
func TestARowIsDeletedByItsHolderAlone(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	deps := lab.Locks(t, d, backend.MySQL)
	for _, kind := range []string{sourcelock.InsertOnce, sourcelock.InsertLoop} {
		l := entry(t, kind).New(deps)
		ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
		lease := must.Get(l.Acquire(ctx, "x"))(t)
		leave() // the end of its request
		if lease.Context().Err() != nil || lease.Token() != 0 {
			t.Errorf("%s: the lease has ended with its request, or has the token %d", kind, lease.Token())
		}
		if other, err := l.Acquire(t.Context(), "y"); err != nil || other.Release(t.Context()) != nil {
			t.Errorf("%s: another name: %v", kind, err)
		}
		must.Get(deps.DB.ExecContext(t.Context(), `UPDATE lab_record_lock SET uuid = 'another' WHERE lock_name = 'x'`))(t)
		locktest.Release(t, lease)
		var rows int
		if err := deps.DB.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM lab_record_lock`).Scan(&rows); err != nil || rows != 1 {
			t.Errorf("%s: %d rows are left (%v), want that of another", kind, rows, err)
		}
		if lease.Context().Err() == nil {
			t.Errorf("%s: the lease goes on after its release", kind)
		}
		if err := l.(io.Closer).Close(); err != nil { //nolint:forcetypeassert // a panic fails the test as well
			t.Error(err)
		}
		if err := deps.DB.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM lab_record_lock`).Scan(&rows); err == nil {
			t.Errorf("%s: the table outlives the lock", kind)
		}
	}
	closed := lab.Locks(t, d, backend.MySQL)
	must.Do(t, closed.DB.Close())
	if _, err := entry(t, sourcelock.InsertOnce).New(closed).Acquire(t.Context(), "x"); err == nil || errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("without a database: %v, which is no name that is taken", err)
	}
}
