package replica

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/config"
)

// crowd is a listener of so many connections, and then closed.
type crowd struct {
	net.Listener

	left   int
	closed int
}

// one of them.
type one struct {
	net.Conn

	of *crowd
}

func (c one) Close() error {
	c.of.closed++
	return nil
}

func (c *crowd) Accept() (net.Conn, error) {
	if c.left == 0 {
		return nil, net.ErrClosed
	}
	c.left--
	return one{of: c}, nil
}

// What is beyond a limit is closed and counted by its reason; what is within is not touched.
func TestConnectionsBeyondALimitAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		limits   config.HTTP
		open     int64
		accepted int
		rejected string
	}{
		"no limit":       {config.HTTP{}, 1 << 30, 5, ""},
		"below the most": {config.HTTP{MaxConnections: 3}, 2, 5, ""},
		"at the most":    {config.HTTP{MaxConnections: 3}, 3, 0, byConnections},
		"a rate":         {config.HTTP{ConnectionRate: 2}, 0, 2, byRate},
		"both":           {config.HTTP{MaxConnections: 3, ConnectionRate: 2}, 3, 0, byConnections},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &crowd{left: 5}
			var rejected []string
			l := newCappedListener(inner, c.limits, func() int64 { return c.open }, func(by string) { rejected = append(rejected, by) })
			accepted := 0
			for {
				_, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					break
				}
				accepted++
			}
			if want := slices.Repeat([]string{c.rejected}, 5-c.accepted); accepted != c.accepted || inner.closed != 5-c.accepted || !slices.Equal(rejected, want) {
				t.Errorf("%s: %d are accepted, %d closed and %q rejected, want %d and the rest by %q", name, accepted, inner.closed, rejected, c.accepted, c.rejected)
			}
			if c.rejected != byRate {
				return
			}
			time.Sleep(500 * time.Millisecond) // half of a second is half of the rate
			inner.left = 5
			if _, err := l.Accept(); err != nil || inner.left != 4 {
				t.Errorf("%s: a later connection is not accepted: %v, %d", name, err, inner.left)
			}
		})
	}
}

// A connection beyond a limit is reset, also one that would be encrypted: it is not left to be closed by its
// client.
func TestAConnectionBeyondALimitIsReset(t *testing.T) {
	for name, wrap := range map[string]func(net.Listener) net.Listener{
		"plain": func(l net.Listener) net.Listener { return l },
		"encrypted": func(l net.Listener) net.Listener {
			return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12})
		},
	} {
		listener, err := openListener(t.Context(), "test", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		full := newCappedListener(wrap(listener), config.HTTP{MaxConnections: 1}, func() int64 { return 1 }, func(string) {})
		ended := make(chan error, 1)
		go func() {
			_, err := full.Accept()
			ended <- err
		}()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err == nil { // it was made before it was reset
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close() // it has ended
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: a connection beyond the limit ends with %v, want %v", name, err, syscall.ECONNRESET)
		}
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: a connection beyond the limit is accepted: %v", name, err)
		}
	}
}
