package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Multi holds several names of one lock as one.
//
//  1. Acquire takes the names one after the other in the order of their bytes, each once,
//     however they are given: two holders whose names overlap never wait for each other.
//  2. It returns a lease of all names, or an error and holds none: those that it had are
//     given back in the reverse order.
//  3. An Acquire that loses a name while it waits for the next one gives up with ErrLost.
type Multi struct{ locker Locker }

// NewMulti holds names of this lock.
func NewMulti(l Locker) *Multi { return &Multi{l} }

// Acquire waits until all names are ours, and returns soon after ctx ends. The error is that
// of the name which was not granted. A lock that keeps a connection for each
// holder keeps one for each name.
func (m *Multi) Acquire(ctx context.Context, names ...string) (*MultiLease, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no name is given", ErrNotAcquired)
	}
	all := newMultiLease()
	working, stop := While(ctx, all)
	defer stop()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		lease, err := m.locker.Acquire(working, name)
		if err == nil {
			all.add(lease)
			err = working.Err()
		}
		if err != nil {
			TakeBack(ctx, all.Release)
			return nil, fmt.Errorf("lock %s: %w", name, notAll(working, err))
		}
	}
	return all, nil
}

// notAll is the error of an Acquire that was granted some names, or had them all too late.
func notAll(working context.Context, err error) error {
	if errors.Is(err, ErrNotAcquired) {
		return err
	}
	return NotAcquired(working, "", err)
}

// MultiLease is several names held as one.
//
//  1. The loss of one name is the loss of all: its Context ends with ErrLost, and Release
//     gives back the others and answers ErrLost.
//  2. Release gives the names back in the reverse order of their grants, also where one of
//     them fails, and does it once.
type MultiLease struct {
	ctx context.Context //nolint:containedctx // it is the lease's own, which the contract asks for
	end context.CancelCauseFunc

	leases []Lease
	unlink []func() bool
}

func newMultiLease() *MultiLease {
	m := new(MultiLease)
	m.ctx, m.end = context.WithCancelCause(context.Background())
	return m
}

func (m *MultiLease) add(lease Lease) {
	m.leases = append(m.leases, lease)
	m.unlink = append(m.unlink, context.AfterFunc(lease.Context(), func() { m.end(ErrLost) }))
}

// Token is 0: each name has one of its own.
func (m *MultiLease) Token() uint64 { return 0 }

// Context ends with the lease, by its release or by the loss of a name.
func (m *MultiLease) Context() context.Context { return m.ctx }

// Release gives all names back, each once as its lease does. ErrLost: one of them was lost before. It is joined
// with what else failed.
func (m *MultiLease) Release(ctx context.Context) error {
	for _, unlink := range m.unlink {
		unlink() // what ends from now on is no loss
	}
	var errs []error
	for _, lease := range slices.Backward(m.leases) {
		errs = append(errs, lease.Release(ctx))
	}
	err := errors.Join(errs...)
	if errors.Is(err, ErrLost) {
		m.end(ErrLost)
	}
	m.end(errReleased)
	return err
}
