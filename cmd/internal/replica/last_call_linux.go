package replica

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lastCall is a listener that serves its backlog when it closes. A plain one resets connections that
// the kernel has made and that were not accepted yet: their requests may be on the way, and a
// balancer must not repeat them.
type lastCall struct {
	*net.TCPListener

	once    sync.Once
	err     error         // of the closing
	closing chan struct{} // closed when that begins
	closed  chan struct{} // closed when late is known
	late    []net.Conn    // the backlog at that moment
}

func newLastCall(listener net.Listener) net.Listener {
	tcp, ok := listener.(*net.TCPListener)
	if !ok {
		return listener
	}
	return &lastCall{TCPListener: tcp, closing: make(chan struct{}), closed: make(chan struct{})}
}

// Accept goes on with the backlog once the listener has closed.
func (l *lastCall) Accept() (net.Conn, error) {
	conn, err := l.TCPListener.Accept()
	if err == nil {
		return conn, nil
	}
	select {
	case <-l.closing:
		<-l.closed
	default:
		return nil, err
	}
	if len(l.late) == 0 {
		return nil, net.ErrClosed
	}
	conn, l.late = l.late[0], l.late[1:]
	return conn, nil
}

// handshake is how long a connection may take to be made that has begun.
const handshake = 50 * time.Millisecond

// Close takes no more connections, waits for those that are being made, takes the backlog, and closes.
func (l *lastCall) Close() error {
	l.once.Do(func() {
		var ignored, taken error
		socket, err := l.SyscallConn()
		if err == nil {
			err = socket.Control(func(fd uintptr) { ignored = ignoreNew(int(fd)) })
		}
		if err == nil && ignored == nil { // a sandbox may not have it
			time.Sleep(handshake)
		}
		close(l.closing)
		if err == nil {
			err = socket.Control(func(fd uintptr) { l.late, taken = takeAll(int(fd)) })
		}
		close(l.closed)
		l.err = errors.Join(err, taken, l.TCPListener.Close())
	})
	return l.err
}

// ignoreNew has a listener drop the first packet of each new connection, as if it were lost. Without it one that
// is made between the end of the backlog and the closing would be reset: a busy machine stops a process there for
// milliseconds.
func ignoreNew(listener int) error {
	const flags, syn, drop, pass = 13, 0x02, 0, 0xffffffff // the flags are the fourteenth byte of a packet
	program := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: drop},
		{Code: unix.BPF_RET | unix.BPF_K, K: pass},
	}
	return unix.SetsockoptSockFprog(listener, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// takeAll empties the queue of a listener and shuts it; nothing is done in between.
func takeAll(listener int) (conns []net.Conn, err error) {
	var taken []int
	var fd int
	for err == nil {
		if fd, _, err = unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
			taken = append(taken, fd)
		}
	}
	if errors.Is(err, unix.EAGAIN) {
		err = nil // the backlog is empty
	}
	err = errors.Join(err, unix.Shutdown(listener, unix.SHUT_RDWR))
	for _, fd := range taken {
		file := os.NewFile(uintptr(fd), "connection")
		conn, failed := net.FileConn(file) // a copy
		if failed == nil {
			conns = append(conns, conn)
		}
		err = errors.Join(err, failed, file.Close())
	}
	return conns, err
}
