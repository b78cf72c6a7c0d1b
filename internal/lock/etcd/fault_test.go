package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

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

// etcdThrough is an etcd, reached through a proxy.
func etcdThrough(t *testing.T, server *servers.Etcd) (*servers.Proxy, *servers.Etcd) {
	t.Helper()
	proxy, through := labtest.NewProxy(t, strings.TrimPrefix(server.Endpoint, "http://")), *server
	through.Endpoint = proxy.Address
	return proxy, &through
}

// Keys that could not be deleted while etcd did not answer are deleted when it does, all of
// them: the session lives on, and would keep them.
func TestEtcdLeavesNothingOfACrowdCancelledWhileCutOff(t *testing.T) {
	t.Parallel() // it waits for attempts that are not answered
	const waiters, ttl = 5, 30 * time.Second
	server := lab.Etcd(t)
	cut, through := etcdThrough(t, server)
	admin := newEtcdAdmin(t, server)
	l := etcdReplica(t, through, ttl)
	lease := locktest.Hold(t, etcdReplica(t, server, ttl), t.Name())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var crowd sync.WaitGroup
	for range waiters {
		crowd.Go(func() {
			if _, err := l.Acquire(ctx, t.Name()); err == nil {
				t.Error("the name is taken, and granted")
			}
		})
	}
	admin.await(t, t.Name(), waiters+1, etcdLimit)
	cut.Freeze()
	cancel()
	crowd.Wait()
	time.Sleep(4 * etcdlock.Patience) // the deletions were not answered, nor the first one when they were repeated
	cut.Thaw()
	admin.await(t, t.Name(), 1, etcdSoon)
	locktest.Release(t, lease)
}

// watchers is what an etcd says of how many watches it serves.
func watchers(t *testing.T, endpoint string) int {
	t.Helper()
	response := must.Get(http.Get(endpoint + "/metrics"))(t)
	defer response.Body.Close() //nolint:errcheck // it was read
	metrics := must.Get(io.ReadAll(response.Body))(t)
	found := regexp.MustCompile(`(?m)^etcd_debugging_mvcc_watcher_total (\d+)$`).FindSubmatch(metrics)
	if found == nil {
		t.Fatal("etcd does not tell how many watches it serves")
	}
	n := must.Get(strconv.Atoi(string(found[1])))(t)
	return n
}

func TestEtcdWatchesOnceAReplica(t *testing.T) {
	const names, waiters = 5, 20
	server := lab.OwnEtcd(t)
	admin := newEtcdAdmin(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	for i := range names {
		l := etcdReplica(t, server, etcdTTL)
		for j := range names {
			name := fmt.Sprint(t.Name(), i, j)
			locktest.Hold(t, l, name)
			for range waiters {
				crowd.Go(func() { _, _ = l.Acquire(ctx, name) })
			}
			admin.await(t, name, waiters+1, etcdLimit)
		}
	}
	should.Be(t, watchers(t, server.Endpoint), names, "watches for … replicas")
	cancel()
	crowd.Wait()
}

// etcdStalling is a watch that may fall silent.
type etcdStalling struct {
	grpc.ClientStream

	silent *atomic.Bool
}

func (s etcdStalling) RecvMsg(answer any) error {
	err := s.ClientStream.RecvMsg(answer)
	if s.silent.Load() {
		<-s.Context().Done()
		return s.Context().Err()
	}
	return err
}

// etcdStallingReplica is a replica whose watches report nothing once silent is set;
// everything else goes on.
func etcdStallingReplica(t *testing.T, server *servers.Etcd) (l lock.Locker, silent *atomic.Bool) {
	t.Helper()
	silent = new(atomic.Bool)
	stall := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, conn, method, opts...)
		if err != nil || !strings.HasSuffix(method, "/Watch") {
			return stream, err
		}
		return etcdStalling{stream, silent}, nil
	}
	client := must.Get(clientv3.New(clientv3.Config{
		Endpoints: []string{server.Endpoint}, Username: servers.EtcdUser, Password: server.Password, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(stall)},
	}))(t)
	return etcdReplicaOn(t, client, etcdTTL), silent
}

func TestEtcdLooksForItselfWhereTheWatchIsSilent(t *testing.T) {
	const limit = 4 * time.Second
	server := lab.Etcd(t)
	admin, holder := newEtcdAdmin(t, server), etcdReplica(t, server, etcdTTL)
	waiter, silent := etcdStallingReplica(t, server)
	lease, lost := locktest.Hold(t, holder, t.Name()), locktest.Hold(t, waiter, t.Name()+"/lost")
	got := locktest.HoldLater(t.Context(), waiter, t.Name())
	etcdAwaitInLine(t, waiter)
	silent.Store(true)
	admin.delete(t, admin.keys(t, t.Name()+"/lost")[0].key)
	locktest.Release(t, lease)
	labtest.AwaitLoss(t, lost, limit)
	locktest.Release(t, got.Within(t, limit))
	locktest.Release(t, locktest.HoldWithin(t, waiter, t.Name(), etcdSoon)) // the only waiter needs no watch
}

// A release that comes before the watch has reported the loss finds it out, and does not
// touch the key that has replaced its own.
func TestEtcdReleasesOnlyWhatItCreated(t *testing.T) {
	server := lab.Etcd(t)
	admin := newEtcdAdmin(t, server)
	l, silent := etcdStallingReplica(t, server)
	lease := locktest.Hold(t, l, t.Name())
	key := admin.keys(t, t.Name())[0].key
	silent.Store(true)
	admin.delete(t, key)
	must.Get(admin.Put(t.Context(), key, "another's"))(t)
	if lease.Context().Err() != nil {
		t.Fatal("the loss was signalled before the release")
	}
	should.Fail(t, lease.Release(t.Context()), lock.ErrLost)
	should.Be(t, len(admin.keys(t, t.Name())), 1, "deleted what is another's")
	admin.delete(t, key)
}

// The watch is cut off, what happens meanwhile is compacted away, and so it
// cannot go on where it ended.
func TestEtcdOutlivesACompactionWhileCutOff(t *testing.T) {
	server := lab.OwnEtcd(t)
	admin := newEtcdAdmin(t, server)
	cut, through := etcdThrough(t, server)
	holder, waiter := etcdReplica(t, server, etcdTTL), etcdReplica(t, through, etcdTTL)
	lost, kept := locktest.Hold(t, waiter, t.Name()+"/lost"), locktest.Hold(t, waiter, t.Name()+"/kept")
	lease := locktest.Hold(t, holder, t.Name())
	got := locktest.HoldLater(t.Context(), waiter, t.Name())
	etcdAwaitInLine(t, waiter)
	cut.Hang(true)
	locktest.Release(t, lease)
	admin.delete(t, admin.keys(t, t.Name()+"/lost")[0].key)
	var last *clientv3.PutResponse
	var err error
	for range 10 {
		if last, err = admin.Put(t.Context(), "elsewhere", ""); err != nil {
			t.Fatal(err)
		}
	}
	must.Get(admin.Compact(t.Context(), last.Header.Revision, clientv3.WithCompactPhysical()))(t)
	cut.Hang(false)
	locktest.Release(t, got.Within(t, etcdTTL/2))
	labtest.AwaitLoss(t, lost, etcdSoon)
	should.Be(t, kept.Context().Err(), nil, "the session has ended with the watch")
	locktest.Release(t, kept)
}

func TestEtcdTellsAServerThatIsSilentFromANameThatIsTaken(t *testing.T) {
	t.Parallel()
	const limit = 4 * time.Second
	server := lab.OwnEtcd(t)
	l := etcdReplica(t, server, etcdTTL)
	lease := locktest.Hold(t, l, t.Name())
	wait := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := l.Acquire(ctx, t.Name())
		return err
	}
	if err := wait(limit / 10); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stock.ErrBackendUnavailable) {
		t.Errorf("%v, want that the name is taken", err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- wait(limit) }()
	newEtcdAdmin(t, server).await(t, t.Name(), 2, etcdLimit)
	must.Do(t, server.Pause(t.Context()))
	start := time.Now()
	etcdFails(t, wait(limit))
	if waited := time.Since(start); waited > limit/2 {
		t.Errorf("a later request got the error after %s", waited)
	}
	etcdFails(t, <-waiting)
	must.Do(t, server.Resume(t.Context()))
	locktest.Release(t, lease)
}

func TestEtcdLogsInWhenItIsUsed(t *testing.T) {
	server := lab.OwnEtcd(t)
	admin := newEtcdAdmin(t, server)
	must.Get(admin.AuthDisable(t.Context()))(t)
	locktest.Release(t, locktest.Hold(t, etcdReplica(t, server, etcdTTL), "a server without passwords"))
	must.Get(admin.AuthEnable(t.Context()))(t)
	as := func(user, password string) lock.Locker {
		o := etcdOptions(server, user)
		o.Password = password
		return etcdReplicaOf(t, o, etcdTTL)
	}
	for _, wrong := range []lock.Locker{as(servers.EtcdUser, "wrong"), as("unknown", "unknown"), as("", "")} {
		_, err := wrong.Acquire(t.Context(), t.Name())
		etcdFails(t, err)
	}
	l, other := etcdReplica(t, server, etcdTTL), etcdReplica(t, server, etcdTTL)
	for range 2 {
		lease := locktest.Hold(t, l, t.Name())
		got := locktest.HoldLater(t.Context(), other, t.Name())
		time.Sleep(100 * time.Millisecond)
		locktest.Release(t, lease)
		locktest.Release(t, got.Within(t, etcdLimit))
		must.Do(t, server.Restart(t.Context())) // it forgets its tokens
		etcdAwaitAnswer(t, l)
		etcdAwaitAnswer(t, other)
	}
}

// etcdAwaitAnswer acquires until etcd has answered: it may take longer than the patience of one
// request to come back, and no other failure is excused by that.
func etcdAwaitAnswer(t *testing.T, l lock.Locker) {
	t.Helper()
	var lease lock.Lease
	var err error
	labtest.Eventually(etcdLimit, func() bool {
		lease, err = l.Acquire(t.Context(), "a server that comes back")
		return !errors.Is(err, backend.ErrUnanswered)
	})
	must.Do(t, err)
	locktest.Release(t, lease)
}
