package zk

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// zkQueue is what those locks share that stand in a queue: whoever wants a name
// makes an ephemeral node in its folder, the server numbers it, and the lowest
// number holds the name. They differ in what they watch while they wait.
type zkQueue struct {
	client *backend.ZooKeeperClient
	prefix string
	kind   string
	look   zkLook
	line   zkLine
	retry  time.Duration
	// last is the highest number that is let in. The server counts in 32 bits,
	// and begins again with a folder: where the numbers are used up, the folder
	// is left until it is empty, and made anew.
	last int
}

// zkLook finds out whether it is a place's turn. Where it is not, changed is
// closed when it may be.
type zkLook func(ctx context.Context, link *backend.ZKLink, p *zkPlace) (turn bool, changed <-chan struct{}, err error)

func newZKQueue(kind string, d lock.Deps, look zkLook) *zkQueue {
	return &zkQueue{client: d.ZooKeeper, prefix: d.KeyPrefix(), kind: kind, look: look, retry: d.Retry, last: math.MaxInt32 - 1}
}

// Acquire stands in the queue until it is our turn.
func (q *zkQueue) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	folder := zkFolder(q.prefix, q.kind, name)
	for {
		lease, err := q.acquire(ctx, folder)
		switch {
		case err == nil:
			return lock.Granted(ctx, lease)
		case !errors.Is(err, backend.ErrBeginAgain):
			return nil, zkNotAcquired(ctx, err)
		}
	}
}

// acquire stands in the queue once.
func (q *zkQueue) acquire(ctx context.Context, folder string) (lease *lock.Held, err error) {
	link, err := q.client.Connected(ctx)
	if err != nil {
		return nil, err
	}
	p := &zkPlace{session: link.Session, line: &q.line, folder: folder, prefix: lock.NewOwner() + "-", gone: make(chan struct{})}
	defer func() {
		if err != nil {
			p.leave(ctx)
		}
	}()
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	if p.number < 0 || p.number > q.last {
		return nil, q.renew(ctx, p)
	}
	q.line.join(p)
	for {
		lease, err = p.wait(ctx, q.look)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil, backend.ErrBeginAgain // another client deleted the node
		case backend.ZKAnswered(err), errors.Is(err, backend.ErrBeginAgain), errors.Is(err, backend.ErrUnanswered), ctx.Err() != nil:
			return lease, err
		}
		// The connection was lost. The session may not be, nor the place.
	}
}

// renew leaves a folder whose numbers are used up, and removes it where nobody
// is left in it.
func (q *zkQueue) renew(ctx context.Context, p *zkPlace) error {
	p.leave(ctx)
	link, err := p.session.Connected(ctx)
	if err != nil {
		return err
	}
	err = backend.ZKDo(ctx, link, func(conn *zk.Conn) error { return conn.Delete(p.folder, -1) })
	if !backend.ZKAnswered(err) {
		return err
	}
	if pause.About(ctx, q.retry) != nil {
		return context.Cause(ctx)
	}
	return backend.ErrBeginAgain
}
