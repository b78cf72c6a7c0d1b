package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/stockd/stockd/internal/should"
)

type closer struct{ err error }

func (c closer) Close() error { return c.err }

// Closing a client returns its failures, except that the server closed the connection first.
func TestAServerThatHungUpFirstIsNoFailure(t *testing.T) {
	reset := &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
	should.Fail(t, HangUp(closer{fmt.Errorf("tls: failed to send closeNotify alert: %w", reset)}), nil, "the server had hung up, and closing fails")
	twice := errors.New("closed twice")
	should.Fail(t, HangUp(closer{twice}), twice, "closing says")
}

// In a process that was paused the clock may be past the deadline of a transaction before its
// context is: then nothing is committed.
func TestACommitAfterItsDeadlineIsNotAllowed(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		until time.Duration // from now
		want  error
	}{
		"in time":                     {t.Context(), time.Minute, nil},
		"late by the clock":           {t.Context(), -time.Millisecond, context.DeadlineExceeded},
		"of a request that has ended": {ended, time.Minute, context.Canceled},
	} {
		tx := boundedTx{ctx: c.ctx, until: time.Now().Add(c.until)}
		should.Fail(t, tx.expired(), c.want, name)
	}
}

// A token is dropped where it was rejected. A late rejection says nothing of the next one, and another failure
// nothing of any.
func TestATokenIsForgottenWhereItWasRejected(t *testing.T) {
	first, second := "first", "second"
	rejected, failed := rpctypes.ErrGRPCInvalidAuthToken, errors.New("connection refused")
	for name, c := range map[string]struct {
		known, signed *string
		err           error
		want          *string
	}{
		"rejected":                  {&first, &first, rejected, nil},
		"rejected before the next":  {&second, &first, rejected, &second},
		"rejected after it is gone": {nil, &first, rejected, nil},
		"accepted":                  {&first, &first, nil, &first},
		"not answered":              {&first, &first, failed, &first},
	} {
		login := newEtcdLogin("shop", "secret")
		login.token.Store(c.known)
		login.forget(c.signed, c.err)
		should.Be(t, login.token.Load(), c.want, "the token", name)
	}
}
