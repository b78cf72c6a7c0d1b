package labtest

import (
	"context"
	"crypto/rand"
	"math"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
)

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
