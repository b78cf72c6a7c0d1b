package sourcelock_test

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
)

// wait begins to wait, and returns when the backend has as many places of the name as it should.
func wait(t *testing.T, l lock.Locker, name string, inLine func() int) *locktest.Later {
	t.Helper()
	before := inLine()
	ctx, leave := context.WithCancel(t.Context())
	w := locktest.HoldLater(ctx, l, name)
	t.Cleanup(func() { leave(); <-w.Done })
	labtest.Await(t, "a place in the queue", 10*time.Second, func() bool { return inLine() == before+1 })
	return w
}

// keysOf counts the keys of a name in etcd.
func keysOf(t *testing.T, client *clientv3.Client, kind, name string) func() int {
	t.Helper()
	return func() int {
		found := must.Get(client.Get(context.WithoutCancel(t.Context()), "stockd/"+kind+"/"+name+"/", clientv3.WithPrefix()))(t)
		return len(found.Kvs)
	}
}

// Each request has a lease of its own for the TTL, in seconds that are rounded up.
func TestAKeyOfEtcdLivesForTheTTL(t *testing.T) {
	l := contend(t, sourcelock.PreKey, lastingFor(4100*time.Millisecond))
	held, other := locktest.Hold(t, l, "lives"), locktest.Hold(t, l, "lives/2")
	defer locktest.Release(t, held)
	defer locktest.Release(t, other)
	found, err := l.Etcd.Get(t.Context(), "stockd/"+sourcelock.PreKey+"/lives", clientv3.WithPrefix())
	if err != nil || len(found.Kvs) != 2 || found.Kvs[0].Lease == found.Kvs[1].Lease {
		t.Fatalf("%v (%v), want two keys with a lease each", found, err)
	}
	left, err := l.Etcd.TimeToLive(t.Context(), clientv3.LeaseID(found.Kvs[0].Lease))
	if err != nil || left.GrantedTTL != 5 {
		t.Errorf("a lease of %s is granted for %d s (%v), want 5", l.TTL, left.GrantedTTL, err)
	}
}

// The lease of a key is renewed while its holder works, and while it waits.
func TestAKeyOfEtcdIsRenewed(t *testing.T) {
	t.Parallel() // it waits for leases to end
	const ttl = 4 * time.Second
	l, name := contend(t, sourcelock.PreKey, lastingFor(ttl)), "renewed"
	inLine := keysOf(t, l.Etcd, sourcelock.PreKey, name)
	first := locktest.Hold(t, l, name)
	second := wait(t, l, name, inLine)
	time.Sleep(ttl + time.Second)
	if inLine() != 2 {
		t.Error("a key has ended by itself")
	}
	locktest.Release(t, first)
	locktest.Release(t, second.Within(t, 10*time.Second))
}

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
