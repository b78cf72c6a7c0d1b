package zk

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// queue is what the locks with a queue share: an Acquire makes an ephemeral node in the
// folder of its name, the server numbers it, and the lowest number holds the name. They
// differ in what they watch while they wait.
type queue struct {
	client *backend.ZooKeeperClient
	prefix string
	kind   string
	look   lookFunc
	line   line
	retry  time.Duration
	// last is the highest number that is let in. The server counts in 32 bits,
	// and begins again with a folder: where the numbers are used up, the folder
	// is left until it is empty, and made anew.
	last int
}

// lookFunc finds out whether it is a place's turn. Where it is not, changed is
// closed when it may be.
type lookFunc func(ctx context.Context, link *backend.ZKLink, p *place) (turn bool, changed <-chan struct{}, err error)

func newQueue(kind string, d lock.Deps, look lookFunc) *queue {
	return &queue{client: d.ZooKeeper, prefix: d.KeyPrefix(), kind: kind, look: look, retry: d.Retry, last: math.MaxInt32 - 1}
}

func (q *queue) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	folder := folderOf(q.prefix, q.kind, name)
	return acquire(ctx, func() (*lock.Held, error) { return q.acquire(ctx, folder) })
}

// acquire stands in the queue once.
func (q *queue) acquire(ctx context.Context, folder string) (lease *lock.Held, err error) {
	link, err := q.client.Connected(ctx)
	if err != nil {
		return nil, err
	}
	p := &place{session: link.Session, line: &q.line, folder: folder, prefix: lock.NewOwner() + "-", gone: make(chan struct{})}
	defer func() {
		if err != nil {
			p.leave(ctx)
		}
	}()
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	lock.Tell(ctx, lock.Note{At: time.Now(), What: lock.Placed, Key: p.path()})
	if q.usedUp(p.number) {
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
		_ = pause.About(ctx, reconnectAfter)
	}
}

// usedUp reports that a number is past the last one, or that the count has overflowed.
func (q *queue) usedUp(number int) bool { return number < 0 || number > q.last }

// renew leaves a folder whose numbers are used up, and removes it where it is empty.
func (q *queue) renew(ctx context.Context, p *place) error {
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

// line is the places of this replica in the queues. A place behind another one of the same
// replica needs no watch on the server, because it is notified here; and where no place can
// be between the two, it need not even look.
type line struct {
	mu      sync.Mutex
	folders map[string][]*place // in the order of their numbers
	last    *place              // the last one that passed
}

// join adds a place. It may follow one that has passed already.
func (l *line) join(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.folders == nil {
		l.folders = make(map[string][]*place)
	}
	if last := l.last; last != nil && last.folder == p.folder && last.isNextBefore(p) {
		p.before = last
	}
	at, _ := l.find(p)
	l.folders[p.folder] = slices.Insert(l.folders[p.folder], at, p)
}

// before is the place of this replica that is next before another.
func (l *line) before(p *place) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := l.find(p)
	if at == 0 {
		return nil
	}
	return l.folders[p.folder][at-1]
}

// leave ends a place, once. passed tells that it was its turn and is not any
// more.
func (l *line) leave(p *place, passed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, found := l.find(p)
	if !found {
		return
	}
	if p.passed = passed; passed {
		l.last = p
	}
	p.before = nil // so that places that were left are forgotten
	close(p.gone)
	if rest := slices.Delete(l.folders[p.folder], at, at+1); len(rest) > 0 {
		l.folders[p.folder] = rest
	} else {
		delete(l.folders, p.folder)
	}
}

// isNextBefore reports whether no place can be between two.
func (p *place) isNextBefore(other *place) bool {
	return p.folderCzxid == other.folderCzxid && p.number+1 == other.number
}

// hasPassed reports whether a place had its turn and is gone. Then it is the
// next one's.
func (p *place) hasPassed() bool {
	select {
	case <-p.gone:
		return p.passed
	default:
		return false
	}
}

func (l *line) find(p *place) (at int, found bool) {
	return slices.BinarySearchFunc(l.folders[p.folder], p, func(a, b *place) int {
		return cmp.Or(cmp.Compare(a.folderCzxid, b.folderCzxid), cmp.Compare(a.number, b.number))
	})
}
