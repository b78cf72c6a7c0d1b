package zk

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// server is how ZooKeeper is called in errors.
const server = string(backend.ZooKeeper)

// tries bounds how often something is tried again that others undid or the
// network swallowed in one Acquire, each time within one round trip.
const tries = 5

// reconnectAfter is the pause before a question that was not answered is asked again: the connection may be the same still.
const reconnectAfter = 20 * time.Millisecond

func folderOf(prefix, kind, name string) string {
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

// create makes a node in a folder, and the folder where there is none. It writes to the folder at the same time, both or
// neither, which answers with the state of the folder: its last change is the one that created the node, and the
// token need not be asked for.
func create(conn *zk.Conn, s *backend.ZKSession, folder string, node zk.CreateRequest) (path string, of *zk.Stat, err error) {
	node.Acl = s.ACL()
	ops := []any{&zk.SetDataRequest{Path: folder, Version: -1}, &node}
	answers, err := conn.Multi(ops...)
	if errors.Is(err, zk.ErrNoNode) {
		if err := makeFolder(conn, folder, node.Acl); err != nil {
			return "", nil, err
		}
		answers, err = conn.Multi(ops...)
	}
	if err != nil {
		return "", nil, err
	}
	return answers[1].String, answers[0].Stat, nil
}

// ask makes a node. Where the answer to an earlier try was lost, it looks for that one's first: a second node would wait
// behind it. What is answered after the Acquire has returned is dropped.
func ask[T any](ctx context.Context, link *backend.ZKLink, lost bool, find, makeOne func(*zk.Conn) (T, error), drop backend.ZKDrop) (T, error) {
	late := func(_ T, err error) {
		if err == nil || !backend.ZKAnswered(err) {
			link.Session.Discard(drop)
		}
	}
	return backend.ZKCall(ctx, link, func(conn *zk.Conn) (T, error) {
		if lost {
			if found, err := find(conn); !errors.Is(err, zk.ErrNoNode) {
				return found, err
			}
		}
		return makeOne(conn)
	}, late)
}

// acquire tries until the name is granted, or a try fails for good. A server that did not
// answer in time has failed, also where it used up the waiter's time.
func acquire(ctx context.Context, try func() (*lock.Held, error)) (lock.Lease, error) {
	for {
		lease, err := try()
		switch {
		case err == nil:
			return lock.Granted(ctx, lease)
		case errors.Is(err, backend.ErrUnanswered):
			return nil, lock.Unreachable(server, err)
		case !errors.Is(err, backend.ErrBeginAgain):
			return nil, lock.NotAcquired(ctx, server, err)
		}
	}
}

// guardAfter is the age at which a lease begins to watch its node. Most leases
// are over by then, and none of them pays for it.
const guardAfter = 50 * time.Millisecond

// holder is a node of ours that makes us the holder of a name.
type holder struct {
	link  *backend.ZKLink
	path  string
	czxid int64
	drop  backend.ZKDrop
	*lock.Held
}

// newHolder makes the lease of a node. It is lost with the connection: what the
// server does about the session from then on, we are the last to know. It is
// lost, too, when another client deletes the node.
func newHolder(link *backend.ZKLink, path string, czxid int64, drop backend.ZKDrop) *lock.Held {
	h := &holder{link: link, path: path, czxid: czxid, drop: drop}
	h.Held = lock.NewHeld(uint64(czxid), h.release) //nolint:gosec // it begins at 0 and grows
	h.loseWith(link.Ctx)
	guard := time.AfterFunc(guardAfter, h.guard)
	context.AfterFunc(h.Context(), func() {
		guard.Stop()
		if errors.Is(context.Cause(h.Context()), lock.ErrLost) {
			link.Session.Discard(drop) // it may be there still
		}
	})
	return h.Held
}

// guard watches the node. Where the server does not answer in time, it is asked again.
func (h *holder) guard() {
	for {
		node, changed, err := h.link.GetOwn(h.Context(), h.path)
		switch {
		case err == nil && node.Czxid == h.czxid:
			h.loseWith(changed)
			return
		case err == nil, errors.Is(err, zk.ErrNoNode):
			h.Lose()
			return
		}
		if pause.About(h.Context(), guardAfter) != nil {
			return
		}
	}
}

func (h *holder) loseWith(ctx context.Context) {
	unlink := context.AfterFunc(ctx, h.Lose)
	context.AfterFunc(h.Context(), func() { unlink() })
}

func (h *holder) release(ctx context.Context) error {
	if h.link.Ctx.Err() != nil {
		return lock.ErrLost // the lease is just about to hear of it
	}
	err := backend.ZKDo(ctx, h.link, h.drop)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return lock.ErrLost
	default:
		h.link.Session.Discard(h.drop)
		return lock.Released(server, false, err)
	}
}
