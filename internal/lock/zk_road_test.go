package lock_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"testing"
)

// road is a proxy between a replica and its ZooKeeper. It remembers what the
// replica asks for, can hold up a request, and can be closed and opened again.
type road struct {
	address, target string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
	sent     bytes.Buffer
	stop     []byte        // what is held up
	stopped  chan struct{} // closed when it came
	pass     chan struct{} // closed when it may go on
}

func newRoad(t *testing.T, target string) *road {
	t.Helper()
	r := &road{address: "127.0.0.1:0", target: target}
	r.open(t)
	t.Cleanup(r.close)
	return r
}

// open lets connections be made.
func (r *road) open(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener, r.address = listener, listener.Addr().String()
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go r.carry(client)
		}
	}()
}

// close ends all connections and refuses new ones.
func (r *road) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener.Close() //nolint:errcheck // that is the fault we make
	for _, conn := range r.conns {
		conn.Close() //nolint:errcheck // the same
	}
}

// carry passes on what both say until one of them hangs up.
func (r *road) carry(client net.Conn) {
	defer client.Close() //nolint:errcheck // one of them hung up
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // the same
	r.mu.Lock()
	r.conns = append(r.conns, client)
	r.mu.Unlock()
	go func() {
		defer client.Close() //nolint:errcheck // the same
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		r.inspect(buffer[:n])
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (r *road) inspect(sent []byte) {
	r.mu.Lock()
	r.sent.Write(sent)
	stopped, pass := r.stopped, r.pass
	if len(r.stop) == 0 || !bytes.Contains(sent, r.stop) {
		r.mu.Unlock()
		return
	}
	r.stop = nil
	r.mu.Unlock()
	close(stopped)
	<-pass
}

// holdUp stops the next request of a kind for a path on its way, until pass is
// called.
func (r *road) holdUp(request []byte) (stopped <-chan struct{}, pass func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop, r.stopped, r.pass = request, make(chan struct{}), make(chan struct{})
	return r.stopped, sync.OnceFunc(func() { close(r.pass) })
}

// count tells how often something was sent.
func (r *road) count(request []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Count(r.sent.Bytes(), request)
}

// The numbers of ZooKeeper's operations.
const (
	zkGetData     = 4
	zkGetChildren = 12
)

// zkWatching is how a request looks that reads a path and watches it.
func zkWatching(operation uint32, path string) []byte {
	request := binary.BigEndian.AppendUint32(nil, operation)
	request = binary.BigEndian.AppendUint32(request, uint32(len(path)))
	return append(append(request, path...), 1)
}
