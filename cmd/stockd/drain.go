package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/stock"
)

// errStopped is told to those whose request outlasts the drain.
var errStopped = fmt.Errorf("%w: this replica has stopped", stock.ErrBusy)

// lastMoment is what requests have to let go of their locks after they were
// cancelled.
const lastMoment = 3 * time.Second

// drain stops a server: first /readyz tells the balancer for a moment, while
// everybody is still served; then no more connections are taken, and requests in
// flight may end; and those that do not are cancelled.
func drain(ctx context.Context, c config.HTTP, server *http.Server, cancelRequests context.CancelCauseFunc) error {
	time.Sleep(c.DrainDelay)
	if shutdown(ctx, server, c.Drain) == nil {
		return nil
	}
	cancelRequests(errStopped)
	if err := shutdown(ctx, server, lastMoment); err != nil {
		return err
	}
	return fmt.Errorf("requests were cancelled that were still in flight after http.drain (%s)", c.Drain)
}

func shutdown(ctx context.Context, server *http.Server, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return server.Shutdown(ctx)
}
