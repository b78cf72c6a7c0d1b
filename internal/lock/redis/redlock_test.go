package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// redlock asks all masters at once: none of them answers before each has been asked, and the
// name is granted all the same. One after the other, each would have been waited for in vain.
func TestRedlockAsksAllMastersAtOnce(t *testing.T) {
	entry, err := registry.Find("redlock")
	if err != nil {
		t.Fatal(err)
	}
	clients := new(backend.Clients)
	var asked []*servers.Trigger
	for _, master := range lab.Redlock(t).Nodes {
		way := labtest.NewProxy(t, master.Address)
		asked = append(asked, way.Arm(servers.Rule{Sent: "\r\nset\r\n", Do: servers.Hold}))
		client := clientAt(master, way.Address)
		defer client.Close() //nolint:errcheck // the test is over
		clients.Redlock = append(clients.Redlock, client)
	}
	const ttl = 30 * time.Second // of which a master may take half a second to answer
	locker := entry.New(lock.Deps{Clients: clients, TTL: ttl, Retry: 10 * time.Millisecond})
	granted := make(chan lock.Lease, 1)
	go func() {
		lease, err := locker.Acquire(t.Context(), "at-once")
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	}()
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, master := range asked {
		if err := master.Wait(within); err != nil {
			t.Fatal(err)
		}
	}
	for _, master := range asked {
		master.Pass()
	}
	if lease := <-granted; lease != nil {
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
