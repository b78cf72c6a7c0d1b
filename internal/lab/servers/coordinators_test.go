package servers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func etcdClient(t *testing.T, e *servers.Etcd) *clientv3.Client {
	t.Helper()
	client := must.Get(e.Open())(t)
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // it says that its context has ended
	return client
}

func TestEtcdKeepsItsDataOverAKill(t *testing.T) {
	e := lab.OwnEtcd(t)
	if e.Name != "etcd" || !strings.HasPrefix(e.Version, "3.") {
		t.Errorf("it is %+v", e.Info)
	}
	client, endpoint := etcdClient(t, e), e.Endpoint
	must.Get(client.Put(within(t, 5*time.Second), "kept", "value"))(t)
	must.Do(t, e.Kill(t.Context()))
	if _, err := client.Get(within(t, 300*time.Millisecond), "kept"); err == nil {
		t.Error("a killed server answers")
	}
	must.Do(t, e.Restart(t.Context()))
	should.Be(t, e.Endpoint, endpoint, "where it is, and was before")
	kept, err := etcdClient(t, e).Get(within(t, 5*time.Second), "kept")
	if err != nil || kept.Count != 1 || string(kept.Kvs[0].Value) != "value" {
		t.Errorf("the key of before the kill: %v, %v", kept, err)
	}
}

// A second is the shortest lease that etcd can grant, and it does.
func TestEtcdGrantsALeaseOfASecond(t *testing.T) {
	e := lab.OwnEtcd(t)
	lease, err := etcdClient(t, e).Grant(within(t, 5*time.Second), 1)
	if err != nil || lease.TTL != 1 {
		t.Errorf("granted is %+v: %v", lease, err)
	}
}

func TestAnEtcdOfAnotherRunIsNotTakenForOurs(t *testing.T) {
	if err := lab.Etcd(t).AsksFor(within(t, limit), "another"); err == nil || !strings.Contains(err.Error(), "another etcd answers") {
		t.Errorf("it is taken for another member: %v", err)
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connect(t *testing.T, z *servers.ZooKeeper) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{z.Address}, 2*time.Second, zk.WithLogger(silent{}))
	must.Do(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// eventually asks until it is so, for a bounded time.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	labtest.Await(t, what, 20*time.Second, ask)
}

func TestZooKeeperKeepsItsDataOverAKill(t *testing.T) {
	z := lab.OwnZooKeeper(t)
	if z.Name != "ZooKeeper" || !strings.Contains(z.Version, ".") || z.Started != servers.Local {
		t.Errorf("it is %+v", z.Info)
	}
	conn, address := connect(t, z), z.Address
	must.Get(conn.Create("/kept", []byte("value"), 0, zk.WorldACL(zk.PermAll)))(t)
	must.Do(t, z.Kill(t.Context()))
	eventually(t, "the connection is gone", func() bool { return conn.State() != zk.StateHasSession })
	must.Do(t, z.Restart(t.Context()))
	should.Be(t, z.Address, address, "where it is, and was before")
	eventually(t, "the client finds it again", func() bool { return conn.State() == zk.StateHasSession })
	if value, _, err := conn.Get("/kept"); err != nil || string(value) != "value" {
		t.Errorf("the node of before the kill: %q, %v", value, err)
	}
}

// A lock leaves an empty container behind, and no more than that.
func TestZooKeeperRemovesEmptyContainers(t *testing.T) {
	conn := connect(t, lab.ZooKeeper(t))
	must.Get(conn.CreateContainer("/container", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)))(t)
	child := must.Get(conn.Create("/container/child-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)))(t)
	must.Do(t, conn.Delete(child, -1))
	eventually(t, "the container is gone", func() bool {
		exists, _, err := conn.Exists("/container")
		return err == nil && !exists
	})
}

// Sessions are as long as their clients ask for, also short ones and long ones.
func TestZooKeeperGrantsTheSessionThatIsAskedFor(t *testing.T) {
	z := lab.OwnZooKeeper(t)
	for asked, granted := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 500 * time.Millisecond, // the shortest
		3 * time.Second:        3 * time.Second,
		time.Minute:            time.Minute,
	} {
		conn, _, err := zk.Connect([]string{z.Address}, asked, zk.WithLogger(silent{}))
		must.Do(t, err)
		defer conn.Close()
		shown := fmt.Sprintf("to=%d,", granted.Milliseconds())
		eventually(t, "a session of "+granted.String(), func() bool {
			sessions, err := z.Ask(t.Context(), "cons")
			return err == nil && strings.Contains(sessions, shown)
		})
	}
}

func TestAZooKeeperOfAnotherRunIsNotTakenForOurs(t *testing.T) {
	if err := lab.ZooKeeper(t).AsksFor(within(t, limit), t.TempDir()); err == nil || !strings.Contains(err.Error(), "another ZooKeeper answers") {
		t.Errorf("it is taken for that of another folder: %v", err)
	}
}

// What was unpacked from an archive of the project has its classes beside its
// script.
func TestADistributionOfZooKeeperIsFound(t *testing.T) {
	lab.ZooKeeper(t) // or there is nothing that one could be made of
	home := t.TempDir()
	for _, folder := range []string{"bin", "lib", "path"} {
		must.Do(t, os.Mkdir(filepath.Join(home, folder), 0o700))
	}
	must.Do(t, os.WriteFile(filepath.Join(home, "bin", "zkServer.sh"), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	for from, to := range map[string]string{
		"../bin/zkServer.sh":                  "path/zkServer.sh",
		"/usr/share/java/zookeeper.jar":       "lib/zookeeper-3.8.0.jar",
		"/usr/share/java/slf4j-simple.jar":    "lib/slf4j-simple.jar",
		"/usr/share/java/zookeeper-jute.jar":  "lib/zookeeper-jute-3.8.0.jar",
		"/usr/share/java/netty-transport.jar": "lib/netty-transport.jar",
	} {
		must.Do(t, os.Symlink(from, filepath.Join(home, to)))
	}
	t.Setenv("PATH", filepath.Join(home, "path")+":"+os.Getenv("PATH"))
	_, classPath, err := servers.FindZooKeeper()
	if err != nil || classPath != filepath.Join(home, "lib", "*") {
		t.Fatalf("the class path is %q: %v", classPath, err)
	}
	z := lab.OwnZooKeeper(t)
	should.Contain(t, z.Version, ".")
}
