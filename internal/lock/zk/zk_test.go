package zk_test

import (
	"context"
	crypto "crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	zklock "github.com/stockd/stockd/internal/lock/zk"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// zkLocks are the locks on ZooKeeper; the latter two stand in queues.
func zkLocks() []string { return []string{"zk-ephemeral", "zk-herd", "zk-sequential"} }

// eachZK tests every lock on the lab's server.
func eachZK(t *testing.T, test func(t *testing.T, kind, server string, admin zkAdmin)) {
	t.Helper()
	on(t, zkLocks(), test)
}

// eachQueue tests those that stand in queues.
func eachQueue(t *testing.T, test func(t *testing.T, kind, server string, admin zkAdmin)) {
	t.Helper()
	on(t, zkLocks()[1:], test)
}

func on(t *testing.T, kinds []string, test func(t *testing.T, kind, server string, admin zkAdmin)) {
	t.Helper()
	server := lab.ZooKeeper(t).Address
	admin := newZKAdmin(t, server)
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { test(t, kind, server, admin) })
	}
}

// zkClient is the client of one replica.
func zkClient(t *testing.T, o backend.ZooKeeperOptions) *backend.ZooKeeperClient {
	t.Helper()
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 10 * time.Second
	}
	c := backend.NewZooKeeper(o)
	t.Cleanup(c.Close)
	return c
}

func onZK(t *testing.T, kind string, client *backend.ZooKeeperClient) lock.Locker {
	t.Helper()
	entry := must.Get(registry.Find(kind))(t)
	return entry.New(lock.Deps{Clients: &backend.Clients{ZooKeeper: client}, Retry: 5 * time.Millisecond})
}

// zkAt is a lock of a replica of its own.
func zkAt(t *testing.T, kind, address string) lock.Locker {
	t.Helper()
	return onZK(t, kind, zkClient(t, backend.ZooKeeperOptions{Servers: []string{address}}))
}

// zkAdmin sees and does what no lock does.
type zkAdmin struct{ *zk.Conn }

func newZKAdmin(t *testing.T, address string) zkAdmin {
	t.Helper()
	conn, _, err := zk.Connect([]string{address}, time.Minute, zk.WithLogger(quiet{}))
	must.Do(t, err)
	t.Cleanup(conn.Close)
	return zkAdmin{conn}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// nodes are those of a name, in the order in which they were made.
func (a zkAdmin) nodes(t *testing.T, kind, name string) []string {
	t.Helper()
	folder := zkFolder(kind, name)
	names, _, err := a.Children(folder)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(a[strings.Index(a, "-")+1:], b[strings.Index(b, "-")+1:])
	})
	for i := range names {
		names[i] = folder + "/" + names[i]
	}
	return names
}

func zkFolder(kind, name string) string { return "/stockd/" + kind + "/" + url.PathEscape(name) }

// awaitNodes waits until there are as many nodes of a name.
func (a zkAdmin) awaitNodes(t *testing.T, kind, name string, n int, limit time.Duration) []string {
	t.Helper()
	var nodes []string
	labtest.Await(t, fmt.Sprint(n, " nodes of ", name), limit, func() bool { nodes = a.nodes(t, kind, name); return len(nodes) == n })
	return nodes
}

// zkName is a name that no other test locks.
func zkName() string { return "zk test/" + crypto.Text() }

// zkWait is how long something may take that must happen.
const zkWait = 10 * time.Second

// A holder that is cut off has lost the name at once, as far as it knows; but the
// session lives on, and would keep the node.
func TestZKSuspensionIsLossAndLeavesNoNode(t *testing.T) {
	eachZK(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		way := labtest.NewProxy(t, server)
		client := zkClient(t, backend.ZooKeeperOptions{Servers: []string{way.Address}})
		l, name := onZK(t, kind, client), zkName()
		lease := locktest.Hold(t, l, name)
		session := client.SessionID()
		way.Cut()
		labtest.AwaitLoss(t, lease, time.Second)
		nodes := admin.nodes(t, kind, name)
		must.Be(t, len(nodes), 1, "there are … nodes of a session that lives", nodes)
		zkMend(t, way)
		admin.awaitNodes(t, kind, name, 0, 5*time.Second)
		locktest.Release(t, locktest.Hold(t, l, name))
		should.Be(t, client.SessionID(), session, "the session did not live on, and its end removed the node")
	})
}

// A waiter that loses its connection keeps its node, and with it its place, for as long as its
// session lives.
func TestZKWaitersKeepTheirPlaceOverALostConnection(t *testing.T) {
	eachQueue(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		name, way := zkName(), labtest.NewProxy(t, server)
		lease := locktest.Hold(t, zkAt(t, kind, server), name)
		waiter := locktest.HoldLater(t.Context(), zkAt(t, kind, way.Address), name)
		place := admin.awaitNodes(t, kind, name, 2, zkWait)[1]
		_, stat, err := admin.Get(place)
		must.Do(t, err)
		way.Cut()
		locktest.Release(t, lease)
		zkMend(t, way)
		granted := waiter.Within(t, zkWait)
		should.Be(t, granted.Token(), uint64(stat.Czxid), "it was granted by the node of …, and waited by that", stat.Czxid)
		locktest.Release(t, granted)
		admin.awaitNodes(t, kind, name, 0, zkWait)
	})
}

// A name that is granted on a connection which has ended would be lost at once: the waiter looks again
// on the next one.
func TestZKGrantsOnAConnectionThatStands(t *testing.T) {
	server := lab.ZooKeeper(t)
	for _, kind := range []string{"zk-herd", "zk-sequential"} {
		t.Run(kind, func(t *testing.T) {
			way := labtest.NewProxy(t, server.Address)
			l, name := zkAt(t, kind, way.Address), zkName()
			zklock.EndOnTurn(l, way.Break)
			lease := locktest.Hold(t, l, name)
			should.Fail(t, lease.Context().Err(), nil, "it is granted, and …", context.Cause(lease.Context()))
			locktest.Release(t, lease)
		})
	}
}

// A waiter outlives its session: it begins again with another.
func TestZKExpiryIsLossAndWaitersBeginAgain(t *testing.T) {
	t.Parallel()
	const timeout = 700 * time.Millisecond
	eachZK(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		way := labtest.NewProxy(t, server)
		client := zkClient(t, backend.ZooKeeperOptions{
			Servers: []string{way.Address}, SessionTimeout: timeout, DialTimeout: zkWait,
		})
		l, name, held := onZK(t, kind, client), zkName(), zkName()
		holder := locktest.Hold(t, zkAt(t, kind, server), name)
		lost := locktest.Hold(t, l, held)
		waiter := locktest.HoldLater(t.Context(), l, name)
		if kind != "zk-ephemeral" {
			admin.awaitNodes(t, kind, name, 2, zkWait)
		}
		session := client.SessionID()
		way.Cut()
		labtest.AwaitLoss(t, lost, time.Second)
		admin.awaitNodes(t, kind, held, 0, zkWait) // the server has ended the session
		zkMend(t, way)
		if kind != "zk-ephemeral" {
			admin.awaitNodes(t, kind, name, 2, zkWait)
		}
		locktest.Release(t, holder)
		locktest.Release(t, waiter.Within(t, zkWait))
		if client.SessionID() == session {
			t.Error("the session has not ended")
		}
		admin.awaitNodes(t, kind, name, 0, time.Second)
	})
}

// The server answers the first look of a holder at its node when that is not waited for any more.
func TestZKDeletionIsLossWhereTheServerWasSlow(t *testing.T) {
	const kind, dials = "zk-ephemeral", 200 * time.Millisecond // an answer may take twice as long
	server, name := lab.ZooKeeper(t), zkName()
	admin, way := newZKAdmin(t, server.Address), labtest.NewProxy(t, server.Address)
	path := zkFolder(kind, name) + "/lock"
	held := way.Arm(servers.Rule{Sent: zkWatching(zkGetData, path), Do: servers.Hold})
	defer held.Pass()
	client := zkClient(t, backend.ZooKeeperOptions{Servers: []string{way.Address}, DialTimeout: dials})
	lease := locktest.Hold(t, onZK(t, kind, client), name)
	labtest.AwaitReached(t, held)
	time.Sleep(5 * dials)
	held.Pass()
	if err := context.Cause(lease.Context()); err != nil {
		t.Fatalf("it is lost before the node is deleted: %v", err)
	}
	must.Do(t, admin.Delete(path, -1))
	labtest.AwaitLoss(t, lease, zkWait)
}

// The node is deleted, and another client has made its own at the same path, before the
// holder looks at it for the first time.
func TestZKAnothersNodeAtTheSamePathIsLoss(t *testing.T) {
	const kind = "zk-ephemeral" // the others have a node of their own name each time
	server, name := lab.ZooKeeper(t), zkName()
	admin, other := newZKAdmin(t, server.Address), zkAt(t, kind, server.Address)
	before := locktest.Hold(t, other, name)
	path := admin.nodes(t, kind, name)[0]
	locktest.Release(t, before)
	way := labtest.NewProxy(t, server.Address)
	held := way.Arm(servers.Rule{Sent: zkWatching(zkGetData, path), Do: servers.Hold})
	defer held.Pass()
	lease := locktest.Hold(t, zkAt(t, kind, way.Address), name)
	labtest.AwaitReached(t, held)
	must.Do(t, admin.Delete(path, -1))
	locktest.Hold(t, other, name)
	held.Pass()
	labtest.AwaitLoss(t, lease, time.Second)
}

// Another client wrote into the folder of zk-ephemeral, by whose version the holder knows
// that the node is still its own.
func TestZKEphemeralReleasesAlthoughItsFolderWasChanged(t *testing.T) {
	server := lab.ZooKeeper(t)
	admin := newZKAdmin(t, server.Address)
	name := zkName()
	lease := locktest.Hold(t, zkAt(t, "zk-ephemeral", server.Address), name)
	must.Get(admin.Set(zkFolder("zk-ephemeral", name), []byte("hello"), -1))(t)
	locktest.Release(t, lease)
	admin.awaitNodes(t, "zk-ephemeral", name, 0, time.Second)
}

func assertZKFailed(t *testing.T, err error, says string) {
	t.Helper()
	failed, ok := errors.AsType[*stock.BackendError](err)
	if !errors.Is(err, lock.ErrNotAcquired) || !ok || failed.Backend != "zookeeper" || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %v, zookeeper and %q", err, lock.ErrNotAcquired, says)
	}
}

// zkMend lets a way be used again that was cut.
func zkMend(t *testing.T, way *servers.Proxy) {
	t.Helper()
	must.Do(t, way.Mend())
}

// A connection that is cut is replaced at once, as long as its session lives.
func TestZKReplacesALostConnectionAtOnce(t *testing.T) {
	server := lab.ZooKeeper(t)
	cut := labtest.NewProxy(t, server.Address)
	clients := &backend.Clients{ZooKeeper: zkClient(t, backend.ZooKeeperOptions{Servers: []string{cut.Address}})}
	must.Do(t, clients.Ping(t.Context(), backend.ZooKeeper))
	time.Sleep(1100 * time.Millisecond) // one that breaks again and again is not
	labtest.Lose(cut, "/stockd", false)
	_ = clients.Ping(t.Context(), backend.ZooKeeper) // this one is cut
	start := time.Now()
	must.Do(t, clients.Ping(t.Context(), backend.ZooKeeper))
	if waited := time.Since(start); waited > 900*time.Millisecond {
		t.Errorf("there was no connection for %s", waited)
	}
}

func TestZKAClosedClientSaysSo(t *testing.T) {
	client := zkClient(t, backend.ZooKeeperOptions{Servers: []string{lab.ZooKeeper(t).Address}})
	l, name := onZK(t, "zk-sequential", client), zkName()
	lease := locktest.Hold(t, l, name)
	client.Close()
	client.Close()
	labtest.AwaitLoss(t, lease, time.Second)
	_, err := l.Acquire(t.Context(), name)
	assertZKFailed(t, err, zk.ErrClosing.Error())
}

// A waiter tells which node is its own, and that the watch woke it; one that did not wait was not
// woken.
func TestZKTellsItsNodeAndWhatWokeIt(t *testing.T) {
	eachZK(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		name, first, second := zkName(), new(locktest.Notes), new(locktest.Notes)
		lease := locktest.HoldUnder(lock.WithNotes(t.Context(), first.Take), t, zkAt(t, kind, server), name)
		own := admin.nodes(t, kind, name)[0]
		way := labtest.NewProxy(t, server)
		request := zkWatching(zkGetData, own)
		if kind == "zk-herd" {
			request = zkWatching(zkGetChildren, zkFolder(kind, name))
		}
		watches := way.Arm(servers.Rule{Sent: request, Do: servers.HoldReply})
		defer watches.Pass()
		waiter := locktest.HoldLater(lock.WithNotes(t.Context(), second.Take), zkAt(t, kind, way.Address), name)
		labtest.AwaitReached(t, watches)
		watches.Pass()
		locktest.Release(t, lease)
		next := waiter.Within(t, zkWait)
		if notes := first.All(); len(notes) != 1 || first.Count(lock.Placed, own) != 1 || notes[0].At.IsZero() {
			t.Errorf("the first, which did not wait, tells %+v, want its node %s", notes, own)
		}
		own = admin.nodes(t, kind, name)[0]
		if notes := second.All(); second.Count(lock.Placed, own) != 1 || second.Count(lock.Woken, lock.ByWatch) == 0 || notes[1].At.IsZero() {
			t.Errorf("the second tells %+v, want its node %s, and that a watch woke it", notes, own)
		}
		locktest.Release(t, next)
	})
}

// A server that answers with an error that the library does not know, as with a quota that is exceeded, has answered: the
// Acquire fails with what it says, and does not ask on. What is left of an earlier one goes all the same.
func TestAnErrorThatTheLibraryDoesNotKnowIsAnAnswer(t *testing.T) {
	eachZK(t, func(t *testing.T, kind, server string, admin zkAdmin) {
		const rejected = "-125" // quota exceeded
		way, prefix, name := labtest.NewProxy(t, server), "quota-"+kind, zkName()
		entry, err := registry.Find(kind)
		must.Do(t, err)
		client := zkClient(t, backend.ZooKeeperOptions{Servers: []string{way.Address}})
		l := entry.New(lock.Deps{Clients: &backend.Clients{ZooKeeper: client, Prefix: prefix}, Retry: 5 * time.Millisecond})
		lease := locktest.Hold(t, l, name) // the folders are there
		admin.limit(t, prefix, 1)
		asked := way.Arm(servers.Rule{Sent: url.PathEscape(name), Do: servers.Count})
		rejects := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, name)
			return err
		}
		err = rejects()
		if kind != "zk-ephemeral" && (err == nil || !strings.Contains(err.Error(), rejected)) {
			t.Errorf("acquired over the quota with %v, want the server's %s", err, rejected)
		}
		locktest.Release(t, lease)
		err = rejects()
		if err == nil || !strings.Contains(err.Error(), rejected) || !errors.Is(err, stock.ErrBackendUnavailable) {
			t.Errorf("acquired over the quota with %v, want the server's %s", err, rejected)
		}
		if n := asked.Seen(); n > 20 {
			t.Errorf("the server was asked %d times", n)
		}
		if left := admin.nodesBelow(t, zklock.Folder(prefix, kind, name)); left > 0 {
			t.Errorf("%d nodes are left", left)
		}
	})
}

// limit lets no more nodes be made below a prefix.
func (a zkAdmin) limit(t *testing.T, prefix string, nodes int) {
	t.Helper()
	path := "/zookeeper/quota/" + prefix
	for _, node := range [][2]string{
		{"", ""},
		{"/zookeeper_limits", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=" + strconv.Itoa(nodes)},
		{"/zookeeper_stats", "count=9,bytes=0"},
	} {
		must.Get(a.Create(path+node[0], []byte(node[1]), 0, zk.WorldACL(zk.PermAll)))(t)
	}
}

// nodesBelow counts the nodes in a folder.
func (a zkAdmin) nodesBelow(t *testing.T, folder string) int {
	t.Helper()
	names, _, err := a.Children(folder)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return len(names)
}
