package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/pause"
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
	pause.During(takeBackWait, func() {
		defer cancel()
		_ = do(own) // what cannot be taken back frees itself within the TTL
	})
}

// lapse is when a holder takes a lease for over that it requested at a time. It is a
// little before its TTL is over: its clock and the backend's differ, and a busy machine
// wakes it late. It must be notified of the loss before the next holder is granted the
// name. One per cent and 2 ms are what Redis proposes for Redlock, see "Distributed
// Locks with Redis" at redis.io.
func lapse(asked time.Time, ttl time.Duration) time.Time {
	return asked.Add(ttl - ttl/100 - 2*time.Millisecond)
}

// watchdog renews a lease for as long as its holder lives, a third of its TTL
// at a time, and ends it where it cannot be renewed any more. It stops with the
// lease.
//
// It has no goroutine of its own: most leases are over before the first
// renewal, and cost a timer.
type watchdog struct {
	lease *Held
	ttl   time.Duration
	// renew prolongs the lease by a TTL from now. still is false where the name
	// is no longer ours; an error leaves that open.
	renew func(ctx context.Context) (still bool, err error)

	mu    sync.Mutex
	timer *time.Timer
	until time.Time // the lease is ours until then, by our clock
}

// Watch starts the watchdog of a lease that was asked for at a time.
//
//  1. The lease is renewed after a third of its TTL, and again after a third from each
//     renewal. A renewal that is not answered is repeated soon.
//  2. A lease whose renewals are not answered is lost before its TTL is over, counted from
//     the sending of the last one that was. A lease whose name is found gone is lost at
//     once.
//  3. After the lease has ended nothing is renewed.
func Watch(lease *Held, asked time.Time, ttl time.Duration, renew func(context.Context) (bool, error)) {
	lease.ExpiresAfter(asked, ttl)
	w := &watchdog{lease: lease, ttl: ttl, renew: renew, until: lapse(asked, ttl)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(time.Until(asked.Add(ttl/3)), w.fire)
	context.AfterFunc(lease.ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.timer.Stop()
	})
}

// Expire ends a lease without renewal.
//
//  1. It is lost before its TTL is over.
func Expire(lease *Held, asked time.Time, ttl time.Duration) {
	lease.ExpiresAfter(asked, ttl)
	timer := time.AfterFunc(time.Until(lapse(asked, ttl)), lease.Lose)
	context.AfterFunc(lease.ctx, func() { timer.Stop() })
}

// Keep renews a lease as Watch does, or lets it end as Expire does where leases are explicit.
func (d Deps) Keep(lease *Held, asked time.Time, renew func(context.Context) (bool, error)) {
	if d.Unrenewed {
		Expire(lease, asked, d.TTL)
		return
	}
	Watch(lease, asked, d.TTL, renew)
}

// fire renews once and sets the timer for the next time. Where the backend does
// not answer, it is asked again soon, until the lease has run out.
func (w *watchdog) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := time.Now()
	ctx, cancel := context.WithDeadline(w.lease.ctx, w.until)
	defer cancel()
	left := w.until.Sub(asked)
	still, err := w.renew(ctx)
	if w.lease.ctx.Err() != nil {
		return // released meanwhile
	}
	// A process that was paused reads an answer that was given in time when the name may be another's.
	late := !time.Now().Before(w.until)
	w.lease.tell(renewal(asked, left, w.ttl, still && !late, err))
	switch {
	case late, err == nil && !still:
		w.lease.Lose()
	case err == nil:
		w.until = lapse(asked, w.ttl)
		w.timer.Reset(w.ttl / 3)
	default:
		w.timer.Reset(min(w.ttl/10, time.Until(w.until)))
	}
}

func renewal(asked time.Time, left, ttl time.Duration, still bool, err error) Note {
	n := Note{At: asked, Took: time.Since(asked), What: Renewed, TTL: ttl, Left: left, Err: err}
	if err != nil || !still {
		n.What, n.TTL = NotRenewed, 0
	}
	return n
}
