package servers

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range from which systems take the near ends
// of outgoing connections: a free port that was just found is then not taken by
// a passing client before its server binds it.
const (
	lowest  = 20000
	highest = 32000
)

// FreePort finds a port on 127.0.0.1 that nobody listens on. Somebody else may take
// it before it is used; whoever starts a server on it should try another then.
func FreePort() (int, error) {
	for range 100 {
		port := lowest + rand.N(highest-lowest)
		l, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err == nil {
			return port, nil
		}
	}
	return 0, errors.New("no free port on 127.0.0.1 in 100 tries")
}

// Loopback is the loopback address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
