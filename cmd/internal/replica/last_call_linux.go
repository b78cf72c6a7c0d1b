package replica

import (
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// lastCall is a listener that leaves nobody behind when it closes. One that is
// simply closed resets those whom the kernel has connected and nobody has accepted
// yet: their request is on its way, and their balancer must not send it again.
type lastCall struct {
	*net.TCPListener

	once    sync.Once
	err     error         // of the closing
	closing chan struct{} // closed when that begins
	closed  chan struct{} // closed when late is known
	late    []net.Conn    // were there, and are accepted yet
}

func newLastCall(listener net.Listener) net.Listener {
	tcp, is := listener.(*net.TCPListener)
	if !is {
		return listener
	}
	return &lastCall{TCPListener: tcp, closing: make(chan struct{}), closed: make(chan struct{})}
}

// Accept goes on, once the listener has closed, with those who were there.
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

// Close takes whoever is there and closes in the same moment.
func (l *lastCall) Close() error {
	l.once.Do(func() {
		close(l.closing)
		var taken error
		socket, err := l.SyscallConn()
		if err == nil {
			err = socket.Control(func(fd uintptr) { l.late, taken = takeAll(int(fd)) })
		}
		close(l.closed)
		l.err = errors.Join(err, taken, l.TCPListener.Close())
	})
	return l.err
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
		err = nil // nobody is left
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
