package lock

import (
	"context"
	"sync"
	"time"
)

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

// renewal is the note of a renewal that was asked for at a time.
func renewal(asked time.Time, left, ttl time.Duration, still bool, err error) Note {
	n := Note{At: asked, Took: time.Since(asked), What: Renewed, TTL: ttl, Left: left, Err: err}
	if err != nil || !still {
		n.What, n.TTL = NotRenewed, 0
	}
	return n
}
