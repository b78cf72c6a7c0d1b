package sourcelock_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// taken is a lock whose name x is taken, and how to give it back.
func taken(t *testing.T, d *servers.Database, kind string) (locker lock.Locker, giveBack func()) {
	t.Helper()
	all := sourcelock.Registry()
	i := slices.IndexFunc(all, func(e lock.Entry) bool { return e.Name == kind })
	locker = all[i].New(lab.Locks(t, d, backend.MySQL))
	lease, err := locker.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return locker, func() {
		if err := lease.Release(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

func TestASingleInsertIsRefusedAtOnceAndFreeAfterTheRelease(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		locker, giveBack := taken(t, d, sourcelock.InsertOnce)
		began := time.Now()
		if _, err := locker.Acquire(t.Context(), "x"); !errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		giveBack()
		lease, err := locker.Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestALoopWaitsForTheReleaseAndForItsOwnOwnerToo(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		locker, giveBack := taken(t, d, sourcelock.InsertLoop)
		ctx, cancel := context.WithTimeout(lock.WithOwner(t.Context(), "me"), 200*time.Millisecond)
		defer cancel()
		if _, err := locker.Acquire(ctx, "x"); !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		time.AfterFunc(100*time.Millisecond, giveBack)
		if _, err := locker.Acquire(t.Context(), "x"); err != nil {
			t.Error(err)
		}
	})
}
