package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/pause"
)

// ZooKeeperOptions say how to reach an ensemble.
type ZooKeeperOptions struct {
	// Servers are the members of the ensemble, as host:port.
	Servers []string
	// SessionTimeout is how long an unresponsive replica keeps its names: the TTL of these locks.
	// The server has limits of its own. 0: 30 s.
	SessionTimeout time.Duration
	// DialTimeout bounds connecting. A server that stands may take twice as long
	// for an answer. 0: 1 s.
	DialTimeout time.Duration
	// Auth is "user:password" of the digest scheme, or empty. With it, no other client may touch
	// the nodes of the locks.
	Auth string
	// TLS encrypts the connections; nil leaves them plain.
	TLS *tls.Config `json:"-"`
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

// ping begins to create a node below the root of stockd's, or the root where there is none, and then to check
// it for a version that it does not have: nothing is created. A wrong password and a quota show nowhere else.
func (c *ZooKeeperClient) ping(ctx context.Context, root string) error {
	link, err := c.Connected(ctx)
	if err != nil {
		return err
	}
	for _, path := range []string{root + "/ping", root} {
		err = ZKDo(ctx, link, func(conn *zk.Conn) error {
			_, err := conn.Multi(&zk.CreateRequest{Path: path, Acl: link.Session.ACL()}, &zk.CheckVersionRequest{Path: path, Version: 1})
			return err
		})
		if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return err
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

// zkServers names the servers to the library, one after another. The library's own provider
// resolves them once, and pauses a second before it replaces a connection, which may be a whole
// TTL. Only the library's loop calls it.
type zkServers struct {
	ctx       context.Context // ends with the session
	addresses []string
	next      int
	failed    int // tries since a connection stood
	stood     time.Time
}

// The rests between one round of all servers and the next double from the first
// to the last, which is the library's own.
const (
	firstRest = 50 * time.Millisecond
	lastRest  = time.Second
)

func (z *zkServers) Init(addresses []string) error {
	z.addresses = addresses
	return nil
}

func (z *zkServers) Len() int { return len(z.addresses) }

// Next is the next one to try, after a rest where all of them have failed.
func (z *zkServers) Next() (address string, rest bool) {
	rounds, more := z.failed/len(z.addresses), z.failed%len(z.addresses)
	if rounds > 0 && more == 0 {
		own := firstRest << min(rounds-1, 10)
		if rest = own >= lastRest; !rest {
			_ = pause.About(z.ctx, own)
		}
	}
	address = z.addresses[z.next%len(z.addresses)]
	z.next++
	z.failed++
	return address, rest
}

// Connected is called with each connection. Those that end soon are no reason to retry at once.
func (z *zkServers) Connected() {
	if time.Since(z.stood) > lastRest {
		z.failed = 0
	}
	z.stood = time.Now()
}
