package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// redlock asks all masters at once: none of them answers before each has been asked, and the
// name can be granted all the same. One after the other, each would be waited for in vain. A
// busy machine may need longer than the half second that a master has, so that it is tried
// a few times.
func TestRedlockAsksAllMastersAtOnce(t *testing.T) {
	const tries = 5
	masters := lab.Redlock(t)
	for range tries {
		if isGrantedWhereAllAreAskedFirst(t, masters) {
			return
		}
	}
	t.Errorf("in none of %d tries were all masters asked before the first was given up", tries)
}

func isGrantedWhereAllAreAskedFirst(t *testing.T, masters *servers.Redlock) bool {
	t.Helper()
	entry, err := registry.Find("redlock")
	if err != nil {
		t.Fatal(err)
	}
	clients := new(backend.Clients)
	asked := make([]*servers.Trigger, len(masters.Nodes))
	for i, master := range masters.Nodes {
		way := labtest.NewProxy(t, master.Address)
		client := clientAt(master, way.Address)
		t.Cleanup(func() { _ = client.Close() }) // the test is over
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		asked[i] = way.Arm(servers.Rule{Sent: "\r\nset\r\n", Do: servers.Hold})
		clients.Redlock = append(clients.Redlock, client)
	}
	const ttl = 30 * time.Second // of which a master may take half a second to answer
	locker := entry.New(lock.Deps{Clients: clients, TTL: ttl, Retry: 10 * time.Millisecond})
	granted := make(chan lock.Lease)
	go func() {
		lease, err := locker.Acquire(t.Context(), "at-once/"+lock.NewOwner())
		if err != nil {
			t.Logf("not granted: %v", err)
		}
		granted <- lease
	}()
	within, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, master := range asked {
		_ = master.Wait(within) // where it is not asked, the name is not granted
	}
	for _, master := range asked {
		master.Pass()
	}
	lease := <-granted
	if lease == nil {
		return false
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return true
}

// A name whose token cannot be issued is not granted, and the next one need not wait for its lease.
func TestANameWithoutItsTokenIsGivenBack(t *testing.T) {
	entry, err := registry.Find("redlock")
	if err != nil {
		t.Fatal(err)
	}
	clients := new(backend.Clients)
	for _, master := range lab.Redlock(t).Nodes {
		client := clientAt(master, master.Address)
		t.Cleanup(func() { _ = client.Close() }) // the test is over
		clients.Redlock = append(clients.Redlock, client)
	}
	broken := errors.New("no token can be issued")
	deps := lock.Deps{Clients: clients, TTL: time.Hour, Retry: 10 * time.Millisecond}
	deps.Issue = func(context.Context, string) (uint64, error) { return 0, broken }
	name := "no-token/" + lock.NewOwner()
	if lease, err := entry.New(deps).Acquire(t.Context(), name); lease != nil || !errors.Is(err, broken) {
		t.Fatalf("without a token it is answered with %v, %v", lease, err)
	}
	within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	deps.Issue = func(context.Context, string) (uint64, error) { return 7, nil }
	lease, err := entry.New(deps).Acquire(within, name)
	if err != nil {
		t.Fatalf("the next one is not granted: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil || lease.Token() != 7 {
		t.Errorf("its token is %d, and it is released with %v", lease.Token(), err)
	}
}
