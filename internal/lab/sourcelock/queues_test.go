package sourcelock_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
)

// waiting is an Acquire under way.
type waiting struct {
	lease lock.Lease
	err   error
	done  chan struct{}
	leave context.CancelFunc
}

// wait begins to wait, and returns when the backend has as many places of the name as it should.
func wait(t *testing.T, l lock.Locker, name string, inLine func() int) *waiting {
	t.Helper()
	before := inLine()
	ctx, leave := context.WithCancel(t.Context())
	w := &waiting{done: make(chan struct{}), leave: leave}
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Acquire(ctx, name)
	}()
	t.Cleanup(func() { leave(); <-w.done })
	if !labtest.Eventually(10*time.Second, func() bool { return inLine() == before+1 }) {
		t.Fatal("it is not in line")
	}
	return w
}

func (w *waiting) granted(t *testing.T) lock.Lease {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(10 * time.Second):
		t.Fatal("it is not granted the name")
	}
	if w.err != nil {
		t.Fatal(w.err)
	}
	return w.lease
}

// waits requires that it is not granted anything for a while.
func (w *waiting) waits(t *testing.T) {
	t.Helper()
	select {
	case <-w.done:
		t.Errorf("it does not wait any more: %v", w.err)
	case <-time.After(50 * time.Millisecond):
	}
}

// keysOf counts the keys of a name in etcd.
func keysOf(t *testing.T, client *clientv3.Client, kind, name string) func() int {
	t.Helper()
	return func() int {
		found, err := client.Get(context.WithoutCancel(t.Context()), "stockd/"+kind+"/"+name+"/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		return len(found.Kvs)
	}
}

// The key of each request waits for the one before it. Where that one leaves, the next takes its
// end for a grant, or looks again who is first. Keys end with their request, and with its release.
func TestAKeyOfEtcdWaitsForTheOneBeforeIt(t *testing.T) {
	for _, kind := range []string{sourcelock.PreKeyOnce, sourcelock.PreKey} {
		l, name := contend(t, kind), "queue"
		inLine := keysOf(t, l.Etcd, kind, name)
		first := take(t, l, name)
		second := wait(t, l, name, inLine)
		third := wait(t, l, name, inLine)
		giveBack(t, take(t, l, "queue-2")) // another name, although it begins the same way
		second.waits(t)
		second.leave()
		<-second.done
		if !errors.Is(second.err, lock.ErrNotAcquired) || !errors.Is(second.err, context.Canceled) || inLine() != 2 {
			t.Errorf("%s: one that leaves gets %v, and there are %d keys", kind, second.err, inLine())
		}
		if kind == sourcelock.PreKey {
			third.waits(t)
			fourth := wait(t, l, name, inLine)
			giveBack(t, first)
			lease := third.granted(t)
			fourth.waits(t)
			giveBack(t, lease)
			first = fourth.granted(t)
		} else {
			giveBack(t, third.granted(t)) // beside the first
		}
		if first.Context().Err() != nil {
			t.Errorf("%s: a lease ends with another", kind)
		}
		giveBack(t, first)
		if n := inLine(); n != 0 || first.Context().Err() == nil {
			t.Errorf("%s: %d keys are left after the release, and the lease has ended: %v", kind, n, first.Context().Err())
		}
	}
}

// Each request has a lease of its own for the TTL, in seconds that are rounded up.
func TestAKeyOfEtcdLivesForTheTTL(t *testing.T) {
	l := contend(t, sourcelock.PreKey, lastingFor(4100*time.Millisecond))
	held, other := take(t, l, "lives"), take(t, l, "lives/2")
	defer giveBack(t, held)
	defer giveBack(t, other)
	found, err := l.Etcd.Get(t.Context(), "stockd/"+sourcelock.PreKey+"/lives", clientv3.WithPrefix())
	if err != nil || len(found.Kvs) != 2 || found.Kvs[0].Lease == found.Kvs[1].Lease {
		t.Fatalf("%v (%v), want two keys with a lease each", found, err)
	}
	left, err := l.Etcd.TimeToLive(t.Context(), clientv3.LeaseID(found.Kvs[0].Lease))
	if err != nil || left.GrantedTTL != 5 {
		t.Errorf("a lease of %s is granted for %d s (%v), want 5", l.TTL, left.GrantedTTL, err)
	}
}

// The shortest lease of etcd is renewed while its holder works, and while it waits.
func TestAKeyOfEtcdIsRenewed(t *testing.T) {
	t.Parallel() // it waits for leases to end
	l, name := contend(t, sourcelock.PreKey, lastingFor(time.Second)), "renewed"
	inLine := keysOf(t, l.Etcd, sourcelock.PreKey, name)
	first := take(t, l, name)
	second := wait(t, l, name, inLine)
	time.Sleep(3 * time.Second)
	if inLine() != 2 {
		t.Error("a key has ended by itself")
	}
	giveBack(t, first)
	giveBack(t, second.granted(t))
}

// nodeCaches connects contenders of the lock with a listener, and returns how many nodes a
// folder has.
func nodeCaches(t *testing.T, kind, folder string, n int) (contenders []lock.Locker, inLine func() int) {
	t.Helper()
	server := lab.ZooKeeper(t)
	for range n {
		l, err := sourcelock.NewNodeCache(kind, server.Address, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.(io.Closer).Close() }) //nolint:forcetypeassert // a panic fails the test as well
		contenders = append(contenders, l)
	}
	conn, _, err := zk.Connect([]string{server.Address}, 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return contenders, func() int {
		names, _, err := conn.Children(folder)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
		return len(names)
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// A node listens for the end of the one before it, and takes that for its turn, also where the
// first still holds the name. Nodes end with their request, their release and their session.
func TestANodeListensForTheEndOfTheOneBeforeIt(t *testing.T) {
	t.Parallel() // it waits for its server to start
	all, inLine := nodeCaches(t, sourcelock.NodeCache, "/node-cache-listens-1", 3)
	const name = "listens/1"
	first := take(t, all[0], name)
	second := wait(t, all[1], name, inLine)
	third := wait(t, all[2], name, inLine)
	second.waits(t)
	third.waits(t)
	second.leave()
	<-second.done
	if !errors.Is(second.err, lock.ErrNotAcquired) || !errors.Is(second.err, context.Canceled) {
		t.Errorf("one that leaves gets %v", second.err)
	}
	beside := third.granted(t) // it does not look who is ahead
	if n := inLine(); n != 2 || first.Context().Err() != nil || first.Token() != 0 {
		t.Errorf("%d nodes, and the first lease has ended: %v", n, first.Context().Err())
	}
	giveBack(t, first)
	if n := inLine(); n != 1 || first.Context().Err() == nil {
		t.Errorf("%d nodes are left after a release, and the lease has ended: %v", n, first.Context().Err())
	}
	next := wait(t, all[1], name, inLine)
	if err := all[2].(io.Closer).Close(); err != nil { //nolint:forcetypeassert // a panic fails the test as well
		t.Error(err)
	}
	giveBack(t, next.granted(t))
	if beside.Context().Err() != nil {
		t.Error("a loss is reported")
	}
}

// The other form waits for 300 ms, and goes on as if it had been granted the name.
func TestANodeThatWaitedLongEnoughTakesTheName(t *testing.T) {
	t.Parallel() // it waits for its server to start
	all, _ := nodeCaches(t, sourcelock.NodeCacheTimeout, "/node-cache-timed", 2)
	first := take(t, all[0], "timed")
	start := time.Now()
	second := take(t, all[1], "timed")
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("it waited for %s", took)
	}
	giveBack(t, second)
	giveBack(t, first)
}
