package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
)

// A replica with explicit leases says of each lock whether it renews, and has a lease end
// while its holder works.
func TestExplicitLeasesAreNotRenewed(t *testing.T) {
	r := startInnards(t, []string{"STOCKD_LOCK_RENEW=false", "STOCKD_LOCK_TTL=500ms"})
	renews := map[string]bool{
		"sql-insert-lock": false, "redis-reentrant": false, "redis-get-set-locked": false, "redlock": false, // no watchdog
		"zk-sequential": true, "etcd": true, "sql-row-lock": true, // a session
		"redis-lua": false, // never
	}
	for _, d := range r.catalogue.Describe(t.Context()) {
		if want, ok := renews[d.Name]; ok && d.Guarantees.Renews != want {
			t.Errorf("%s is listed with renews %t, want %t", d.Name, d.Guarantees.Renews, want)
		}
	}
	lease, err := sqllock.InsertLock().New(r.locks).Acquire(t.Context(), "goods/1")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the lease does not end")
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the lease ended with %v, want %v", cause, lock.ErrLost)
	}
}
