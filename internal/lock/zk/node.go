package zk

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// zkName is how ZooKeeper is called in errors.
const zkName = string(backend.ZooKeeper)

// zkTries bounds how often something is tried again that others undid or the
// network swallowed in one Acquire, each time within one round trip.
const zkTries = 5

// zkFolder is where a lock keeps a name.
func zkFolder(prefix, kind, name string) string {
	name = url.PathEscape(name)
	if strings.Trim(name, ".") == "" {
		name = "%" + name // "", "." and ".." are no names of nodes, and no escape looks like this
	}
	return "/" + prefix + "/" + kind + "/" + name
}

// makeFolder makes a folder with those above it. It is a container: the server
// deletes it some time after its last node. Servers before 3.5 have none.
func makeFolder(conn *zk.Conn, folder string, acl []zk.ACL) error {
	for i := range folder {
		if i == 0 || folder[i] != '/' {
			continue
		}
		if _, err := conn.Create(folder[:i], nil, zk.FlagPersistent, acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	_, err := conn.CreateContainer(folder, nil, zk.FlagContainer, acl)
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		_, err = conn.Create(folder, nil, zk.FlagPersistent, acl)
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// zkMulti does all or nothing of some operations in a folder, and makes that
// where there is none.
func zkMulti(conn *zk.Conn, folder string, acl []zk.ACL, ops ...any) ([]zk.MultiResponse, error) {
	answers, err := conn.Multi(ops...)
	if !errors.Is(err, zk.ErrNoNode) {
		return answers, err
	}
	if err := makeFolder(conn, folder, acl); err != nil {
		return nil, err
	}
	return conn.Multi(ops...)
}

// zkNotAcquired is the error of an Acquire. A server that did not answer in time
// has failed, also where it used up the waiter's time.
func zkNotAcquired(ctx context.Context, err error) error {
	if errors.Is(err, backend.ErrUnanswered) {
		return lock.Unreachable(zkName, err)
	}
	return lock.NotAcquired(ctx, zkName, err)
}
