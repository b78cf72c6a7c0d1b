package zk_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	zklock "github.com/stockd/stockd/internal/lock/zk"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// The node that a waiter is about to watch goes before the watch is set: it must
// not wait for an event that has been.
func TestZKMissesNoRelease(t *testing.T) {
	eachZK(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		name := zkName()
		lease := locktest.Hold(t, zkAt(t, kind, server), name)
		way := labtest.NewProxy(t, server)
		request := zkWatching(zkGetData, admin.nodes(t, kind, name)[0])
		if kind == "zk-herd" {
			request = zkWatching(zkGetChildren, zkFolder(kind, name))
		}
		held := way.Arm(servers.Rule{Sent: request, Do: servers.Hold})
		defer held.Pass()
		waiter := locktest.HoldLater(t.Context(), zkAt(t, kind, way.Address), name)
		labtest.AwaitReached(t, held)
		locktest.Release(t, lease)
		held.Pass()
		locktest.Release(t, waiter.Within(t, zklock.LooksAgain/2))
	})
}

// A waiter's look is lost with its connection, and another of its replica, two places before it, has its turn and goes
// before the waiter looks again: the place between the two is that of another replica, and it is its turn.
func TestZKAWaiterIsNotGrantedBehindAPlaceItHasNotSeen(t *testing.T) {
	server := lab.ZooKeeper(t).Address
	admin, way, name := newZKAdmin(t, server), labtest.NewProxy(t, server), zkName()
	ours, other := zkAt(t, "zk-sequential", way.Address), zkAt(t, "zk-sequential", server)
	enter := func(l lock.Locker, places int) *locktest.Later {
		w := locktest.HoldLater(t.Context(), l, name)
		admin.awaitNodes(t, "zk-sequential", name, places, zkWait)
		return w
	}
	failed, again := make(chan struct{}), make(chan struct{})
	zklock.AfterAFailedLook(ours, 3, func() { close(failed); <-again })
	lease := locktest.Hold(t, other, name)
	waits := way.Arm(servers.Rule{Sent: zkWatching(zkGetData, admin.nodes(t, "zk-sequential", name)[0]), Do: servers.Count})
	first := enter(ours, 2)
	labtest.Await(t, "the watch of the first waiter", zkWait, func() bool { return waits.Seen() == 1 })
	between := enter(other, 3)
	lost := way.Arm(servers.Rule{Sent: zkFolder("zk-sequential", name) + "\x00", Do: servers.Lose})
	last := enter(ours, 4)
	labtest.AwaitReached(t, lost)
	<-failed
	locktest.Release(t, lease)
	locktest.Release(t, first.Within(t, zkWait))
	lease = between.Within(t, zkWait)
	close(again)
	select {
	case <-last.Done:
		t.Error("two replicas hold the name")
	case <-time.After(200 * time.Millisecond):
	}
	locktest.Release(t, lease)
	locktest.Release(t, last.Within(t, zkWait))
}

// meter counts the requests that a server has had, but for its own.
type meter struct {
	address string
	asked   int
}

func (m *meter) read(t *testing.T) (n int) {
	t.Helper()
	conn := must.Get(net.Dial("tcp", m.address))(t)
	defer conn.Close() //nolint:errcheck // the server ends it
	must.Get(io.WriteString(conn, "srvr"))(t)
	said := must.Get(io.ReadAll(conn))(t)
	_, rest, _ := strings.Cut(string(said), "Received: ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("%v in %s", err, said)
	}
	m.asked++
	return n - m.asked
}

// settled waits until the server has nothing to do, and returns what it had.
func (m *meter) settled(t *testing.T) int {
	t.Helper()
	before := m.read(t)
	for range 100 {
		time.Sleep(300 * time.Millisecond)
		now := m.read(t)
		if now == before {
			return now
		}
		before = now
	}
	t.Fatal("the server is never at rest")
	return 0
}

// A waiter that is woken looks, and the server counts the looks.
func TestZKReleaseWakesTheHerdOrOne(t *testing.T) {
	const waiters = 12
	server := lab.OwnZooKeeper(t)
	woken := make(map[string]int)
	for _, kind := range zkLocks() {
		woken[kind] = wokenByARelease(t, server.Address, kind, waiters)
	}
	// The release is a request itself, and so is the watch of the next lease.
	if woken["zk-sequential"] > 3 {
		t.Errorf("a release in zk-sequential caused %d requests, want it to wake one", woken["zk-sequential"])
	}
	for _, kind := range []string{"zk-ephemeral", "zk-herd"} {
		if woken[kind] < waiters {
			t.Errorf("a release in %s caused %d requests, want it to wake all %d", kind, woken[kind], waiters)
		}
	}
}

// wokenByARelease counts the requests that a release causes, its own included.
func wokenByARelease(t *testing.T, address, kind string, waiters int) int {
	t.Helper()
	name := zkName()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	replica := func() lock.Locker { // a session so long that no ping falls into the test on a busy machine either
		return onZK(t, kind, zkClient(t, backend.ZooKeeperOptions{Servers: []string{address}, SessionTimeout: 10 * time.Minute}))
	}
	lease := locktest.Hold(t, replica(), name)
	granted := make(chan struct{}, waiters)
	for range waiters {
		l := replica()
		all.Go(func() {
			lease, err := l.Acquire(ctx, name)
			if err != nil {
				return
			}
			granted <- struct{}{}
			<-ctx.Done()
			_ = lease.Release(t.Context())
		})
	}
	requests := &meter{address: address}
	before := requests.settled(t)
	locktest.Release(t, lease)
	<-granted
	return requests.settled(t) - before
}

// Waiters that give up behind a long holder do not each leave a watch.
func TestZKWaitersShareAWatch(t *testing.T) {
	server := lab.ZooKeeper(t)
	admin := newZKAdmin(t, server.Address)
	for _, kind := range []string{"zk-ephemeral", "zk-sequential"} {
		t.Run(kind, func(t *testing.T) {
			name := zkName()
			lease := locktest.Hold(t, zkAt(t, kind, server.Address), name)
			way := labtest.NewProxy(t, server.Address)
			watches := way.Arm(servers.Rule{Sent: zkWatching(zkGetData, admin.nodes(t, kind, name)[0]), Do: servers.Count})
			l := zkAt(t, kind, way.Address)
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, err := l.Acquire(ctx, name)
				cancel()
				if !errors.Is(err, lock.ErrNotAcquired) {
					t.Fatal(err)
				}
			}
			should.Be(t, watches.Seen(), 1, "twenty waiters set … watches on the same node")
			locktest.Release(t, lease)
			locktest.Release(t, locktest.Hold(t, l, name))
		})
	}
}

// In one replica, each is notified of the one before it without a request to the server;
// between two replicas, no place passes another.
func TestZKSequentialNotifiesWithinAReplica(t *testing.T) {
	const rounds = 50
	server := lab.OwnZooKeeper(t)
	l, name := zkAt(t, "zk-sequential", server.Address), zkName()
	locktest.Release(t, locktest.Hold(t, l, name))
	requests := &meter{address: server.Address}
	before := requests.read(t)
	for range rounds {
		locktest.Release(t, locktest.Hold(t, l, name))
	}
	if took := requests.read(t) - before; took > 2*rounds+rounds/2 { // there are pings, too
		t.Errorf("%d holds took %d requests, want two each", rounds, took)
	}
}

// A place that gives up in the middle of the line, in this replica and between two, delays
// no other and lets none past.
func TestZKSequentialKeepsItsOrderWhenSomeGiveUp(t *testing.T) {
	server := lab.ZooKeeper(t)
	admin := newZKAdmin(t, server.Address)
	replicas := []lock.Locker{zkAt(t, "zk-sequential", server.Address), zkAt(t, "zk-sequential", server.Address)}
	name := zkName()
	lease := locktest.Hold(t, replicas[0], name)
	const n = 12
	waiters, leave := make([]*locktest.Later, n), make([]context.CancelFunc, n)
	for i := range waiters {
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(t.Context())
		defer leave[i]()
		waiters[i] = locktest.HoldLater(ctx, replicas[(i/2)%2], name) // two of a replica, two of the other
		admin.awaitNodes(t, "zk-sequential", name, i+2, zkWait)
	}
	for i := range waiters {
		if i%3 == 1 {
			leave[i]()
			<-waiters[i].Done
		}
	}
	for i, w := range waiters {
		if i%3 == 1 {
			continue
		}
		for j := i; j < n; j++ {
			if j%3 != 1 && waiters[j].IsDone() {
				t.Errorf("waiter %d was let in before waiter %d", j, i)
			}
		}
		locktest.Release(t, lease)
		next := w.Within(t, zkWait)
		if next.Token() <= lease.Token() {
			t.Errorf("token %d came after %d", next.Token(), lease.Token())
		}
		lease = next
	}
	locktest.Release(t, lease)
	admin.awaitNodes(t, "zk-sequential", name, 0, time.Second)
}

// A waiter's node is deleted by another client. It never had its turn: those behind it must
// not take its end for theirs.
func TestZKWaitersOutliveTheDeletionOfANode(t *testing.T) {
	t.Parallel()
	eachQueue(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		l, name := zkAt(t, kind, server), zkName()
		lease := locktest.Hold(t, zkAt(t, kind, server), name)
		first := locktest.HoldLater(t.Context(), l, name)
		nodes := admin.awaitNodes(t, kind, name, 2, zkWait)
		second := locktest.HoldLater(t.Context(), l, name)
		admin.awaitNodes(t, kind, name, 3, zkWait)
		must.Do(t, admin.Delete(nodes[1], -1))
		admin.awaitNodes(t, kind, name, 3, zkWait) // the first has come again, behind the second
		if first.IsDone() || second.IsDone() {
			t.Error("a waiter was let in beside the holder")
		}
		locktest.Release(t, lease)
		locktest.Release(t, second.Within(t, zkWait))
		locktest.Release(t, first.Within(t, zkWait))
		admin.awaitNodes(t, kind, name, 0, time.Second)
	})
}

// The server counts in 32 bits. Where they are used up, the folder is made anew,
// and tokens go on growing.
func TestZKQueueBeginsAnewWhenItsNumbersAreUsedUp(t *testing.T) {
	eachQueue(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		name := zkName()
		var last uint64
		var holders sync.WaitGroup
		for range 3 {
			l := zkAt(t, kind, server)
			zklock.LastNumber(l, 4)
			for range 2 {
				holders.Go(func() {
					for range 5 {
						ctx, cancel := context.WithTimeout(t.Context(), 3*zkWait)
						lease, err := l.Acquire(ctx, name)
						cancel()
						if err != nil {
							t.Error(err)
							return
						}
						if token := lease.Token(); token <= last { // the race detector watches
							t.Errorf("token %d came after %d", token, last)
						}
						last = lease.Token()
						locktest.Release(t, lease)
					}
				})
			}
		}
		holders.Wait()
		l := zkAt(t, kind, server)
		zklock.LastNumber(l, 4)
		lease := locktest.Hold(t, l, name)
		if node := admin.nodes(t, kind, name)[0]; node[strings.LastIndex(node, "-"):] > "-0000000004" {
			t.Errorf("the numbers have not begun anew: %s", node)
		}
		locktest.Release(t, lease)
	})
}

// While others are in a folder whose numbers are used up, a request pauses before it looks again.
func TestZKQueueDoesNotSpinWhileItsNumbersAreUsedUp(t *testing.T) {
	const most, wait = 10, 300 * time.Millisecond
	server := lab.ZooKeeper(t)
	admin, kind, name := newZKAdmin(t, server.Address), "zk-herd", zkName()
	lease := locktest.Hold(t, zkAt(t, kind, server.Address), name)
	way := labtest.NewProxy(t, server.Address)
	clients := &backend.Clients{ZooKeeper: zkClient(t, backend.ZooKeeperOptions{Servers: []string{way.Address}})}
	l := zklock.Herd().New(lock.Deps{Clients: clients, Retry: wait / 5})
	locktest.Release(t, locktest.Hold(t, l, zkName())) // connects
	zklock.LastNumber(l, 0)
	tries := way.Arm(servers.Rule{Sent: "\x00\x00\x00\x0e", Do: servers.Count}) // of operations together
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if _, err := l.Acquire(ctx, name); !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the name is held, and the wait ends with %v", err)
	}
	if n := tries.Seen(); n == 0 || n > most {
		t.Errorf("it entered %d times in %s, want about 5", n, wait)
	}
	admin.awaitNodes(t, kind, name, 1, time.Second)
	locktest.Release(t, lease)
	zklock.LastNumber(l, 1<<20)
	locktest.Release(t, locktest.Hold(t, l, name))
}

// The folder of a name is the server's to remove when it is empty, and ours to
// make again.
func TestZKFolderGoesAndComesAgain(t *testing.T) {
	eachZK(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		l, name := zkAt(t, kind, server), zkName()
		var last uint64
		for range 3 {
			lease := locktest.Hold(t, l, name)
			if lease.Token() <= last {
				t.Errorf("token %d came after %d", lease.Token(), last)
			}
			last = lease.Token()
			locktest.Release(t, lease)
			if err := admin.Delete(zkFolder(kind, name), -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
		}
		locktest.Release(t, locktest.Hold(t, l, name))
		labtest.Await(t, "the end of the folder of a name without waiters", zkWait, func() bool {
			there, _, err := admin.Exists(zkFolder(kind, name))
			return err == nil && !there
		})
	})
}

// The numbers of ZooKeeper's operations.
const (
	zkGetData     = 4
	zkGetChildren = 12
)

// zkWatching is how a request looks that reads a path and watches it.
func zkWatching(operation uint32, path string) string {
	request := binary.BigEndian.AppendUint32(nil, operation)
	request = binary.BigEndian.AppendUint32(request, uint32(len(path)))
	return string(append(append(request, path...), 1))
}
