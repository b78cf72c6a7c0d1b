package sourcelock_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// waiting is an Acquire under way that can leave.
type waiting struct {
	*locktest.Later

	leave context.CancelFunc
}

// wait begins to wait, and returns when the backend has as many places of the name as it should.
func wait(t *testing.T, l lock.Locker, name string, inLine func() int) waiting {
	t.Helper()
	before := inLine()
	ctx, leave := context.WithCancel(t.Context())
	w := waiting{locktest.HoldLater(ctx, l, name), leave}
	t.Cleanup(func() { leave(); <-w.Done })
	if !labtest.Eventually(10*time.Second, func() bool { return inLine() == before+1 }) {
		t.Fatal("it is not in line")
	}
	return w
}

func (w waiting) granted(t *testing.T) lock.Lease {
	t.Helper()
	return w.Within(t, 10*time.Second)
}

// waits requires that it is not granted anything for a while.
func (w waiting) waits(t *testing.T) {
	t.Helper()
	select {
	case <-w.Done:
		t.Errorf("it does not wait any more: %v", w.Err)
	case <-time.After(50 * time.Millisecond):
	}
}

// keysOf counts the keys of a name in etcd.
func keysOf(t *testing.T, client *clientv3.Client, kind, name string) func() int {
	t.Helper()
	return func() int {
		found := must.Get(client.Get(context.WithoutCancel(t.Context()), "stockd/"+kind+"/"+name+"/", clientv3.WithPrefix()))(t)
		return len(found.Kvs)
	}
}

// The key of each request waits for the one before it. Where that one leaves, the next takes its
// end for a grant, or looks again who is first. Keys end with their request, and with its release.
func TestAKeyOfEtcdWaitsForTheOneBeforeIt(t *testing.T) {
	for _, kind := range []string{sourcelock.PreKeyOnce, sourcelock.PreKey} {
		l, name := contend(t, kind), "queue"
		inLine := keysOf(t, l.Etcd, kind, name)
		first := locktest.Hold(t, l, name)
		second := wait(t, l, name, inLine)
		third := wait(t, l, name, inLine)
		locktest.Release(t, locktest.Hold(t, l, "queue-2")) // another name, although it begins the same way
		second.waits(t)
		second.leave()
		<-second.Done
		if !errors.Is(second.Err, lock.ErrNotAcquired) || !errors.Is(second.Err, context.Canceled) || inLine() != 2 {
			t.Errorf("%s: one that leaves gets %v, and there are %d keys", kind, second.Err, inLine())
		}
		if kind == sourcelock.PreKey {
			third.waits(t)
			fourth := wait(t, l, name, inLine)
			locktest.Release(t, first)
			lease := third.granted(t)
			fourth.waits(t)
			locktest.Release(t, lease)
			first = fourth.granted(t)
		} else {
			locktest.Release(t, third.granted(t)) // beside the first
		}
		if first.Context().Err() != nil {
			t.Errorf("%s: a lease ends with another", kind)
		}
		locktest.Release(t, first)
		if n := inLine(); n != 0 || first.Context().Err() == nil {
			t.Errorf("%s: %d keys are left after the release, and the lease has ended: %v", kind, n, first.Context().Err())
		}
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
	locktest.Release(t, second.granted(t))
}

// listener is a contender of the lock with a listener, and the way to its server.
type listener struct {
	lock.Locker
	way *servers.Proxy
}

// nodeCaches connects contenders.
func nodeCaches(t *testing.T, kind string, n int) (contenders []listener) {
	t.Helper()
	server := lab.ZooKeeper(t)
	for range n {
		way := labtest.NewProxy(t, server.Address)
		l := must.Get(sourcelock.NewNodeCache(kind, way.Address, 10*time.Second))(t)
		one := listener{l, way}
		t.Cleanup(func() { one.end(t) })
		contenders = append(contenders, one)
	}
	return contenders
}

// end ends the session.
func (l listener) end(t *testing.T) {
	t.Helper()
	closer, ok := l.Locker.(io.Closer)
	if !ok {
		t.Fatal("the lock cannot be closed")
	}
	should.Do(t, closer.Close())
}

// listen begins to wait, and returns when the server knows what it listens to: the lock would
// miss what ends before.
func (l listener) listen(t *testing.T, folder, name string, inLine func() int) waiting {
	t.Helper()
	const exists = 3
	request := binary.BigEndian.AppendUint32(nil, exists)
	request = binary.BigEndian.AppendUint32(request, uint32(len(folder+"/number-0000000000")))
	held := l.way.Arm(servers.Rule{Sent: string(request) + folder + "/number-", Do: servers.HoldReply})
	defer held.Pass()
	w := wait(t, l, name, inLine)
	labtest.AwaitReached(t, held)
	return w
}

// nodesIn counts the nodes of a folder.
func nodesIn(t *testing.T, folder string) func() int {
	t.Helper()
	conn, _, err := zk.Connect([]string{lab.ZooKeeper(t).Address}, 10*time.Second, zk.WithLogger(quiet{}))
	must.Do(t, err)
	t.Cleanup(conn.Close)
	return func() int {
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
	const folder, name = "/node-cache-listens-1", "listens/1"
	all, inLine := nodeCaches(t, sourcelock.NodeCache, 3), nodesIn(t, folder)
	first := locktest.Hold(t, all[0], name)
	second := all[1].listen(t, folder, name, inLine)
	third := all[2].listen(t, folder, name, inLine)
	second.waits(t)
	third.waits(t)
	second.leave()
	<-second.Done
	if !errors.Is(second.Err, lock.ErrNotAcquired) || !errors.Is(second.Err, context.Canceled) {
		t.Errorf("one that leaves gets %v", second.Err)
	}
	beside := third.granted(t) // it does not look who is ahead
	if n := inLine(); n != 2 || first.Context().Err() != nil || first.Token() != 0 {
		t.Errorf("%d nodes, and the first lease has ended: %v", n, first.Context().Err())
	}
	locktest.Release(t, first)
	if n := inLine(); n != 1 || first.Context().Err() == nil {
		t.Errorf("%d nodes are left after a release, and the lease has ended: %v", n, first.Context().Err())
	}
	next := all[1].listen(t, folder, name, inLine)
	all[2].end(t)
	locktest.Release(t, next.granted(t))
	if beside.Context().Err() != nil {
		t.Error("a loss is reported")
	}
}

// The other form waits for 300 ms, and goes on as if it had been granted the name.
func TestANodeThatWaitedLongEnoughTakesTheName(t *testing.T) {
	t.Parallel() // it waits for its server to start
	all := nodeCaches(t, sourcelock.NodeCacheTimeout, 2)
	first := locktest.Hold(t, all[0], "timed")
	start := time.Now()
	second := locktest.Hold(t, all[1], "timed")
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("it waited for %s", took)
	}
	locktest.Release(t, second)
	locktest.Release(t, first)
}
