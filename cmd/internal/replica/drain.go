package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/stock"
)

// errStopped cancels the requests that outlast the drain.
var errStopped = fmt.Errorf("%w: this replica has stopped", stock.ErrBusy)

// lastMoment is what requests have to end after they were cancelled: to receive the
// answers to their commits, and to release their locks.
const lastMoment = 800 * time.Millisecond

const (
	// silence is the time without requests after which idle connections are closed.
	silence = 2 * time.Second
	// look is the time from one look for requests to the next.
	look = 10 * time.Millisecond
)

// drainer stops a server so that no request is lost on its way.
type drainer struct {
	config   config.HTTP
	server   *http.Server
	listener net.Listener
	// cancelRequests ends those in flight.
	cancelRequests context.CancelCauseFunc

	accepted chan struct{} // closed when no connection is accepted any more
	open     atomic.Int64  // connections
	last     atomic.Int64  // when a request began, in nanoseconds
}

func newDrainer(c config.HTTP, server *http.Server, listener net.Listener, cancelRequests context.CancelCauseFunc) *drainer {
	d := &drainer{config: c, server: server, listener: listener, cancelRequests: cancelRequests, accepted: make(chan struct{})}
	server.ConnState = d.note
	return d
}

func (d *drainer) serve() error {
	defer close(d.accepted)
	err := d.server.Serve(d.listener)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// note counts connections, and keeps the time of the last request on them.
func (d *drainer) note(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		d.open.Add(1)
	case http.StateActive:
		d.last.Store(time.Now().UnixNano())
	case http.StateClosed, http.StateHijacked:
		d.open.Add(-1)
	case http.StateIdle:
	}
}

// drain stops the server.
//
//  1. For drain_delay /readyz fails, so that the balancer notices, and every request is still
//     served. Every answer closes its connection.
//  2. After drain_delay no more connections are accepted, but those of the backlog are served.
//  3. Requests in flight may end within http.drain. What does not end by then is cancelled,
//     and is answered.
func (d *drainer) drain(ctx context.Context) error {
	time.Sleep(d.config.DrainDelay)
	end := time.Now().Add(d.config.Drain)
	closed := d.listener.Close() // requests in flight are answered first, also where this fails
	<-d.accepted                 // the connections of the backlog are accepted
	d.useUp(end)
	if d.shutdown(ctx, time.Until(end)) == nil {
		return closed
	}
	d.cancelRequests(errStopped)
	if err := d.shutdown(ctx, lastMoment); err != nil {
		return errors.Join(closed, d.server.Close(), fmt.Errorf("requests do not end: %w", err))
	}
	return errors.Join(closed, fmt.Errorf("requests were cancelled that were still in flight after http.drain (%s)", d.config.Drain))
}

// useUp leaves the connections open that a balancer keeps alive, until it has used them or sends
// nothing more: one that is closed while it is idle may carry the next purchase already, which would
// get no answer, and which the balancer must not repeat. Every answer now closes its connection, so
// that a crowd uses them up in no time.
//
// Silence is counted in looks: a process that the machine has stopped for a while has requests on its
// connections that it has not read.
func (d *drainer) useUp(end time.Time) {
	if d.config.DrainDelay == 0 {
		return // there is no balancer
	}
	last, quiet := int64(0), 0
	for d.open.Load() > 0 && quiet <= int(silence/look) && time.Now().Before(end) {
		if began := d.last.Load(); began != last {
			last, quiet = began, 0
		}
		quiet++
		time.Sleep(look)
	}
}

func (d *drainer) shutdown(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.server.Shutdown(ctx)
}
