package labtest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Cut is a proxy on loopback that ends a connection at the worst moment: when
// the client has sent certain bytes. Other connections pass.
type Cut struct {
	// Address is where to connect to.
	Address string

	listener net.Listener
	target   string
	mu       sync.Mutex
	at       []byte
	skip     int
	deliver  bool
	silent   bool
	conns    map[net.Conn]bool
}

// NewCut puts a proxy before a target; it is closed with the test.
func NewCut(t *testing.T, target string) *Cut {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cut{Address: listener.Addr().String(), listener: listener, target: target, conns: make(map[net.Conn]bool)}
	go c.serve()
	t.Cleanup(c.close)
	return c
}

// After cuts, once, the first connection on which the client sends these bytes.
// deliver tells whether the server still gets them: then it acts, and only its
// answer is lost.
func (c *Cut) After(sent string, deliver bool) { c.AfterSome(0, sent, deliver) }

// AfterSome is After, but for the first few times that these bytes are sent.
func (c *Cut) AfterSome(skip int, sent string, deliver bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.skip, c.deliver = []byte(sent), skip, deliver
}

// Disarm makes no cut any more, and reports whether there was one.
func (c *Cut) Disarm() (cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut = c.at == nil
	c.at = nil
	return cut
}

// Mute lets connections be made, and nothing be answered on them.
func (c *Cut) Mute(mute bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = mute
	if mute {
		for conn := range c.conns {
			conn.Close() //nolint:errcheck // that is the fault we make
		}
	}
}

func (c *Cut) close() {
	c.listener.Close() //nolint:errcheck // nothing is left to do with it
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close() //nolint:errcheck // nothing is left to do with it
	}
}

func (c *Cut) serve() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.mu.Lock()
		c.conns[client] = true
		silent := c.silent
		c.mu.Unlock()
		if !silent {
			go c.pass(client)
		}
	}
}

// pass connects a client to the target until either hangs up, or the cut.
func (c *Cut) pass(client net.Conn) {
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		client.Close() //nolint:errcheck // the target is gone, and so are we
		return
	}
	back := &answers{from: server, to: client, lost: make(chan struct{})}
	go back.pass()
	defer client.Close() //nolint:errcheck // the client hung up, or was cut
	defer server.Close() //nolint:errcheck // the same
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		cut, deliver := c.isCut(buffer[:n])
		if cut && !deliver {
			return
		}
		back.drop.Store(cut) // before the server can have an answer
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
		if cut {
			back.await()
			return
		}
	}
}

// answers is the way back from a target to its client.
type answers struct {
	from, to net.Conn
	// drop has what comes from now on be lost; lost is closed with the first of it.
	drop atomic.Bool
	lost chan struct{}
}

func (a *answers) pass() {
	defer a.to.Close() //nolint:errcheck // the target hung up
	buffer := make([]byte, 64<<10)
	for {
		n, err := a.from.Read(buffer)
		if err != nil {
			return
		}
		if a.drop.Load() {
			close(a.lost)
			return
		}
		if _, err := a.to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// answerWithin bounds the wait for an answer that is to be lost.
const answerWithin = time.Second

// await returns when the target has acted: its answer is there, and lost. The
// client must not hear of the cut before, or what it sends next could overtake
// what the target has not read yet.
func (a *answers) await() {
	select {
	case <-a.lost:
	case <-time.After(answerWithin):
	}
}

func (c *Cut) isCut(sent []byte) (cut, deliver bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.at) == 0 || !bytes.Contains(sent, c.at) {
		return false, false
	}
	if c.skip > 0 {
		c.skip--
		return false, false
	}
	c.at = nil
	return true, c.deliver
}
