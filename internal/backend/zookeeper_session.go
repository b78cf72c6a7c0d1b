package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/pause"
)

// ErrBeginAgain reports that the session or the node of an attempt is gone.
var ErrBeginAgain = errors.New("begin again")

// ZKSession is one session, from its beginning to its expiry. The library would go on with another
// session on the same Conn; here a Conn ends with its session, so that no request of one is executed
// in another.
type ZKSession struct {
	options ZooKeeperOptions
	conn    *zk.Conn
	ctx     context.Context // ends with the session
	end     context.CancelFunc

	socket *zkSocket // the last connection, nil before the first; for the library's loop only

	calls sync.RWMutex // held for reading by each call under way

	mu         sync.Mutex
	link       *ZKLink
	authorized bool
	trouble    error // why there is no connection
}

// newZKSession begins a session, and does not wait for it.
func newZKSession(o ZooKeeperOptions) (*ZKSession, error) {
	s := &ZKSession{options: o}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.link = newZKLink(s)
	s.mu.Lock() // the library may call back before it returns
	defer s.mu.Unlock()
	var err error
	s.conn, _, err = zk.Connect(o.Servers, o.SessionTimeout,
		zk.WithDialer(s.dial), zk.WithHostProvider(&zkServers{ctx: s.ctx}), zk.WithEventCallback(s.event),
		zk.WithLogger(zkSilence{}), zk.WithLogInfo(false))
	if err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// zkSilence is the library's log. What it says is in the errors, too.
type zkSilence struct{}

func (zkSilence) Printf(string, ...any) {}

// Connected waits for the connection, for as long as a server may take to
// answer. Where the session is over, the error is errBeginAgain.
func (s *ZKSession) Connected(ctx context.Context) (*ZKLink, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if link := s.Current(); link.isUp() && link.Ctx.Err() == nil {
		return link, nil
	}
	limited, cancel := Outlasting(ctx, time.Now().Add(s.options.DialTimeout))
	defer cancel()
	for {
		link := s.Current()
		select {
		case <-link.up:
			if link.Ctx.Err() == nil {
				return link, nil
			}
		case <-s.ctx.Done():
			return nil, ErrBeginAgain
		case <-limited.Done():
			return nil, zkGaveUp(ctx, s.why())
		}
	}
}

// Current is the connection in use, or nil.
func (s *ZKSession) Current() *ZKLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

func (s *ZKSession) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble == nil {
		return fmt.Errorf("%w from %v", ErrUnanswered, s.options.Servers)
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, s.trouble)
}

func (s *ZKSession) note(trouble error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trouble = trouble
}

// event is called by the library, in the order in which things happen. It must
// not wait.
func (s *ZKSession) event(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		s.Current().fire(e.Path)
	case e.State == zk.StateHasSession:
		s.socket.greet()
		s.resume()
	case e.State == zk.StateDisconnected:
		s.suspend()
	case e.State == zk.StateExpired:
		s.end()
		go s.close()
	}
}

// resume opens the connection for use. The library repeats credentials on each
// connection once AddAuth has succeeded.
func (s *ZKSession) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options.Auth == "" || s.authorized {
		s.open()
		return
	}
	go func() {
		err := s.conn.AddAuth("digest", []byte(s.options.Auth))
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.trouble = err
			return
		}
		s.authorized = true
		s.open()
	}()
}

func (s *ZKSession) open() {
	s.trouble = nil
	if !s.link.isUp() {
		close(s.link.up)
	}
}

// suspend ends the connection. The session may survive it, but the holder of a name cannot know
// that.
func (s *ZKSession) suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link.isUp() {
		s.link.cut()
		s.link = newZKLink(s)
	} else if s.socket != nil && s.socket.handshake.Stop() && s.trouble == nil {
		s.trouble = errors.New("the server hung up before it greeted")
	}
}

// close ends the session, and with it what the server keeps of it. Where there
// is no connection, the library would wait in vain to say goodbye.
func (s *ZKSession) close() {
	s.mu.Lock() // the library may have called back before it returned a Conn
	conn, connected := s.conn, s.link.isUp()
	s.mu.Unlock()
	s.end()
	if !connected {
		go conn.Close()
		return
	}
	closed := pause.During(zkCloseWithin, func() {
		s.calls.Lock() // the library writes an answer that comes after its Close into what a call has returned
		defer s.calls.Unlock()
		conn.Close()
	})
	if !closed {
		go conn.Close() // it ends the calls that are not answered
	}
}

// zkCloseWithin bounds the close of a session at a server that does not answer. Its session
// ends with its timeout then.
const zkCloseWithin = 500 * time.Millisecond

// ZKDrop deletes a node of ours and nothing else. It answers zk.ErrNoNode where
// there is none any more.
type ZKDrop func(*zk.Conn) error

// sweepAgain is the pause before what did not go is tried again.
const sweepAgain = 100 * time.Millisecond

// Discard deletes in the background what may be left: it would block other clients for as long as
// the session lasts, which takes it along. It is tried until it is gone, over any number of connections.
func (s *ZKSession) Discard(drop ZKDrop) {
	go func() {
		for {
			select {
			case <-s.Current().up:
			case <-s.ctx.Done():
			}
			if s.ctx.Err() != nil || ZKGone(drop(s.conn)) || pause.About(s.ctx, sweepAgain) != nil {
				return
			}
		}
	}()
}

// ZKAnswered reports whether the server has answered. What is listed here leaves the outcome unknown; everything else is
// an answer, also where the library does not know its number: servers have more of them than the library.
func ZKAnswered(err error) bool {
	if _, network := errors.AsType[net.Error](err); network {
		return false
	}
	return !slices.ContainsFunc([]error{
		zk.ErrConnectionClosed, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrClosing, zk.ErrNoServer, // of the library
		ErrUnanswered, ErrBeginAgain, context.Canceled, context.DeadlineExceeded, // ours
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, // of the connection
	}, func(open error) bool { return errors.Is(err, open) })
}

// ZKGone reports whether the server has answered that a node is not there, or not any more.
func ZKGone(err error) bool { return err == nil || errors.Is(err, zk.ErrNoNode) }
