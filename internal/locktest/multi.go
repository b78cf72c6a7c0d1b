package locktest

import (
	"context"
	"errors"
	"io"

	"github.com/stockd/stockd/internal/lock"
)

// Pair is a lock to test whose every name is two names of another lock, held as one by
// lock.Multi.
func Pair(of Lock) Lock {
	made := of.New
	of.Name += "-pair"
	of.New = func(d Deps) Locker { return &pair{inner: made(d)} }
	state := of.State
	of.State = func(c *Clients) State { return pairState{state(c)} }
	return of
}

// first and second are the two names, in the order in which they are taken.
func first(name string) string  { return name + "/1" }
func second(name string) string { return name + "/2" }

type pair struct{ inner Locker }

// Acquire takes both.
func (p *pair) Acquire(ctx context.Context, name string) (Lease, error) {
	lease, err := lock.NewMulti(p.inner).Acquire(ctx, second(name), first(name))
	if err != nil {
		return nil, err
	}
	return pairLease{lease, first(name)}, nil
}

// Close closes the lock of the two.
func (p *pair) Close() error {
	if closer, ok := p.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

type pairLease struct {
	*lock.MultiLease

	name string
}

// Token is that of the first name.
func (l pairLease) Token() uint64 { return l.TokenOf(l.name) }

type pairState struct{ inner State }

// Traces are those of the first name, for which all wait, or of the second where there are
// none.
func (s pairState) Traces(ctx context.Context, name string) ([]string, error) {
	traces, err := s.inner.Traces(ctx, first(name))
	if err != nil || len(traces) > 0 {
		return traces, err
	}
	return s.inner.Traces(ctx, second(name))
}

// Break takes both away.
func (s pairState) Break(ctx context.Context, name string) error {
	return errors.Join(s.inner.Break(ctx, second(name)), s.inner.Break(ctx, first(name)))
}
