package backend

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// standing is a session whose connection stands, without a server.
func standing(t *testing.T) *ZKSession {
	t.Helper()
	s := &ZKSession{options: NewZooKeeper(ZooKeeperOptions{Servers: []string{"nowhere"}}).options}
	s.ctx, s.end = context.WithCancel(t.Context())
	s.link = newZKLink(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open()
	return s
}

// reconnect replaces the connection.
func (s *ZKSession) reconnect() {
	s.suspend()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open()
}

func TestZKHasItsDefaults(t *testing.T) {
	for _, c := range []struct{ session, dial, wantSession, wantDial time.Duration }{
		{0, 0, 30 * time.Second, time.Second},
		{time.Minute, 0, time.Minute, time.Second},
		{0, time.Hour, 30 * time.Second, time.Hour},
		{time.Minute, time.Hour, time.Minute, time.Hour},
	} {
		o := NewZooKeeper(ZooKeeperOptions{SessionTimeout: c.session, DialTimeout: c.dial}).options
		if o.SessionTimeout != c.wantSession || o.DialTimeout != c.wantDial {
			t.Errorf("%+v: a session lasts %s, and is connected within %s", c, o.SessionTimeout, o.DialTimeout)
		}
	}
}

// Every server is tried once, at once; then comes a rest before each round of all, twice as
// long each time, until it is the library's own. A connection that has stood for a while ends
// that, and one that breaks again and again does not.
func TestZKRestsBetweenRoundsOfItsServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zkServers{ctx: t.Context()}
		must.Do(t, z.Init([]string{"a", "b"}))
		must.Be(t, z.Len(), 2, "its servers")
		tried := 0
		round := func(want time.Duration, library bool) {
			t.Helper()
			for i, address := range []string{"a", "b"} {
				start := time.Now()
				got, rest := z.Next()
				took := time.Since(start)
				if tried++; got != address || rest != (library && i == 0) {
					t.Errorf("try %d is of %s with the library's rest: %v, want %s", tried, got, rest, address)
				}
				if i > 0 && took > 0 || i == 0 && (took < want/2 || took > want*3/2) {
					t.Errorf("try %d of %s came after %s, want about %s before each round", tried, got, took, want)
				}
			}
		}
		rounds := func() {
			t.Helper()
			round(0, false)
			for want := 50 * time.Millisecond; want < time.Second; want *= 2 {
				round(want, false)
			}
			for range 20 {
				round(0, true)
			}
		}
		rounds()
		z.Connected() // for the first time
		rounds()
		time.Sleep(time.Second) // the rests are drawn, and may be shorter together
		z.Connected()
		round(0, false)
		time.Sleep(time.Second)
		z.Connected() // the last one stood for no longer than a second
		round(50*time.Millisecond, false)
		time.Sleep(time.Second + 1)
		z.Connected()
		round(0, false)
	})
}

// An answer is what the server says of a request, also where the library does not know it; what the network or the
// library says leaves the outcome unknown.
func TestZKErrorsOfTheServerAreAnswers(t *testing.T) {
	for _, err := range []error{
		nil, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrAuthFailed,
		zk.ErrInvalidACL, zk.ErrInvalidPath, zk.ErrBadArguments, zk.ErrNoChildrenForEphemerals, zk.ErrAPIError,
		errors.New("unknown error: -125"), // as the library has it: quota exceeded
	} {
		if !ZKAnswered(err) || err != nil && !ZKAnswered(fmt.Errorf("delete: %w", err)) {
			t.Errorf("%v is no answer", err)
		}
	}
	for _, err := range []error{
		zk.ErrConnectionClosed, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrClosing, zk.ErrNoServer,
		&net.OpError{Op: "write", Err: syscall.EPIPE}, net.ErrClosed, io.EOF, context.Canceled, ErrUnanswered, ErrBeginAgain,
	} {
		if ZKAnswered(err) {
			t.Errorf("%v is an answer", err)
		}
	}
}

// A call ends with its answer, or when a server should have answered, or a little after its
// request has ended; and an answer that comes later is handled all the same.
func TestZKCallsWaitForTheirAnswers(t *testing.T) {
	const dial, little = time.Second, 250 * time.Millisecond
	gone := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			ends     time.Duration // of the request; 0: never
			cancel   bool
			answered time.Duration
			took     time.Duration
			err      error
		}{
			"answered":            {0, false, dial, dial, nil},
			"no answer":           {0, false, time.Hour, 2 * dial, ErrUnanswered},
			"answered after it":   {dial, false, dial + little - 1, dial + little - 1, nil},
			"no answer after it":  {dial, false, time.Hour, dial + little, ErrUnanswered},
			"canceled, answered":  {dial, true, dial + little - 1, dial + little - 1, nil},
			"canceled, no answer": {dial, true, time.Hour, dial + little, gone},
		} {
			s := standing(t)
			ctx, cancel := t.Context(), func() {}
			switch {
			case c.cancel:
				with, end := context.WithCancelCause(ctx)
				ctx, cancel = with, func() { end(gone) }
				time.AfterFunc(c.ends, cancel)
			case c.ends > 0:
				ctx, cancel = context.WithTimeout(ctx, c.ends)
			}
			late := make(chan string, 2)
			start := time.Now()
			got, err := ZKCall(ctx, s.Current(), func(*zk.Conn) (string, error) {
				time.Sleep(c.answered)
				return "answer", zk.ErrNodeExists
			}, func(answer string, err error) { late <- fmt.Sprint(answer, err) })
			took := time.Since(start)
			if c.err == nil && (got != "answer" || !errors.Is(err, zk.ErrNodeExists)) || c.err != nil && !errors.Is(err, c.err) || took != c.took {
				t.Errorf("%s: %q, %v after %s, want %v after %s", name, got, err, took, c.err, c.took)
			}
			time.Sleep(2 * time.Hour)
			if len(late) != map[bool]int{true: 1}[c.err != nil] {
				t.Errorf("%s: %d answers came late", name, len(late))
			} else if c.err != nil {
				should.Be(t, <-late, fmt.Sprint("answer", zk.ErrNodeExists), name, "the late answer")
			}
			cancel()
		}
	})
}

func TestZKAsksNothingOnAConnectionThatDoesNotStand(t *testing.T) {
	s := standing(t)
	cut := s.Current()
	s.suspend()
	for name, link := range map[string]*ZKLink{"cut": cut, "not made yet": s.Current()} {
		should.Fail(t, ZKDo(t.Context(), link, func(*zk.Conn) error { t.Error("asked"); return nil }), zk.ErrConnectionClosed, name)
	}
}

// A use of the session waits for its connection as long as a server may take: the error says
// why there is none.
func TestZKWaitsForItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standing(t)
		if link, err := s.Connected(t.Context()); link != s.Current() || err != nil {
			t.Errorf("%v (%v), want the connection that stands", link, err)
		}
		ended, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		should.Reject(s.Connected(ended))(t, gone)
		s.suspend()
		time.AfterFunc(time.Second/2, s.reconnect)
		if link, err := s.Connected(t.Context()); err != nil || link != s.Current() || link.Ctx.Err() != nil {
			t.Errorf("%v (%v), want the next connection", link, err)
		}
		s.suspend()
		start, refused := time.Now(), errors.New("refused")
		_, err := s.Connected(t.Context())
		if took := time.Since(start); took != time.Second || !errors.Is(err, ErrUnanswered) || errors.Is(err, refused) {
			t.Errorf("without a connection: %v after %s", err, took)
		}
		s.note(refused)
		if _, err = s.Connected(t.Context()); !errors.Is(err, ErrUnanswered) || !errors.Is(err, refused) {
			t.Errorf("%v, want that nothing answers, and why", err)
		}
		s.reconnect() // one that stands again has no trouble
		s.suspend()
		if _, err = s.Connected(t.Context()); errors.Is(err, refused) {
			t.Errorf("%v is of an earlier connection", err)
		}
		s.end()
		should.Reject(s.Connected(t.Context()))(t, ErrBeginAgain, "after the end of the session")
	})
}

// What may be left is deleted in the background, one after another, until the server has
// answered for each; over any number of connections, and no longer than the session lasts.
func TestZKDeletesWhatIsLeftUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := standing(t)
		var tried atomic.Int64
		answers := func(errs ...error) ZKDrop {
			return func(*zk.Conn) error {
				tried.Add(1)
				err := errs[0]
				errs = errs[1:]
				return err
			}
		}
		s.Discard(answers(zk.ErrConnectionClosed, zk.ErrConnectionClosed, nil))
		synctest.Wait()
		should.Be(t, tried.Load(), 1, "requests before the pause")
		time.Sleep(time.Second)
		synctest.Wait()
		should.Be(t, tried.Load(), 3, "requests until it is gone")
		s.suspend()
		s.Discard(answers(zk.ErrNoNode))
		time.Sleep(time.Second)
		synctest.Wait()
		should.Be(t, tried.Load(), 3, "requests without a connection")
		s.reconnect()
		time.Sleep(time.Second)
		synctest.Wait()
		should.Be(t, tried.Load(), 4, "requests on the next connection")
		s.Discard(answers(zk.ErrConnectionClosed))
		synctest.Wait()
		s.end()
		s.Discard(answers())
		time.Sleep(time.Second) // a panic where it goes on
	})
}

// All waiters for a path share a watch, which ends with its event, and with the connection.
func TestZKWaitersShareTheWatchOfAPath(t *testing.T) {
	s := standing(t)
	l := s.Current()
	w, first := l.watch("/a")
	again, second := l.watch("/a")
	other, third := l.watch("/b")
	if !first || second || !third || again != w || other == w {
		t.Errorf("the first sets a watch: %v, the second: %v, that of another path: %v", first, second, third)
	}
	l.fire("/nowhere")
	should.Be(t, w.ctx.Err(), nil, "an event of another path ends a watch")
	s.event(zk.Event{Type: zk.EventNodeDeleted, Path: "/a"})
	if w.ctx.Err() == nil || other.ctx.Err() != nil {
		t.Errorf("after an event of /a its watch has ended: %v, and that of /b: %v", w.ctx.Err(), other.ctx.Err())
	}
	if next, first := l.watch("/a"); !first || next.ctx.Err() != nil {
		t.Error("a watch that has ended is shared")
	}
	s.suspend()
	if other.ctx.Err() == nil {
		t.Error("a watch outlives its connection")
	}
}

// A watch that could not be set is none: the next waiter sets another.
func TestZKAWatchThatIsNotSetIsNotShared(t *testing.T) {
	l := standing(t).Current()
	fails := func(*zk.Conn) (int, error) { return 0, zk.ErrNoNode }
	reads := func(*zk.Conn) (int, error) { t.Error("read without a watch"); return 0, nil }
	for range 2 {
		if _, changed, err := zkWatched(t.Context(), l, "/a", fails, reads); !errors.Is(err, zk.ErrNoNode) || changed.Err() == nil {
			t.Errorf("%v, and the watch has ended: %v", err, changed.Err())
		}
	}
	sets := func(*zk.Conn) (int, error) { return 1, nil }
	if n, changed, err := zkWatched(t.Context(), l, "/a", sets, reads); n != 1 || changed.Err() != nil || err != nil {
		t.Errorf("%d, %v: %v", n, changed.Err(), err)
	}
	again := func(*zk.Conn) (int, error) { return 2, nil }
	if n, changed, err := zkWatched(t.Context(), l, "/a", reads, again); n != 2 || changed.Err() != nil || err != nil {
		t.Errorf("%d, %v: %v", n, changed.Err(), err)
	}
}

// The second waiter reads only when the watch of the first is set, or will not be: a change
// between the two would be missed.
func TestZKReadsBehindTheWatchOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := standing(t).Current()
		read := make(chan struct{})
		go zkWatched(t.Context(), l, "/a", func(*zk.Conn) (int, error) { time.Sleep(time.Second); return 0, nil }, nil) //nolint:errcheck // it is the watch
		synctest.Wait()
		start := time.Now()
		go func() {
			defer close(read)
			_, _, err := zkWatched(t.Context(), l, "/a", nil, func(*zk.Conn) (int, error) { return 0, nil })
			if err != nil {
				t.Error(err)
			}
		}()
		<-read
		should.Be(t, time.Since(start), time.Second, "the second, which waits for the watch, reads after")
		time.Sleep(time.Hour) // until the first has its answer
	})
}

// A waiter goes on with a change, with the loss of its connection, and now and then without
// either; it fails with its request.
func TestZKSleepsUntilSomethingHappens(t *testing.T) {
	gone := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			l := standing(t).Current()
			start := time.Now()
			if err := l.Sleep(t.Context(), nil); err != nil || time.Since(start) < LookAgain/2 || time.Since(start) > LookAgain*3/2 {
				t.Errorf("it looks again after %s: %v", time.Since(start), err)
			}
		}
		for name, wake := range map[string]func(l *ZKLink, change, cancel func()){
			"change": func(_ *ZKLink, change, _ func()) { change() },
			"loss":   func(l *ZKLink, _, _ func()) { l.cut() },
			"ctx":    func(_ *ZKLink, _, cancel func()) { cancel() },
		} {
			l, changed := standing(t).Current(), make(chan struct{})
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { wake(l, func() { close(changed) }, func() { cancel(gone) }) })
			start := time.Now()
			err := l.Sleep(ctx, changed)
			if time.Since(start) != time.Second || errors.Is(err, gone) != (name == "ctx") || name != "ctx" && err != nil {
				t.Errorf("%s: it goes on after %s with %v", name, time.Since(start), err)
			}
			cancel(nil)
		}
	})
}

func TestZKAHandshakeThatIsNotAnsweredIsGivenUp(t *testing.T) {
	silent := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t) // its kernel accepts
	defer silent.Close()                                                                   //nolint:errcheck // the test is over
	s := standing(t)
	s.options.TLS, s.options.DialTimeout = new(tls.Config), 100*time.Millisecond
	dialled := make(chan error, 1)
	go func() {
		_, err := s.dial("tcp", silent.Addr().String(), 0)
		dialled <- err
	}()
	select {
	case err := <-dialled:
		if err == nil {
			t.Error("a server that says nothing is connected to")
		}
	case <-time.After(10 * time.Second):
		t.Error("the handshake is waited for without a limit")
	}
}

// request is what the library writes: length, number, and operation.
func request(operation uint32) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint32(b, 8)
	binary.BigEndian.PutUint32(b[8:], operation)
	return b
}

// Only the answer to the credentials arrives before the watches are set: without it the library
// would not set them.
func TestZKAnswersAreHeldBackUntilTheWatchesAreSet(t *testing.T) {
	const get = 4
	ours, server := net.Pipe()
	defer server.Close()       //nolint:errcheck // the test is over
	go io.Copy(server, server) //nolint:errcheck // answers until it is closed
	s := &zkSocket{
		Conn: ours, lost: func() {}, handshake: time.NewTimer(time.Hour), set: make(chan struct{}), settle: time.Minute,
	}
	exchange := func(operation uint32) (answered chan struct{}) {
		must.Get(s.Write(request(operation)))(t)
		answered = make(chan struct{})
		go func() {
			defer close(answered)
			if _, err := io.ReadFull(s, make([]byte, 12)); err != nil {
				t.Error(err)
			}
		}()
		return answered
	}
	<-exchange(setWatches) // the library introduces itself: the epoch that it has seen stands there
	s.greet()
	<-exchange(setAuth)
	early := exchange(get)
	select {
	case <-early:
		t.Error("an answer arrives before the watches are set")
	case <-time.After(50 * time.Millisecond):
	}
	must.Get(s.Write(request(setWatches)))(t)
	<-early
}
