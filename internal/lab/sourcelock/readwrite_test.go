package sourcelock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
)

// side makes a side of one read-write lock.
func side(t *testing.T, kind string, ttl time.Duration) lock.Locker {
	t.Helper()
	deps := lab.Locks(t, lab.Database(t, "sqlite"), backend.Redis)
	deps.TTL, deps.Retry = ttl, 5*time.Millisecond
	all := sourcelock.Registry()
	return all[slices.IndexFunc(all, func(e lock.Entry) bool { return e.Name == kind })].New(deps)
}

// lasting is longer than any test here waits.
const lasting = time.Minute

func take(t *testing.T, l lock.Locker, name string) lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func giveBack(t *testing.T, lease lock.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func assertNotGranted(t *testing.T, l lock.Locker, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if lease, err := l.Acquire(ctx, name); !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("granted %v, %v", lease, err)
	}
}

func TestReadersShareAndAWriterExcludesBoth(t *testing.T) {
	one, other, writer := side(t, sourcelock.ReadLock, lasting), side(t, sourcelock.ReadLock, lasting), side(t, sourcelock.WriteLock, lasting)
	first, second := take(t, one, "shared"), take(t, other, "shared")
	assertNotGranted(t, writer, "shared")
	giveBack(t, first)
	assertNotGranted(t, writer, "shared")
	giveBack(t, second)
	held := take(t, writer, "shared")
	assertNotGranted(t, one, "shared")
	assertNotGranted(t, writer, "shared")
	giveBack(t, held)
	giveBack(t, take(t, one, "shared"))
}

func TestAnAnnouncedWriterKeepsNewReadersOutUntilItLeaves(t *testing.T) {
	reader, writer := side(t, sourcelock.ReadLock, lasting), side(t, sourcelock.WriteLockAnnounced, lasting)
	held := take(t, reader, "announced")
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := writer.Acquire(ctx, "announced")
		gone <- err
	}()
	for granted := true; granted; {
		within, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		lease, err := reader.Acquire(within, "announced")
		if granted = err == nil; granted {
			giveBack(t, lease)
		}
		cancel()
	}
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	giveBack(t, take(t, reader, "announced"))
	giveBack(t, held)
}

func TestADeadReaderExpiresBesideOneThatLives(t *testing.T) {
	const short = 200 * time.Millisecond
	living, dead := side(t, sourcelock.ReadLock, lasting), side(t, sourcelock.ReadLockUnrenewed, short)
	lives, died := take(t, living, "expires"), take(t, dead, "expires")
	time.Sleep(2 * short) // it expires by then, and never sooner
	writer := side(t, sourcelock.WriteLock, lasting)
	assertNotGranted(t, writer, "expires")
	giveBack(t, lives)
	giveBack(t, take(t, writer, "expires"))
	if err := died.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the release of the expired lease returns %v", err)
	}
}
