package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// zkSocket is a connection under the library, and works around two of its weaknesses: it would wait
// for a server's greeting for seven session timeouts, and on each connection it looks for watches to
// set again while answers may arrive already, which is a data race.
type zkSocket struct {
	net.Conn

	lost      func()        // called when nothing more will be received
	handshake *time.Timer   // ends it, unless the server greets
	greeted   bool          // it has
	held      bool          // answers are held back, until the watches are set
	asked     atomic.Bool   // something has been, beside to be let in
	set       chan struct{} // closed when the watches are
	settle    time.Duration // the longest that answers are held back
	once      sync.Once
}

const (
	// settleWithin is how long answers are held back where there is no watch to be set, as on the
	// first connection: the library does not say when it has looked.
	settleWithin = 50 * time.Millisecond
	// The numbers of the operations that give credentials and set watches.
	setAuth    = 100
	setWatches = 101
)

func (s *ZKSession) dial(network, address string, _ time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: s.options.DialTimeout}
	conn, err := dialer.DialContext(s.ctx, network, address)
	if err != nil {
		s.note(err)
		return nil, err
	}
	if s.options.TLS != nil {
		if conn, err = s.encrypt(conn, address); err != nil {
			s.note(err)
			return nil, err
		}
	}
	s.socket = &zkSocket{
		Conn: conn, lost: s.suspend, set: make(chan struct{}), settle: settleWithin,
		handshake: time.AfterFunc(s.options.DialTimeout, func() {
			s.note(fmt.Errorf("%s accepts, and does not greet", address))
			conn.Close() //nolint:errcheck // it is of no use
		}),
	}
	return s.socket, nil
}

// encrypt verifies the server, and closes the connection where that fails.
func (s *ZKSession) encrypt(plain net.Conn, address string) (net.Conn, error) {
	config := s.options.TLS.Clone()
	host, _, _ := net.SplitHostPort(address)
	config.ServerName = cmp.Or(config.ServerName, host)
	limited, cancel := context.WithTimeout(s.ctx, s.options.DialTimeout)
	defer cancel()
	conn := tls.Client(plain, config)
	if err := conn.HandshakeContext(limited); err != nil {
		plain.Close() //nolint:errcheck // it is of no use
		return nil, fmt.Errorf("encrypt the connection to %s: %w", address, err)
	}
	return conn, nil
}

// greet marks the connection as the session's.
func (s *zkSocket) greet() {
	s.handshake.Stop()
	s.greeted, s.held = true, true
}

// Read holds the first answer back, except for those to credentials, which come first, and which
// the library waits for. The end of the connection is reported at once: the library would first
// finish a request that it may be writing.
func (s *zkSocket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err != nil {
		s.lost()
	}
	if s.held && s.asked.Load() {
		s.held = false
		select {
		case <-s.set:
		case <-time.After(s.settle):
		}
	}
	return n, err
}

// Write looks for the watches. The library writes a request at a time: its
// length, its number, and the number of its operation. What it writes before it was
// greeted is of another form.
func (s *zkSocket) Write(b []byte) (int, error) {
	if !s.greeted || len(b) < 12 {
		return s.Conn.Write(b)
	}
	operation := binary.BigEndian.Uint32(b[8:])
	if operation != setAuth {
		s.asked.Store(true)
	}
	n, err := s.Conn.Write(b)
	if operation == setWatches {
		s.once.Do(func() { close(s.set) })
	}
	return n, err
}
