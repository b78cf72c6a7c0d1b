package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// guardAfter is the age at which a lease begins to watch its node. Most leases
// are over by then, and none of them pays for it.
const guardAfter = 50 * time.Millisecond

// zkHold is a node of ours that makes us the holder of a name.
type zkHold struct {
	link    *zkLink
	path    string
	czxid   int64
	drop    zkDrop
	leaving atomic.Bool
	*held
}

// newZKHold makes the lease of a node. It is lost with the connection: what the
// server does about the session from then on, we are the last to know. It is
// lost, too, when somebody deletes the node.
func newZKHold(link *zkLink, path string, czxid int64, drop zkDrop) *held {
	h := &zkHold{link: link, path: path, czxid: czxid, drop: drop}
	h.held = newHeld(uint64(czxid), h.release) //nolint:gosec // it begins at 0 and grows
	h.loseWith(link.ctx)
	guard := time.AfterFunc(guardAfter, h.guard)
	context.AfterFunc(h.ctx, func() {
		guard.Stop()
		if errors.Is(context.Cause(h.ctx), ErrLost) {
			link.session.discard(drop) // it may be there still
		}
	})
	return h.held
}

// guard watches the node.
func (h *zkHold) guard() {
	node, changed, err := h.link.getOwn(h.ctx, h.path)
	switch {
	case err == nil && node.stat.Czxid == h.czxid:
		h.loseWith(changed)
	case err == nil, errors.Is(err, zk.ErrNoNode):
		h.loseUnlessLeaving()
	}
}

// loseWith ends the lease with a context.
func (h *zkHold) loseWith(ctx context.Context) {
	unlink := context.AfterFunc(ctx, h.loseUnlessLeaving)
	context.AfterFunc(h.ctx, func() { unlink() })
}

func (h *zkHold) loseUnlessLeaving() {
	if !h.leaving.Load() {
		h.lose()
	}
}

// release deletes the node.
func (h *zkHold) release(ctx context.Context) error {
	if h.link.ctx.Err() != nil {
		return ErrLost // the lease is just about to hear of it
	}
	h.leaving.Store(true)
	err := zkDo(ctx, h.link, h.drop)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return ErrLost
	default:
		h.link.session.discard(h.drop)
		return notReleased(zkName, err)
	}
}
