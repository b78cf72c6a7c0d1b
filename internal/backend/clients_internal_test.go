package backend

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
)

type closer struct{ err error }

func (c closer) Close() error { return c.err }

// Closing a client returns its failures, except that the server closed the connection first.
func TestAServerThatHungUpFirstIsNoFailure(t *testing.T) {
	reset := &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	if err := HangUp(closer{fmt.Errorf("tls: failed to send closeNotify alert: %w", reset)}); err != nil {
		t.Errorf("the server had hung up, and closing fails: %v", err)
	}
	twice := errors.New("closed twice")
	if err := HangUp(closer{twice}); !errors.Is(err, twice) {
		t.Errorf("closing says %v, want %v", err, twice)
	}
}
