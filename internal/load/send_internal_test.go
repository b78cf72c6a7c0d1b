package load

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/valyala/fasthttp"
)

func TestOnlyARequestThatNeverLeftHasAKnownOutcome(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind Kind
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, Failed},
		{fmt.Errorf("purchase: %w", fasthttp.ErrDialTimeout), Failed},
		{fasthttp.ErrNoFreeConns, Failed},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, Unknown},
		{fasthttp.ErrTimeout, Unknown},
		{fasthttp.ErrConnectionClosed, Unknown},
		{errors.New("no answer"), Unknown},
	} {
		if got := failed(c.err); got.Kind != c.kind || (got.Problem == "no-connection") != (c.kind == Failed) {
			t.Errorf("%v is %+v, want %v", c.err, got, c.kind)
		}
	}
}
