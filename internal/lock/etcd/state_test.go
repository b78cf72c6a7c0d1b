package etcd_test

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	etcdlock "github.com/stockd/stockd/internal/lock/etcd"
	"github.com/stockd/stockd/internal/locktest"
)

// state is the keys of a name, each under the lease of a replica.
type state struct{ clients *backend.Clients }

func stateOf(string) func(*backend.Clients) locktest.State {
	return func(c *backend.Clients) locktest.State { return state{c} }
}

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
