package locktest

import (
	"net/url"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
)

// etcdBackend is a cluster.
type etcdBackend struct {
	at    addresses
	admin *clientv3.Client
}

func newEtcdBackend(t *testing.T, members ...string) *etcdBackend {
	t.Helper()
	at := addresses{Etcd: members, TTL: 2 * time.Second}
	admin, err := at.etcd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, admin) })
	return &etcdBackend{at: at, admin: admin}
}

// etcd makes the client of a replica.
func (a addresses) etcd() (*clientv3.Client, error) {
	return backend.NewEtcd(backend.EtcdOptions{Endpoints: a.Etcd, DialTimeout: answerWithin})
}

func (b *etcdBackend) addresses() addresses { return b.at }
func (b *etcdBackend) ttl() time.Duration   { return b.at.TTL }
func (b *etcdBackend) named() backend.Name  { return backend.Etcd }
func (b *etcdBackend) requests() []string   { return []string{""} }

// drop revokes the leases that the keys of a name are bound to.
func (b *etcdBackend) drop(t *testing.T, name string) {
	t.Helper()
	found, err := b.admin.Get(background(t), prefixOf(name), clientv3.WithPrefix())
	if err != nil {
		t.Fatalf("look for keys: %v", err)
	}
	for _, kv := range found.Kvs {
		if _, err := b.admin.Revoke(background(t), clientv3.LeaseID(kv.Lease)); err != nil {
			t.Fatalf("drop %s: %v", name, err)
		}
	}
}

func (b *etcdBackend) litter(t *testing.T, name string) (keys []string) {
	t.Helper()
	found, err := b.admin.Get(background(t), prefixOf(name), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatalf("look for keys: %v", err)
	}
	for _, kv := range found.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// prefixOf is what the keys of a name begin with.
func prefixOf(name string) string { return "stockd/etcd/" + url.PathEscape(name) + "/" }
