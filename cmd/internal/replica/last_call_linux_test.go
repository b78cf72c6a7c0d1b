package replica

import (
	"net"
	"testing"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// Connections that are not accepted yet when a listener closes are accepted, and no later ones.
func TestAListenerThatClosesAcceptsItsBacklog(t *testing.T) {
	listener := must.Get(openListener(t.Context(), "test", "127.0.0.1:0"))(t)
	const waiting = 3
	for range waiting {
		conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String()))(t)
		defer conn.Close() //nolint:errcheck // the test is over
	}
	for range 2 { // the second time there is nothing to do
		must.Do(t, listener.Close())
	}
	for range waiting {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatalf("a connection of the backlog is not accepted: %v", err)
		}
		defer conn.Close() //nolint:errcheck // the test is over
	}
	should.Reject(listener.Accept())(t, net.ErrClosed)
}
