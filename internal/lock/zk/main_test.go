package zk_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	zklock "github.com/stockd/stockd/internal/lock/zk"
	"github.com/stockd/stockd/internal/locktest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(locktest.Main(m, &lab, locks()...)) }

func TestLocks(t *testing.T) { locktest.Run(t, lab, locks()...) }

// locks are the locks of this family, with their state.
func locks() []locktest.Lock { return locktest.Family(lock.FamilyZooKeeper, stateOf) }

// state is the nodes in the folder of a name.
type state struct {
	client *backend.ZooKeeperClient
	folder func(name string) string
}

func stateOf(kind string, c *backend.Clients) locktest.State {
	return state{c.ZooKeeper, func(name string) string { return zklock.Folder(c.KeyPrefix(), kind, name) }}
}

// Traces lists the nodes.
func (s state) Traces(ctx context.Context, name string) (nodes []string, err error) {
	folder := s.folder(name)
	err = s.do(ctx, func(conn *zk.Conn) error {
		// A member may be behind the others until it is asked to catch up.
		if _, err := conn.Sync(folder); err != nil {
			return err
		}
		children, _, err := conn.Children(folder)
		for _, child := range children {
			nodes = append(nodes, folder+"/"+child)
		}
		return err
	})
	return nodes, err
}

// Break deletes the nodes.
func (s state) Break(ctx context.Context, name string) error {
	nodes, err := s.Traces(ctx, name)
	for _, node := range nodes {
		err = errors.Join(err, s.do(ctx, func(conn *zk.Conn) error { return conn.Delete(node, -1) }))
	}
	return err
}

// do makes a call; a node that is not there is no error.
func (s state) do(ctx context.Context, call func(*zk.Conn) error) error {
	link, err := s.client.Connected(ctx)
	if err != nil {
		return err
	}
	if err := backend.ZKDo(ctx, link, call); !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}
