package labtest

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
)

// HoldAndRelease acquires a name within five seconds, releases it, and returns its token.
func HoldAndRelease(t *testing.T, l lock.Locker, name string) (token uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lease := must.Get(l.Acquire(ctx, name))(t)
	must.Do(t, lease.Release(ctx))
	return lease.Token()
}

// AwaitLoss requires that a lease ends as lost within a time, and that its release says so.
func AwaitLoss(t *testing.T, lease lock.Lease, limit time.Duration) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(limit):
		t.Fatalf("the loss was not signalled within %s", limit)
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the lease ended with %v, want %v", cause, lock.ErrLost)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("released with %v, want %v", err, lock.ErrLost)
	}
}

// AwaitAnswer asks a server until it answers, for a limited time.
func AwaitAnswer(t *testing.T, of string, limit time.Duration, ask func() error) {
	t.Helper()
	var err error
	if !Eventually(limit, func() bool { err = ask(); return err == nil }) {
		t.Fatalf("%s does not answer within %s: %v", of, limit, err)
	}
}

// Eventually repeats a check until it succeeds, for a limited time.
func Eventually(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Await repeats a check until it succeeds, and ends a test where it does not in time.
func Await(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	if !Eventually(limit, ok) {
		t.Fatalf("waited %s for %s", limit, what)
	}
}

// Archive moves the ledger into its archive, as if it were a day old and its replicas had worked
// since. The row that stays, the newest one, is that of an item of its own.
func Archive(t *testing.T, d *servers.Database, s *repo.Store) {
	t.Helper()
	AgeLedger(t, d, s)
	for _, move := range []func(context.Context, time.Time, int) (int64, error){s.Archive, s.ArchiveReservations} {
		for moved := int64(math.MaxInt64); moved > 0; {
			moved = must.Get(move(t.Context(), time.Now().Add(-2*repo.MinAge), repo.MaxArchived))(t)
		}
	}
}

// AgeLedger has all rows of the ledger, and reservations that have ended, look a day old or more, with a new one after them, and the running
// totals as if they had them ever since.
func AgeLedger(t *testing.T, d *servers.Database, s *repo.Store) {
	t.Helper()
	pool, _, err := d.Pool(0, time.Second)
	must.Do(t, err)
	defer pool.Close() //nolint:errcheck // nothing is lost with it
	change := func(statement string, args ...any) {
		must.Get(pool.ExecContext(t.Context(), statement, args...))(t)
	}
	settle := func() {
		must.Do(t, s.SettleAll(t.Context()))
	}
	change(`UPDATE tb_stock_ledger SET created_at = ?`, time.Now().UTC().Add(-24*time.Hour))
	change(`UPDATE tb_reservation SET expires_at = '2001-01-01 00:00:00' WHERE state IN ('released', 'expired')`)
	must.Do(t, s.CreateGoods(t.Context(), math.MaxInt64-time.Now().UnixNano(), 1, rand.Text()))
	for range 2 { // what was seen before, and then what there is
		settle()
		change(`UPDATE tb_ledger_settled SET seen_at = '2000-01-01 00:00:00'`)
		settle()
	}
	change(`UPDATE tb_ledger_settled SET aged = upto`)
}

// Lines are those of a log, which goes on while they are read.
type Lines struct {
	mu  sync.Mutex
	all strings.Builder
}

// Write takes a line.
func (l *Lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

// String is all lines so far.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// Contains reports whether they have a text.
func (l *Lines) Contains(text string) bool { return strings.Contains(l.String(), text) }
