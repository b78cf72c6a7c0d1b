package servers_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/servers"
)

func TestASessionExpiresWhileItsClientIsThere(t *testing.T) {
	server := lab.ZooKeeper(t)
	conn, events, err := zk.Connect([]string{server.Address}, time.Minute, zk.WithLogger(silent{}))
	must(t, err)
	defer conn.Close()
	other, _, err := zk.Connect([]string{server.Address}, time.Minute, zk.WithLogger(silent{}))
	must(t, err)
	defer other.Close()
	const node = "/fault-session"
	_, err = conn.Create(node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	must(t, err)
	_, stat, err := other.Exists(node)
	must(t, err)
	if stat.EphemeralOwner != conn.SessionID() {
		t.Fatalf("the owner is %#x, want %#x", stat.EphemeralOwner, conn.SessionID())
	}
	must(t, servers.ExpireZooKeeper(t.Context(), server.Address, stat.EphemeralOwner))
	if there, _, err := other.Exists(node); err != nil || there {
		t.Errorf("the node of the session is there: %t, %v", there, err)
	}
	for bound := time.After(limit); ; {
		select {
		case e := <-events:
			if e.State == zk.StateExpired {
				return
			}
		case <-bound:
			t.Fatal("the client was not notified that its session expired")
		}
	}
}

func TestASessionThatIsNotThereDoesNotExpire(t *testing.T) {
	if err := servers.ExpireZooKeeper(t.Context(), lab.ZooKeeper(t).Address, 42); err == nil {
		t.Error("a session was ended that never was")
	}
	if err := servers.ExpireZooKeeper(t.Context(), "127.0.0.1:1", 42); err == nil {
		t.Error("a session was ended on a server that is not there")
	}
}

func TestALeaseIsRevokedWhileItsClientIsThere(t *testing.T) {
	client, err := lab.Etcd(t).Open()
	must(t, err)
	defer client.Close() //nolint:errcheck // it says that its context has ended
	ctx := within(t, limit)
	lease, err := client.Grant(ctx, 60)
	must(t, err)
	_, err = client.Put(ctx, "leased", "", clientv3.WithLease(lease.ID))
	must(t, err)
	_, err = client.Put(ctx, "free", "")
	must(t, err)
	must(t, servers.RevokeLease(ctx, client, "leased"))
	if found, err := client.Get(ctx, "leased"); err != nil || found.Count != 0 {
		t.Errorf("the key of the lease: %v, %v", found, err)
	}
	if err := errors.Join(servers.RevokeLease(ctx, client, "free"), servers.RevokeLease(ctx, client, "nowhere")); err == nil {
		t.Error("a lease was revoked that is none")
	}
}
