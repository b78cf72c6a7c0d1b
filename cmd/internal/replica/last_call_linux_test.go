package replica

import (
	"errors"
	"net"
	"testing"
)

// Connections that are not accepted yet when a listener closes are accepted, and no later ones.
func TestAListenerThatClosesAcceptsItsBacklog(t *testing.T) {
	listener, err := openListener(t.Context(), "test", "127.0.0.1:0")
	must(t, err)
	const waiting = 3
	for range waiting {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		must(t, err)
		defer conn.Close() //nolint:errcheck // the test is over
	}
	for range 2 { // the second time there is nothing to do
		must(t, listener.Close())
	}
	for range waiting {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatalf("a connection of the backlog is not accepted: %v", err)
		}
		defer conn.Close() //nolint:errcheck // the test is over
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after them Accept says %v, want that it is closed", err)
	}
}
