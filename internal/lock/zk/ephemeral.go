// Package zk has the locks in ZooKeeper.
package zk

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// Ephemeral creates one ephemeral node, and watches it while it is taken.
func Ephemeral() lock.Entry {
	return lock.Entry{
		Name:       "zk-ephemeral",
		Family:     lock.FamilyZooKeeper,
		Summary:    "all compete to create one ephemeral node: a release wakes everyone",
		Needs:      []backend.Name{backend.ZooKeeper},
		Guarantees: lock.Complete(false),
		New:        func(d lock.Deps) lock.Locker { return lock.NewReentrant(scramble{d.ZooKeeper, d.KeyPrefix()}) },
	}
}

// scramble is a lock without a queue: the client that made the node of a name holds it.
type scramble struct {
	client *backend.ZooKeeperClient
	prefix string
}

func (l scramble) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	folder := folderOf(l.prefix, "zk-ephemeral", name)
	return acquire(ctx, func() (*lock.Held, error) { return l.acquire(ctx, folder) })
}

func (l scramble) acquire(ctx context.Context, folder string) (*lock.Held, error) {
	link, err := l.client.Connected(ctx)
	if err != nil {
		return nil, err
	}
	c := &claim{session: link.Session, folder: folder, path: folder + "/lock", owner: lock.NewOwner()}
	defer c.leave()
	for {
		link, err := c.session.Connected(ctx)
		if err != nil {
			return nil, err
		}
		lease, changed, err := c.try(ctx, link)
		switch {
		case lease != nil:
			return lease, nil
		case err == nil:
			if err := link.Sleep(ctx, changed.Done()); err != nil {
				return nil, err
			}
			tellWoken(ctx, changed.Done())
		case errors.Is(err, zk.ErrNoNode): // it was released, or the folder removed, just then
		case backend.ZKAnswered(err), errors.Is(err, backend.ErrUnanswered), ctx.Err() != nil:
			return nil, err
		default:
			_ = pause.About(ctx, reconnectAfter)
		}
	}
}

// claim is an Acquire within one session.
type claim struct {
	session *backend.ZKSession
	folder  string
	path    string
	owner   string // the node's data
	unsure  bool   // it may have been granted, and the answer lost
}

// taken is a node that we made. The version is that of the folder, which is
// counted up with each: as long as it stands, the node is ours.
type taken struct {
	czxid   int64
	version int32
}

// try makes the node. Where there is one already, there is no lease, and changed
// ends when it may be gone.
func (c *claim) try(ctx context.Context, link *backend.ZKLink) (lease *lock.Held, changed context.Context, err error) {
	grant, err := ask(ctx, link, c.unsure, c.find, c.take, c.dropLost)
	if err == nil && link.Ctx.Err() != nil {
		err = zk.ErrConnectionClosed // the next connection may have carried the answer, and finds the node
	}
	c.unsure = !backend.ZKAnswered(err)
	if err == nil {
		lock.Tell(ctx, lock.Note{At: time.Now(), What: lock.Placed, Key: c.path})
		drop := func(conn *zk.Conn) error { return c.drop(conn, grant.version) }
		return newHolder(link, c.path, grant.czxid, drop), nil, nil
	}
	if !errors.Is(err, zk.ErrNodeExists) {
		return nil, nil, err
	}
	_, changed, err = link.Get(ctx, c.path)
	return nil, changed, err
}

// take makes the node.
func (c *claim) take(conn *zk.Conn) (taken, error) {
	_, folder, err := create(conn, c.session, c.folder, zk.CreateRequest{Path: c.path, Data: []byte(c.owner), Flags: zk.FlagEphemeral})
	if err != nil {
		return taken{}, err
	}
	return taken{folder.Mzxid, folder.Version}, nil
}

// find looks whether the node is ours; it is zk.ErrNoNode where it is not. The
// server that we are connected to now may be behind the one that we asked: Sync
// lets it catch up.
func (c *claim) find(conn *zk.Conn) (taken, error) {
	if _, err := conn.Sync(c.folder); err != nil {
		return taken{}, err
	}
	_, folder, err := conn.Get(c.folder)
	if err != nil {
		return taken{}, err
	}
	owner, node, err := conn.Get(c.path)
	if err == nil && string(owner) != c.owner {
		err = zk.ErrNoNode
	}
	if err != nil {
		return taken{}, err
	}
	return taken{node.Czxid, folder.Version}, nil
}

// leave gives up a node that we may have, and do not know of.
func (c *claim) leave() {
	if c.unsure {
		c.session.Discard(c.dropLost)
	}
}

// drop deletes the node, which is ours as long as the folder has its version.
// Where it has another, the node is another's, or another client has written
// into the folder.
func (c *claim) drop(conn *zk.Conn, version int32) error {
	err := c.delete(conn, version)
	if errors.Is(err, zk.ErrBadVersion) {
		return c.dropLost(conn)
	}
	return err
}

// dropLost deletes the node if it is ours.
func (c *claim) dropLost(conn *zk.Conn) error {
	var err error
	for range tries {
		var grant taken
		if grant, err = c.find(conn); err != nil {
			return err
		}
		if err = c.delete(conn, grant.version); !errors.Is(err, zk.ErrBadVersion) {
			break
		}
	}
	return err
}

func (c *claim) delete(conn *zk.Conn, version int32) error {
	_, err := conn.Multi(
		&zk.CheckVersionRequest{Path: c.folder, Version: version},
		&zk.DeleteRequest{Path: c.path, Version: -1})
	return err
}
