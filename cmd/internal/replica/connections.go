package replica

import (
	"crypto/tls"
	"net"

	"golang.org/x/time/rate"

	"github.com/stockd/stockd/internal/config"
)

// Why a connection was rejected.
const (
	byConnections = "connections" // http.max_connections were open
	byRate        = "rate"        // more than http.connection_rate came
)

// cappedListener resets connections beyond the limits at once. To leave them waiting in the
// kernel would be worse in a sale: their clients believe that they are connected, and learn
// nothing until their own timeout, where a reset lets a balancer take another replica.
type cappedListener struct {
	net.Listener

	limit    int64         // of open connections; 0 sets none
	open     func() int64  // how many there are
	fresh    *rate.Limiter // of new connections; nil sets no limit
	rejected func(by string)
}

func newCappedListener(l net.Listener, c config.HTTP, open func() int64, rejected func(by string)) *cappedListener {
	capped := &cappedListener{Listener: l, limit: int64(c.MaxConnections), open: open, rejected: rejected}
	if c.ConnectionRate > 0 {
		capped.fresh = rate.NewLimiter(rate.Limit(c.ConnectionRate), c.ConnectionRate)
	}
	return capped
}

// Accept returns the next connection that is within the limits.
func (l *cappedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		switch {
		case l.limit > 0 && l.open() >= l.limit:
			l.rejected(byConnections)
		case l.fresh != nil && !l.fresh.Allow():
			l.rejected(byRate)
		default:
			return conn, nil
		}
		reset(conn)
	}
}

// reset closes a connection without a handshake, so that a flood leaves none in TIME_WAIT.
func reset(conn net.Conn) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is closed in any case
	}
	_ = conn.Close() // the client sees it
}
