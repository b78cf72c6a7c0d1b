package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Held is the lease of every lock: what differs is how the name is given back.
type Held struct {
	token  uint64
	ctx    context.Context
	end    context.CancelCauseFunc
	giveUp func(context.Context) error

	// leaving reports that the name is being given back. A renewal that is under way and
	// finds it gone from then on has found no loss.
	leaving atomic.Bool

	behind *Held // the lease that this one joined, or nil

	releasing sync.Mutex
	over      bool // released, or found lost by a Release

	mu        sync.Mutex
	expires   Note         // its TTL is 0 where nothing is known of that
	followers []func(Note) // of renewals
}

// errReleased is the cause of a lease's end that is no loss.
var errReleased = errors.New("lock released")

// NewHeld makes a lease. giveUp gives the name back. It returns ErrLost where it finds
// that the name is not ours any more.
//
//  1. giveUp is called once at the most, and never after the lease was lost.
//  2. A renewal that finds the name gone while it is given back has found no loss.
func NewHeld(token uint64, giveUp func(context.Context) error) *Held {
	h := &Held{token: token, giveUp: giveUp}
	h.ctx, h.end = context.WithCancelCause(context.Background())
	return h
}

// Lose ends the lease because the backend took it, or may have.
func (h *Held) Lose() {
	if !h.leaving.Load() {
		h.end(ErrLost)
	}
}

// Token grows with each holder.
func (h *Held) Token() uint64 { return h.token }

// Context ends with the lease.
func (h *Held) Context() context.Context { return h.ctx }

// Release gives the name back, once. A ctx that has ended is replaced: a client that sends
// nothing under it would leave the name taken for the TTL.
func (h *Held) Release(ctx context.Context) error {
	h.releasing.Lock()
	defer h.releasing.Unlock()
	if h.over {
		return nil
	}
	h.over = true
	h.leaving.Store(true)
	if errors.Is(context.Cause(h.ctx), ErrLost) {
		return ErrLost
	}
	if ctx.Err() != nil {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackWithin)
		defer cancel()
		ctx = own
	}
	err := h.giveUp(ctx)
	if errors.Is(err, ErrLost) {
		h.end(ErrLost)
	}
	h.end(errReleased)
	return err
}

// Granted ends an Acquire that was granted the name.
//
//  1. Where the waiting ended before the grant came, the name is given back.
func Granted(ctx context.Context, lease Lease) (Lease, error) {
	if ctx.Err() == nil {
		return lease, nil
	}
	TakeBack(ctx, lease.Release)
	return nil, NotAcquired(ctx, "", nil)
}

const (
	// takeBackWithin bounds the taking back of what an Acquire that failed may have
	// left in the backend, and a Release whose context has ended.
	takeBackWithin = 2 * time.Second
	// takeBackWait is how long the Acquire itself waits for that: its caller's time
	// is over.
	takeBackWait = 400 * time.Millisecond
)

// TakeBack takes back what an Acquire that failed may have left in the backend. The
// context that has ended is the reason why it is called.
//
//  1. It runs do on a context of its own, which ends within 2 s. Where the backend is slow,
//     TakeBack returns within 400 ms, and do goes on.
func TakeBack(ctx context.Context, do func(context.Context) error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackWithin)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		_ = do(own) // what cannot be taken back frees itself within the TTL
	}()
	timer := time.NewTimer(takeBackWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
