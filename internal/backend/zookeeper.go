package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// ZooKeeperOptions say how to reach an ensemble.
type ZooKeeperOptions struct {
	// Servers are the members of the ensemble, as host:port.
	Servers []string
	// SessionTimeout is how long a replica that fell silent keeps its names: the
	// TTL of these locks. The server has limits of its own. 0: 30 s.
	SessionTimeout time.Duration
	// DialTimeout bounds connecting. A server that stands may take twice as long
	// for an answer. 0: 1 s.
	DialTimeout time.Duration
	// Auth is "user:password" of the digest scheme, or empty. With it, nobody
	// else may touch what the locks keep.
	Auth string
	// TLS encrypts the connections; nil leaves them plain.
	TLS *tls.Config
}

// ZooKeeperClient is the session of one replica with an ensemble, shared by its
// locks. It connects when it is first used, and finds its way back by itself:
// to the session while that lasts, and to a new one after its expiry.
type ZooKeeperClient struct {
	options ZooKeeperOptions

	mu      sync.Mutex
	session *ZKSession // nil before the first use
	closed  bool
}

// NewZooKeeper makes a client, and does not wait for a server.
func NewZooKeeper(o ZooKeeperOptions) *ZooKeeperClient {
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 30*time.Second)
	o.DialTimeout = cmp.Or(o.DialTimeout, time.Second)
	return &ZooKeeperClient{options: o}
}

// Connected is the connection of a session that stands, a new session where the
// last one is over.
func (c *ZooKeeperClient) Connected(ctx context.Context) (*ZKLink, error) {
	for {
		s, err := c.current()
		if err != nil {
			return nil, err
		}
		link, err := s.Connected(ctx)
		if !errors.Is(err, ErrBeginAgain) {
			return link, err
		}
	}
}

// current is the session, or the next one.
func (c *ZooKeeperClient) current() (*ZKSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, zk.ErrClosing
	}
	if c.session != nil && c.session.ctx.Err() == nil {
		return c.session, nil
	}
	s, err := newZKSession(c.options)
	if err != nil {
		return nil, err
	}
	c.session = s
	return s, nil
}

// ping asks the server for a sign of life, and whether what is ours lets us in: a
// wrong password shows nowhere else.
func (c *ZooKeeperClient) ping(ctx context.Context, root string) error {
	link, err := c.Connected(ctx)
	if err != nil {
		return err
	}
	return ZKDo(ctx, link, func(conn *zk.Conn) error {
		_, _, err := conn.Get(root)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return err
	})
}

// Close ends the session, and with it whatever is held.
func (c *ZooKeeperClient) Close() {
	c.mu.Lock()
	c.closed = true
	s := c.session
	c.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// ACL is the access to what this session creates: every client where no password is configured,
// and only holders of the password where one is.
func (s *ZKSession) ACL() []zk.ACL {
	if s.options.Auth == "" {
		return zk.WorldACL(zk.PermAll)
	}
	return zk.AuthACL(zk.PermAll)
}

// SessionID is the number of the current session. The client must have been used.
func (c *ZooKeeperClient) SessionID() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.conn.SessionID()
}
