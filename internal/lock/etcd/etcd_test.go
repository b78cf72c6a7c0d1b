package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	etcdlock "github.com/stockd/stockd/internal/lock/etcd"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// etcdTTL is one that a restart or a short cut does not use up.
	etcdTTL = 6 * time.Second
	// etcdSoon is how long what happens at once may take on a busy machine.
	etcdSoon = 2 * time.Second
	// etcdLimit bounds what must happen, and says nothing of how fast.
	etcdLimit = 15 * time.Second
)

// etcdReplica is the lock as one replica has it, with a client of its own.
func etcdReplica(t *testing.T, server *servers.Etcd, ttl time.Duration) lock.Locker {
	t.Helper()
	return etcdReplicaOf(t, etcdOptions(server, servers.EtcdUser), ttl)
}

func etcdOptions(server *servers.Etcd, user string) backend.EtcdOptions {
	return backend.EtcdOptions{Endpoints: []string{server.Endpoint}, Username: user, Password: server.Password, DialTimeout: time.Second}
}

func etcdReplicaOf(t *testing.T, o backend.EtcdOptions, ttl time.Duration) lock.Locker {
	t.Helper()
	client := must.Get(backend.NewEtcd(o))(t)
	return etcdReplicaOn(t, client, ttl)
}

// etcdReplicaOn is a replica with a client that is closed with it.
func etcdReplicaOn(t *testing.T, client *clientv3.Client, ttl time.Duration) lock.Locker {
	t.Helper()
	l := etcdlock.Lock().New(lock.Deps{Clients: &backend.Clients{Etcd: client}, TTL: ttl})
	t.Cleanup(func() {
		etcdClose(t, l)
		should.Do(t, client.Close())
	})
	return l
}

func etcdClose(t *testing.T, l lock.Locker) {
	t.Helper()
	closer, ok := l.(io.Closer)
	if !ok {
		t.Fatal("the lock cannot be closed")
	}
	should.Do(t, closer.Close())
}

// etcdFails finds the failure of etcd in an error, and no end of a context.
func etcdFails(t *testing.T, err error) {
	t.Helper()
	failed, ok := errors.AsType[*stock.BackendError](err)
	if !errors.Is(err, lock.ErrNotAcquired) || !ok || failed.Backend != "etcd" {
		t.Errorf("%v, want %v and a failure of etcd", err, lock.ErrNotAcquired)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("%v, which blames the context for a failure of etcd", err)
	}
}

// etcdAdmin sees what is in the store.
type etcdAdmin struct{ *clientv3.Client }

func newEtcdAdmin(t *testing.T, server *servers.Etcd) etcdAdmin {
	t.Helper()
	client := must.Get(backend.NewEtcd(etcdOptions(server, servers.EtcdRoot)))(t)
	t.Cleanup(func() {
		must.Do(t, client.Close())
	})
	return etcdAdmin{client}
}

func etcdPrefixOf(name string) string { return "stockd/etcd/" + url.PathEscape(name) + "/" }

// etcdKey is a key of a name, as the store has it.
type etcdKey struct {
	key   string
	lease clientv3.LeaseID
}

// keys are those of a name, in the order in which they were created.
func (a etcdAdmin) keys(t *testing.T, name string) (keys []etcdKey) {
	t.Helper()
	found := must.Get(a.Get(t.Context(), etcdPrefixOf(name), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)))(t)
	for _, kv := range found.Kvs {
		keys = append(keys, etcdKey{string(kv.Key), clientv3.LeaseID(kv.Lease)})
	}
	return keys
}

// await waits until so many keys of a name are there.
func (a etcdAdmin) await(t *testing.T, name string, n int, limit time.Duration) (keys []etcdKey) {
	t.Helper()
	labtest.Await(t, fmt.Sprint(n, " keys of ", name), limit, func() bool { keys = a.keys(t, name); return len(keys) == n })
	return keys
}

// etcdAwaitInLine waits until a replica waits in the line of the test's name: that its
// key is there is not enough, the answer may be lost that tells it so.
func etcdAwaitInLine(t *testing.T, l lock.Locker) {
	t.Helper()
	labtest.Await(t, "a waiter in line", etcdLimit, func() bool { return etcdlock.InLine(l, t.Name()) })
}

func (a etcdAdmin) revoke(t *testing.T, lease clientv3.LeaseID) {
	t.Helper()
	must.Get(a.Revoke(t.Context(), lease))(t)
}

func (a etcdAdmin) delete(t *testing.T, key string) {
	t.Helper()
	must.Get(a.Delete(t.Context(), key))(t)
}

func TestEtcdQueuesAgainWhenTheSessionEndsWhileWaiting(t *testing.T) {
	server := lab.Etcd(t)
	admin := newEtcdAdmin(t, server)
	holder, waiter := etcdReplica(t, server, etcdTTL), etcdReplica(t, server, etcdTTL)
	lease := locktest.Hold(t, holder, t.Name())
	got := locktest.HoldLater(t.Context(), waiter, t.Name())
	lost := admin.await(t, t.Name(), 2, etcdLimit)[1]
	admin.revoke(t, lost.lease)
	labtest.Await(t, "the waiter under another session", etcdLimit, func() bool {
		keys := admin.keys(t, t.Name())
		return len(keys) == 2 && keys[1].lease != lost.lease
	})
	locktest.Release(t, lease)
	locktest.Release(t, got.Within(t, etcdSoon))
}

// After a pause of the whole process the watch may tell of a turn that has come and gone, before
// the watchdog finds that the session is over.
func TestEtcdGrantsNoTurnUnderASessionThatHasExpired(t *testing.T) {
	server := lab.Etcd(t)
	admin := newEtcdAdmin(t, server)
	other, l := etcdReplica(t, server, etcdTTL), etcdReplica(t, server, time.Hour) // not renewed meanwhile
	held := locktest.Hold(t, other, t.Name())
	got := locktest.HoldLater(t.Context(), l, t.Name())
	etcdAwaitInLine(t, l)
	expired := admin.await(t, t.Name(), 2, etcdLimit)[1].lease
	etcdlock.Expire(l)
	locktest.Release(t, held)
	lease := got.Within(t, etcdLimit)
	if keys := admin.keys(t, t.Name()); keys[0].lease == expired || lease.Context().Err() != nil {
		t.Errorf("the name is held under %v, want another than %x, which has expired: %v", keys, expired, context.Cause(lease.Context()))
	}
	locktest.Release(t, lease)
}

func TestEtcdQueuesAgainWhenTheKeyIsDeletedWhileWaiting(t *testing.T) {
	admin, l := newEtcdAdmin(t, lab.Etcd(t)), etcdReplica(t, lab.Etcd(t), etcdTTL)
	lease := locktest.Hold(t, l, t.Name())
	got := locktest.HoldLater(t.Context(), l, t.Name())
	admin.delete(t, admin.await(t, t.Name(), 2, etcdLimit)[1].key)
	admin.await(t, t.Name(), 2, etcdLimit)
	locktest.Release(t, lease)
	locktest.Release(t, got.Within(t, etcdSoon))
}

func TestEtcdDeletesKeysOfItsSessionWithoutATicket(t *testing.T) {
	server := lab.Etcd(t)
	admin := newEtcdAdmin(t, server)
	l, other := etcdReplica(t, server, etcdTTL), etcdReplica(t, server, etcdTTL)
	defer locktest.Release(t, locktest.Hold(t, l, t.Name()))
	// As a put does that was given up, and whose key was deleted, before it came.
	name := t.Name() + "/late"
	must.Get(admin.Put(t.Context(), etcdPrefixOf(name)+"late", "", clientv3.WithLease(admin.keys(t, t.Name())[0].lease)))(t)
	locktest.Release(t, locktest.HoldWithin(t, other, name, etcdSoon))
}

// Until it is compacted, etcd walks over every key that ever was when those of a
// name are counted.
func TestEtcdUsesItsKeysAgain(t *testing.T) {
	const rounds, waiters = 20, 3
	admin, l := newEtcdAdmin(t, lab.Etcd(t)), etcdReplica(t, lab.Etcd(t), etcdTTL)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	events := admin.Watch(ctx, etcdPrefixOf(t.Name()), clientv3.WithPrefix(), clientv3.WithFilterDelete())
	var crowd sync.WaitGroup
	for range waiters {
		crowd.Go(func() {
			for range rounds {
				lease, err := l.Acquire(t.Context(), t.Name())
				if err != nil {
					t.Error(err)
					return
				}
				locktest.Release(t, lease)
			}
		})
	}
	crowd.Wait()
	keys := make(map[string]bool)
	for puts := 0; puts < rounds*waiters; {
		changes := <-events
		for _, e := range changes.Events {
			keys[string(e.Kv.Key)] = true
			puts++
		}
	}
	// One is not used again before its end is seen.
	if len(keys) > 3*waiters {
		t.Errorf("%d keys for %d waiters at once", len(keys), waiters)
	}
}

// The lease of a session lasts for the TTL, in seconds that are rounded up.
func TestEtcdLivesForTheTTL(t *testing.T) {
	server := lab.Etcd(t)
	admin, l := newEtcdAdmin(t, server), etcdReplica(t, server, 4100*time.Millisecond)
	defer locktest.Release(t, locktest.Hold(t, l, t.Name()))
	left := must.Get(admin.TimeToLive(t.Context(), admin.keys(t, t.Name())[0].lease))(t)
	should.Be(t, left.GrantedTTL, 5, "a session of 4.1 s is granted for, in seconds,")
}

// A waiter tells which key is its own, and that the watch woke it; one that did not wait was not
// woken.
func TestEtcdTellsItsKeyAndWhatWokeIt(t *testing.T) {
	server := lab.Etcd(t)
	admin := newEtcdAdmin(t, server)
	l, other := etcdReplica(t, server, etcdTTL), etcdReplica(t, server, etcdTTL)
	var first, second locktest.Notes
	lease := locktest.HoldUnder(lock.WithNotes(t.Context(), first.Take), t, l, t.Name())
	got := locktest.HoldLater(lock.WithNotes(t.Context(), second.Take), other, t.Name())
	keys := admin.await(t, t.Name(), 2, etcdLimit)
	etcdAwaitInLine(t, other)
	locktest.Release(t, lease)
	locktest.Release(t, got.Within(t, etcdSoon))
	if n := first.All(); len(n) != 1 || n[0].What != lock.Placed || n[0].Key != keys[0].key || n[0].At.IsZero() {
		t.Errorf("the first tells %+v, want its key %s", n, keys[0].key)
	}
	if n := second.All(); len(n) != 2 || n[0].What != lock.Placed || n[0].Key != keys[1].key || n[1].What != lock.Woken || n[1].By != lock.ByWatch || n[1].At.IsZero() {
		t.Errorf("the second tells %+v, want its key %s, and that a watch woke it", n, keys[1].key)
	}
}

// A key that is there already is another's, or of a put that was sent twice: it is not taken for
// our own place.
func TestEtcdTakesNoKeyForItsOwnThatWasThere(t *testing.T) {
	admin, l := newEtcdAdmin(t, lab.Etcd(t)), etcdReplica(t, lab.Etcd(t), etcdTTL)
	locktest.Release(t, locktest.Hold(t, l, "first "+t.Name()))
	lease := locktest.Hold(t, l, t.Name())
	key := admin.keys(t, t.Name())[0].key
	locktest.Release(t, lease)
	admin.await(t, t.Name(), 0, etcdSoon)
	must.Get(admin.Put(t.Context(), key, "there"))(t) // the next Acquire has the same slot
	lease = locktest.HoldWithin(t, l, t.Name(), etcdSoon)
	if keys := admin.await(t, t.Name(), 1, etcdSoon); keys[0].key == key {
		t.Errorf("it holds the name with the key that was there")
	}
	locktest.Release(t, lease)
}

// Close ends the waiting, also where the session is only being opened; closed again, it does
// nothing, and never used neither.
func TestEtcdCloseEndsTheWaiting(t *testing.T) {
	server := lab.Etcd(t)
	l, other := etcdReplica(t, server, etcdTTL), etcdReplica(t, server, etcdTTL)
	lease := locktest.Hold(t, other, t.Name())
	defer locktest.Release(t, lease)
	got := locktest.HoldLater(t.Context(), l, t.Name())
	etcdAwaitInLine(t, l)
	for range 2 {
		etcdClose(t, l)
	}
	etcdFails(t, got.Fails(t))
	unused := etcdReplica(t, server, etcdTTL)
	etcdClose(t, unused)
	_, err := unused.Acquire(t.Context(), "free "+t.Name())
	etcdFails(t, err)
}

func TestEtcdCloseGivesEverythingBack(t *testing.T) {
	admin, l := newEtcdAdmin(t, lab.Etcd(t)), etcdReplica(t, lab.Etcd(t), etcdTTL)
	lease := locktest.Hold(t, l, t.Name())
	key := admin.keys(t, t.Name())[0]
	etcdClose(t, l)
	if lease.Context().Err() == nil {
		t.Error("a lease outlives its lock")
	}
	should.Be(t, len(admin.keys(t, t.Name())), 0, "a key is left")
	left, err := admin.TimeToLive(t.Context(), key.lease)
	must.Do(t, err)
	if left.TTL > 0 {
		t.Errorf("its session has %d s left", left.TTL)
	}
	labtest.AwaitLoss(t, lease, etcdSoon)
	_, err = l.Acquire(t.Context(), t.Name())
	etcdFails(t, err)
	should.Contain(t, fmt.Sprint(err), "closed")
}

func TestEtcdBeginsAgainAtOnceWhereItsLeaseIsGone(t *testing.T) {
	server := lab.Etcd(t)
	admin, l := newEtcdAdmin(t, server), etcdReplica(t, server, time.Hour) // not renewed meanwhile
	lease := locktest.Hold(t, l, t.Name())
	admin.revoke(t, admin.keys(t, t.Name())[0].lease)
	labtest.AwaitLoss(t, lease, etcdSoon)
	locktest.Release(t, locktest.HoldWithin(t, l, t.Name(), etcdLimit))
}

func TestEtcdSignalsARevokedLeaseAndBeginsAgain(t *testing.T) {
	server := lab.Etcd(t)
	admin, l := newEtcdAdmin(t, server), etcdReplica(t, server, etcdTTL)
	first, second := locktest.Hold(t, l, t.Name()), locktest.Hold(t, l, t.Name()+"/2")
	before := admin.keys(t, t.Name())[0]
	admin.revoke(t, before.lease)
	labtest.AwaitLoss(t, first, etcdSoon)
	labtest.AwaitLoss(t, second, etcdSoon)
	next := locktest.Hold(t, l, t.Name())
	if after := admin.keys(t, t.Name())[0]; after.lease == before.lease {
		t.Error("the next lease hangs on the session that was lost")
	}
	if next.Token() <= first.Token() {
		t.Errorf("token %d after %d", next.Token(), first.Token())
	}
	locktest.Release(t, next)
	admin.await(t, t.Name(), 0, etcdSoon)
}
