package etcd_test

import (
	"context"
	"errors"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	etcdlock "github.com/stockd/stockd/internal/lock/etcd"
	"github.com/stockd/stockd/internal/locktest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(locktest.Main(m, &lab, locks()...)) }

func TestLocks(t *testing.T) { locktest.Run(t, lab, locks()...) }

// locks are the locks of this family, with their state, and one of them over two names.
func locks() []locktest.Lock { return locktest.Family(lock.FamilyEtcd, stateOf) }

// state is the keys of a name, each under the lease of a replica.
type state struct{ clients *backend.Clients }

func stateOf(_ string, c *backend.Clients) locktest.State { return state{c} }

// Traces lists the keys.
func (s state) Traces(ctx context.Context, name string) (keys []string, err error) {
	found, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, kv := range found.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys, nil
}

// Break revokes the leases of the keys.
func (s state) Break(ctx context.Context, name string) error {
	found, err := s.find(ctx, name)
	if err != nil {
		return err
	}
	for _, kv := range found.Kvs {
		_, revoked := s.clients.Etcd.Revoke(ctx, clientv3.LeaseID(kv.Lease))
		err = errors.Join(err, revoked)
	}
	return err
}

func (s state) find(ctx context.Context, name string) (*clientv3.GetResponse, error) {
	return s.clients.Etcd.Get(ctx, etcdlock.Line(s.clients, name), clientv3.WithPrefix())
}
