package backend

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// ZKLink is one connection of a session, and the watches that were set on it.
type ZKLink struct {
	Session *ZKSession
	up      chan struct{}   // closed when the connection may be used
	Ctx     context.Context // ends with the connection
	cut     context.CancelFunc

	mu      sync.Mutex
	watches map[string]*zkWatch
}

func newZKLink(s *ZKSession) *ZKLink {
	l := &ZKLink{Session: s, up: make(chan struct{}), watches: make(map[string]*zkWatch)}
	l.Ctx, l.cut = context.WithCancel(s.ctx)
	return l
}

func (l *ZKLink) isUp() bool {
	select {
	case <-l.up:
		return true
	default:
		return false
	}
}

// ZKCall makes a call of the library, which knows no context, and waits for its answer: as long
// as a server may take, and not much longer than ctx. A later answer goes to late, which may be nil.
func ZKCall[T any](ctx context.Context, l *ZKLink, do func(*zk.Conn) (T, error), late func(T, error)) (T, error) {
	var none T
	if !l.isUp() || l.Ctx.Err() != nil {
		return none, zk.ErrConnectionClosed
	}
	type answer struct {
		value T
		err   error
	}
	answers, gone := make(chan answer), make(chan struct{})
	go func() {
		l.Session.calls.RLock()
		value, err := do(l.Session.conn)
		l.Session.calls.RUnlock()
		select {
		case answers <- answer{value, err}:
		case <-gone:
			if late != nil {
				late(value, err)
			}
		}
	}()
	limited, cancel := Outlasting(ctx, time.Now().Add(2*l.Session.options.DialTimeout))
	defer cancel()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-limited.Done():
		close(gone)
		return none, zkGaveUp(ctx, ErrUnanswered)
	}
}

// ZKDo is zkCall for calls that answer nothing but an error.
func ZKDo(ctx context.Context, l *ZKLink, do func(*zk.Conn) error) error {
	_, err := ZKCall(ctx, l, func(conn *zk.Conn) (struct{}, error) { return struct{}{}, do(conn) }, nil)
	return err
}

// zkGaveUp is the error of a round trip without an answer. A cancellation by the caller says
// nothing about the server.
func zkGaveUp(ctx context.Context, silent error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return silent
}

// zkWatch is the watch that all waiters for a path share. The library cannot remove a watch: one
// for each waiter would outlive the waiters that give up.
type zkWatch struct {
	ctx   context.Context // ends with the next event, or with the connection
	fire  context.CancelFunc
	asked chan struct{} // closed when the server knows of it, or will not
}

// watch is the watch of a path. The first caller has to set it.
func (l *ZKLink) watch(path string) (w *zkWatch, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w = l.watches[path]; w != nil {
		return w, false
	}
	w = &zkWatch{asked: make(chan struct{})}
	w.ctx, w.fire = context.WithCancel(l.Ctx)
	l.watches[path] = w
	return w, true
}

// fire wakes all waiters for an event of a path.
func (l *ZKLink) fire(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.watches[path]; w != nil {
		delete(l.watches, path)
		w.fire()
	}
}

// zkWatched reads a path and watches it. The watch is there before what is read,
// so that no change is missed; changed ends with the first one, and at other
// times.
func zkWatched[T any](ctx context.Context, l *ZKLink, path string, set, read func(*zk.Conn) (T, error)) (found T, changed context.Context, err error) {
	w, first := l.watch(path)
	found, err = ZKCall(ctx, l, func(conn *zk.Conn) (T, error) {
		if !first {
			select {
			case <-w.asked:
			case <-w.ctx.Done():
			}
			return read(conn)
		}
		defer close(w.asked)
		found, err := set(conn)
		if err != nil {
			l.fire(path) // there is no watch that would
		}
		return found, err
	}, nil)
	return found, w.ctx, err
}

// Get reads a node and watches it. Where there is none, there is no watch
// either: one that waits for a node which never comes again would stay for ever.
func (l *ZKLink) Get(ctx context.Context, path string) (node *zk.Stat, changed context.Context, err error) {
	return zkWatched(ctx, l, path, func(conn *zk.Conn) (*zk.Stat, error) {
		_, stat, _, err := conn.GetW(path)
		return stat, err
	}, func(conn *zk.Conn) (*zk.Stat, error) {
		_, stat, err := conn.Get(path)
		return stat, err
	})
}

// GetOwn is Get with a watch that is surely for this node: the shared one may have been for an
// earlier node of the same path.
func (l *ZKLink) GetOwn(ctx context.Context, path string) (node *zk.Stat, changed context.Context, err error) {
	for {
		node, changed, err = l.Get(ctx, path)
		if err != nil || changed.Err() == nil || l.Ctx.Err() != nil {
			return node, changed, err
		}
	}
}

// List reads the names in a folder.
func (l *ZKLink) List(ctx context.Context, folder string) (names []string, err error) {
	return ZKCall(ctx, l, func(conn *zk.Conn) ([]string, error) {
		names, _, err := conn.Children(folder)
		return names, err
	}, nil)
}

// WatchList reads the names in a folder and watches them.
func (l *ZKLink) WatchList(ctx context.Context, folder string) (names []string, changed context.Context, err error) {
	return zkWatched(ctx, l, folder, func(conn *zk.Conn) ([]string, error) {
		names, _, _, err := conn.ChildrenW(folder)
		return names, err
	}, func(conn *zk.Conn) ([]string, error) {
		names, _, err := conn.Children(folder)
		return names, err
	})
}

// LookAgain is the longest wait without a read, in case a watch is lost.
const LookAgain = 3 * time.Second

// Sleep waits for a change, or for the loss of the connection. It fails with
// ctx.
func (l *ZKLink) Sleep(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
	case <-l.Ctx.Done():
	case <-time.After(LookAgain/2 + rand.N(LookAgain)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
