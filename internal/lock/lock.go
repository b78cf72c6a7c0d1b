// Package lock holds the locks of stockd behind one contract: a Locker grants
// a name to one holder at a time, as far as its backend can, and a Lease is
// the name held. Each lock is one file and one line in the registry, and
// locktest tests each of them against the contract and its guarantees.
package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/stock"
)

// The kinds of failure of a lock. A failure of the backend itself is a
// *stock.BackendError.
var (
	// ErrNotAcquired tells that the name was not granted. It comes together
	// with the cause: the context's error, or the backend's.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLost tells that the name is no longer ours, or may not be.
	ErrLost = errors.New("lock lost")
)

// Locker grants a name to one holder at a time.
//
//  1. Acquire returns a lease, or an error that is ErrNotAcquired and the
//     cause: a context's end is never mistaken for a failure of the backend,
//     nor the other way round.
//  2. Acquire waits until the name is ours, and returns soon after ctx ends, however
//     many others are waiting.
//  3. An Acquire that fails leaves nothing behind: no node, key, row,
//     connection or goroutine, and no other Acquire waits because of it. What cannot be
//     taken back, because the backend is out of reach, frees itself within the
//     TTL.
//  4. Waiting is by notification where the backend has one, and never without
//     a bounded fallback. A waiter does not spin.
//  5. A Locker may be used from any number of goroutines; two of them exclude
//     each other as two processes do, unless the contexts that they give carry
//     the same owner and the lock is reentrant.
//
// Locks that are here to show how locks fail meet their guarantees only.
type Locker interface {
	Acquire(ctx context.Context, name string) (Lease, error)
}

// Lease is a name held.
//
//  1. Its methods may be called from any goroutine, also after the loss and
//     after the release.
//  2. The lease does not end with the context that Acquire was given: a
//     cancelled request still has to let go.
//  3. A lease that the backend took, or may have taken, ends its Context with
//     ErrLost as the cause, within the TTL; then Release answers ErrLost and
//     touches nothing that may belong to another.
//  4. Releasing twice is harmless: the second Release answers nil.
type Lease interface {
	// Token grows strictly with each holder of the name; 0 where the lock
	// cannot give one.
	Token() uint64
	// Context ends with the lease, by its release or by its loss.
	Context() context.Context
	// Release gives the name up: the next waiter is granted it. ErrLost: the name
	// was lost before.
	Release(ctx context.Context) error
}

// While returns the context of the work under a lease. Call stop when it is done.
//
//  1. It ends with ctx or with the lease, whichever ends first, and keeps the cause.
func While(ctx context.Context, lease Lease) (work context.Context, stop func()) {
	work, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(lease.Context(), func() {
		cancel(context.Cause(lease.Context()))
	})
	return work, func() {
		unlink()
		cancel(context.Canceled)
	}
}

// NotAcquired is the error of an Acquire. A request that was sent within the wait is
// awaited, so that a backend may also fail after ctx has ended.
//
//  1. It is the end of ctx where nothing else is known to have ended the Acquire, and the
//     backend's failure otherwise. A cancelled caller gets only its own error.
func NotAcquired(ctx context.Context, backend string, err error) error {
	ended := ctx.Err()
	if ended != nil && (err == nil || errors.Is(ended, context.Canceled) || errors.Is(err, ended) || errors.Is(err, context.Cause(ctx))) {
		return fmt.Errorf("%w: %w", ErrNotAcquired, context.Cause(ctx))
	}
	return Unreachable(backend, err)
}

// Unreachable is the error of an Acquire whose backend failed. An error that
// names its backend already, such as that of the store that knows the floor of
// the tokens, keeps the name.
func Unreachable(backend string, err error) error {
	if _, named := errors.AsType[*stock.BackendError](err); !named {
		err = &stock.BackendError{Backend: backend, Err: err}
	}
	return fmt.Errorf("%w: %w", ErrNotAcquired, err)
}

// NotReleased is the error of a Release whose backend failed.
func NotReleased(backend string, err error) error {
	return fmt.Errorf("release lock: %w", &stock.BackendError{Backend: backend, Err: err})
}
