package load

import (
	"context"
	"sync"
)

// gate holds requests back while a plan's SoldOut is called.
type gate struct {
	soldOut func(context.Context) (more bool, err error)
	end     context.CancelFunc
	// mu is held for reading by each request that is under way; it guards the rest.
	mu    sync.RWMutex
	calls int
	err   error
}

// pass sends a request, and calls SoldOut where it is rejected for want of stock. The
// run may have ended while the request was held back: then it is not sent.
func (g *gate) pass(ctx context.Context, send func() Kind) {
	g.mu.RLock()
	if ctx.Err() != nil {
		g.mu.RUnlock()
		return
	}
	calls, kind := g.calls, send()
	g.mu.RUnlock()
	if kind == Rejected && g.soldOut != nil {
		g.rejected(ctx, calls)
	}
}

// rejected calls SoldOut, unless it was called since the rejected request was sent.
func (g *gate) rejected(ctx context.Context, calls int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.calls != calls || ctx.Err() != nil {
		return
	}
	g.calls++
	more, err := g.soldOut(ctx)
	if ctx.Err() == nil {
		g.err = err
	}
	if !more || err != nil {
		g.end()
	}
}
