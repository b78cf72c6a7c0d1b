package replica

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
)

// Why a connection was rejected.
const (
	byConnections = "connections" // http.max_connections were open
	byRate        = "rate"        // more than http.connection_rate came
)

const (
	// maxAnswered is how many rejected connections are answered at a time: more than a balancer opens at once. Those
	// beyond it are reset.
	maxAnswered = 1024
	// answeredWithin bounds the time of one, and farewell what is still read of it.
	answeredWithin = time.Second
	farewell       = 1 << 20
)

// cappedListener answers busy on connections beyond the limits. A balancer has sent a purchase on such a connection
// already, and must not repeat it after a reset. To leave them waiting in the kernel would be worse in a
// sale: their clients believe that they are connected, and learn nothing until their own timeout.
type cappedListener struct {
	net.Listener

	limit    int64         // of open connections; 0 sets none
	open     func() int64  // how many there are, beside those that are rejected
	fresh    *rate.Limiter // of new connections; nil sets no limit
	rejected func(by string)
	noFile   func(error)   // a connection waits, because no more files may be open
	answered chan struct{} // has an entry for each rejected connection that is being answered
	leaving  sync.WaitGroup

	handshake time.Duration // the longest time for that of TLS
}

// newCappedListener answers so many rejected connections at a time.
func newCappedListener(l net.Listener, c config.HTTP, answered int, open func() int64, rejected func(by string)) *cappedListener {
	capped := &cappedListener{Listener: l, limit: int64(c.MaxConnections), open: open, rejected: rejected, noFile: func(error) {}, answered: make(chan struct{}, answered), handshake: c.ReadTimeout}
	if c.ConnectionRate > 0 {
		capped.fresh = rate.NewLimiter(rate.Limit(c.ConnectionRate), c.ConnectionRate)
	}
	return capped
}

// Accept returns the next connection that is within the limits. When the listener has closed, it first waits for
// those that are being answered.
func (l *cappedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			l.leaving.Wait()
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			l.noFile(err) // net/http tries again, and would not say so
		}
		if err != nil {
			return nil, err
		}
		switch {
		case l.limit > 0 && l.open() >= l.limit:
			l.rejected(byConnections)
		case l.fresh != nil && !l.fresh.Allow():
			l.rejected(byRate)
		default:
			_ = conn.SetWriteDeadline(time.Now().Add(l.handshake)) // net/http sets its own only behind a header
			return problemConn{conn}, nil
		}
		l.reject(conn)
	}
}

// reject answers a connection, or resets it where there are too many, or where TLS has to come first: without a
// handshake, which costs more than a purchase, nothing can have been sent on it.
func (l *cappedListener) reject(conn net.Conn) {
	if _, encrypted := conn.(*tls.Conn); encrypted {
		reset(conn)
		return
	}
	select {
	case l.answered <- struct{}{}:
	default:
		reset(conn)
		return
	}
	l.leaving.Go(func() {
		defer func() { <-l.answered }()
		_ = conn.SetDeadline(time.Now().Add(answeredWithin)) // where this fails, the read does
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			reset(conn) // no request has come
			return
		}
		sendLast(conn, handler.Answer(http.StatusServiceUnavailable, "this replica has as many connections as it may have, or as many new ones; nothing was done"))
		_ = conn.Close() // the client has the answer, or had a second for it
	})
}

// sendLast sends the last answer on a connection. What its client is still sending is read for a while: to close before
// that would reset the connection, and the client could lose the answer.
func sendLast(conn net.Conn, answer []byte) {
	_ = conn.SetDeadline(time.Now().Add(answeredWithin))
	_, err := conn.Write(answer)
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.Conn != nil { // a client that speaks HTTP where TLS is spoken
		conn = header.Conn
		_, err = conn.Write(answer)
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, conn, farewell) // until the client closes
}

// problemConn is a connection on which what net/http answers itself, to what is no request, becomes a problem, as every
// other failure is.
type problemConn struct{ net.Conn }

// Write sends what a route answers as it is.
func (c problemConn) Write(b []byte) (int, error) {
	status, reason, own := answerOfServer(b)
	if !own {
		return c.Conn.Write(b)
	}
	sendLast(c.Conn, handler.Answer(status, reason))
	return len(b), nil
}

// CloseWrite lets net/http close a connection without a reset.
func (c problemConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// answerOfServer recognizes an answer of net/http itself: no header of a route ends so, and none is 417.
func answerOfServer(b []byte) (status int, reason string, ok bool) {
	const code = len("HTTP/1.1 ")
	if len(b) < code+3 || b[code] != '4' && b[code] != '5' {
		return 0, "", false
	}
	line, text, ok := bytes.Cut(b, []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"))
	status, err := strconv.Atoi(string(b[code : code+3]))
	if err != nil || !bytes.HasPrefix(b, []byte("HTTP/1.1 ")) || status != http.StatusExpectationFailed && (!ok || bytes.ContainsRune(line, '\r')) {
		return 0, "", false
	}
	_, reason, _ = strings.Cut(string(text), ": ")
	return status, reason, true
}

// reset closes a connection without a handshake, so that a flood of silent ones leaves none in TIME_WAIT.
func reset(conn net.Conn) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is closed in any case
	}
	_ = conn.Close() // the client sees it
}
