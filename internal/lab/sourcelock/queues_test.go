package sourcelock_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/labtest"
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
