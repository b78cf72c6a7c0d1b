package sourcelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/should"
)

// lasting is longer than any test here waits.
const lasting = time.Minute

func assertNotGranted(t *testing.T, l lock.Locker, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	assertNotGrantedUnder(ctx, t, l, name)
}

func assertNotGrantedUnder(ctx context.Context, t *testing.T, l lock.Locker, name string) {
	t.Helper()
	should.Reject(l.Acquire(ctx, name))(t, lock.ErrNotAcquired, name)
}

func TestReadersShareAndAWriterExcludesBoth(t *testing.T) {
	one, other, writer := contend(t, sourcelock.ReadLock), contend(t, sourcelock.ReadLock), contend(t, sourcelock.WriteLock)
	first, second := locktest.Hold(t, one, "shared"), locktest.Hold(t, other, "shared")
	assertNotGranted(t, writer, "shared")
	locktest.Release(t, first)
	assertNotGranted(t, writer, "shared")
	locktest.Release(t, second)
	held := locktest.Hold(t, writer, "shared")
	assertNotGranted(t, one, "shared")
	assertNotGranted(t, writer, "shared")
	locktest.Release(t, held)
	locktest.Release(t, locktest.Hold(t, one, "shared"))
}

func TestAnAnnouncedWriterKeepsNewReadersOutUntilItLeaves(t *testing.T) {
	reader, writer := contend(t, sourcelock.ReadLock), contend(t, sourcelock.WriteLockAnnounced)
	held := locktest.Hold(t, reader, "announced")
	ctx, leave := context.WithCancel(t.Context())
	gone := locktest.HoldLater(ctx, writer, "announced")
	for granted := true; granted; {
		within, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		lease, err := reader.Acquire(within, "announced")
		if granted = err == nil; granted {
			locktest.Release(t, lease)
		}
		cancel()
	}
	leave()
	should.Fail(t, gone.Fails(t), context.Canceled, "a writer that leaves")
	locktest.Release(t, locktest.Hold(t, reader, "announced"))
	locktest.Release(t, held)
}

func TestADeadReaderExpiresBesideOneThatLives(t *testing.T) {
	const short = 200 * time.Millisecond
	living, dead := contend(t, sourcelock.ReadLock), contend(t, sourcelock.ReadLockUnrenewed, lastingFor(short))
	lives, died := locktest.Hold(t, living, "expires"), locktest.Hold(t, dead, "expires")
	time.Sleep(2 * short) // it expires by then, and never sooner
	writer := contend(t, sourcelock.WriteLock)
	assertNotGranted(t, writer, "expires")
	locktest.Release(t, lives)
	locktest.Release(t, locktest.Hold(t, writer, "expires"))
	should.Fail(t, died.Release(t.Context()), lock.ErrLost, "the release of the expired lease")
}

// The keys of the three are one name's; each of them expires.
func TestTheKeysOfAReadWriteLockExpire(t *testing.T) {
	reader, writer := contend(t, sourcelock.ReadLock), contend(t, sourcelock.WriteLockAnnounced)
	const name = "keys"
	key := keyOf(sourcelock.ReadWrite, name)
	expires := func(key string) {
		t.Helper()
		if left := reader.Redis.PTTL(t.Context(), key).Val(); left > lasting || left < lasting/2 {
			t.Errorf("%s expires in %s, want %s", key, left, lasting)
		}
	}
	held := locktest.Hold(t, reader, name)
	short := locktest.Hold(t, contend(t, sourcelock.ReadLockUnrenewed, lastingFor(2*time.Second)), name)
	expires(key + ":readers") // as the longest of its readers does
	locktest.Release(t, short)
	w := wait(t, writer, name, func() int { return int(reader.Redis.Exists(t.Context(), key+":wanted").Val()) })
	expires(key + ":wanted")
	assertNotGranted(t, reader, name)
	locktest.Release(t, held)
	lease := w.Within(t, 10*time.Second)
	expires(key)
	if n := reader.Redis.Exists(t.Context(), key+":wanted", key+":readers").Val(); n != 0 {
		t.Error("a writer that was granted the lock leaves its announcement")
	}
	locktest.Release(t, lease)
	should.Be(t, reader.Redis.Exists(t.Context(), key, key+":wanted", key+":readers").Val(), 0, "keys that are left")
	for kind, shared := range map[string]bool{sourcelock.ReadLock: true, sourcelock.ReadLockUnrenewed: true, sourcelock.WriteLock: false, sourcelock.WriteLockAnnounced: false} {
		moded, ok := contend(t, kind).Locker.(interface{ Mode() (string, bool) })
		if !ok {
			t.Fatalf("%s has no mode", kind)
		}
		if of, got := moded.Mode(); of != sourcelock.ReadWrite || got != shared {
			t.Errorf("%s is recorded as %s, shared %v", kind, of, got)
		}
	}
}

// The release of one leaves the announcement of another.
func TestAReleaseLeavesTheAnnouncementOfAnother(t *testing.T) {
	reader, writer, plain := contend(t, sourcelock.ReadLock), contend(t, sourcelock.WriteLockAnnounced), contend(t, sourcelock.WriteLock)
	const name = "announcement"
	wanted := func() int {
		return int(reader.Redis.Exists(t.Context(), keyOf(sourcelock.ReadWrite, name)+":wanted").Val())
	}
	held, second := locktest.Hold(t, reader, name), locktest.Hold(t, reader, name)
	w := wait(t, writer, name, wanted)
	locktest.Release(t, held)
	assertNotGranted(t, plain, name) // one that gives up releases its own
	if wanted() != 1 {
		t.Error("the announcement is gone")
	}
	locktest.Release(t, second)
	locktest.Release(t, w.Within(t, 10*time.Second))
}
