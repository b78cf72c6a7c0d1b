package locktest

import (
	"errors"
	"net/url"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
)

// zooKeeperBackend is an ensemble.
type zooKeeperBackend struct {
	at    addresses
	admin *zk.Conn
}

func newZooKeeperBackend(t *testing.T, members ...string) *zooKeeperBackend {
	t.Helper()
	admin, _, err := zk.Connect(members, patience, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	return &zooKeeperBackend{
		at:    addresses{ZooKeeper: members, TTL: 1500 * time.Millisecond},
		admin: admin,
	}
}

// silent logs nothing.
type silent struct{}

// Printf drops what it is given.
func (silent) Printf(string, ...any) {}

// zooKeeper makes the client of a replica.
func (a addresses) zooKeeper() *backend.ZooKeeperClient {
	return backend.NewZooKeeper(backend.ZooKeeperOptions{
		Servers: a.ZooKeeper, SessionTimeout: a.TTL, DialTimeout: answerWithin,
	})
}

func (b *zooKeeperBackend) addresses() addresses { return b.at }
func (b *zooKeeperBackend) ttl() time.Duration   { return b.at.TTL }
func (b *zooKeeperBackend) named() backend.Name  { return backend.ZooKeeper }
func (b *zooKeeperBackend) requests() []string   { return []string{""} }

func (b *zooKeeperBackend) drop(t *testing.T, name string) {
	t.Helper()
	for _, node := range b.litter(t, name) {
		if err := b.admin.Delete(node, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatalf("drop %s: %v", name, err)
		}
	}
}

// litter lists the nodes in the folders of a name, one folder a kind of lock.
func (b *zooKeeperBackend) litter(t *testing.T, name string) (nodes []string) {
	t.Helper()
	const root = "/stockd"
	// A member may be behind the others, until it is asked to catch up.
	if _, err := b.admin.Sync(root); err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatalf("look for nodes: %v", err)
	}
	for _, kind := range b.children(t, root) {
		folder := path.Join(root, kind, url.PathEscape(name))
		for _, child := range b.children(t, folder) {
			nodes = append(nodes, path.Join(folder, child))
		}
	}
	return nodes
}

func (b *zooKeeperBackend) children(t *testing.T, folder string) []string {
	t.Helper()
	children, _, err := b.admin.Children(folder)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatalf("look for nodes: %v", err)
	}
	return children
}
