package zk

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// guardAfter is the age at which a lease begins to watch its node. Most leases
// are over by then, and none of them pays for it.
const guardAfter = 50 * time.Millisecond

// zkHold is a node of ours that makes us the holder of a name.
type zkHold struct {
	link    *backend.ZKLink
	path    string
	czxid   int64
	drop    backend.ZKDrop
	leaving atomic.Bool
	*lock.Held
}

// newZKHold makes the lease of a node. It is lost with the connection: what the
// server does about the session from then on, we are the last to know. It is
// lost, too, when somebody deletes the node.
func newZKHold(link *backend.ZKLink, path string, czxid int64, drop backend.ZKDrop) *lock.Held {
	h := &zkHold{link: link, path: path, czxid: czxid, drop: drop}
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

// guard watches the node.
func (h *zkHold) guard() {
	node, changed, err := h.link.GetOwn(h.Context(), h.path)
	switch {
	case err == nil && node.Stat.Czxid == h.czxid:
		h.loseWith(changed)
	case err == nil, errors.Is(err, zk.ErrNoNode):
		h.loseUnlessLeaving()
	}
}

// loseWith ends the lease with a context.
func (h *zkHold) loseWith(ctx context.Context) {
	unlink := context.AfterFunc(ctx, h.loseUnlessLeaving)
	context.AfterFunc(h.Context(), func() { unlink() })
}

func (h *zkHold) loseUnlessLeaving() {
	if !h.leaving.Load() {
		h.Lose()
	}
}

// release deletes the node.
func (h *zkHold) release(ctx context.Context) error {
	if h.link.Ctx.Err() != nil {
		return lock.ErrLost // the lease is just about to hear of it
	}
	h.leaving.Store(true)
	err := backend.ZKDo(ctx, h.link, h.drop)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return lock.ErrLost
	default:
		h.link.Session.Discard(h.drop)
		return lock.NotReleased(zkName, err)
	}
}
