package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"sync"
)

// Reentrant lets an owner take a name again that it holds, by counting in this
// process. It is for those locks whose backend does not count itself.
//
//  1. An owner that acquires a name again joins its lease, and the last release gives the
//     name back. An Acquire that names no owner passes through.
//  2. An owner that is cancelled before the name is granted leaves nothing: the last release
//     of the others gives the name back.
//  3. The loss of the name is the loss of every lease that joined. The next Acquire of the
//     owner begins anew.
type Reentrant struct {
	Locker

	mu    sync.Mutex
	owned map[ownedName]*ownership
}

type ownedName struct{ owner, name string }

// ownership is a name in the hands of an owner, once or more often.
type ownership struct {
	granted chan struct{} // closed when lease or err may be read
	lease   Lease
	err     error
	depth   int // guarded by reentrant.mu
}

// NewReentrant makes any lock reentrant within this process.
func NewReentrant(inner Locker) *Reentrant {
	return &Reentrant{Locker: inner, owned: make(map[ownedName]*ownership)}
}

// Acquire joins the owner's lease where there is one.
func (r *Reentrant) Acquire(ctx context.Context, name string) (Lease, error) {
	owner, named := namedOwner(ctx)
	if !named {
		return r.Locker.Acquire(ctx, name)
	}
	key := ownedName{owner, name}
	for {
		o, first := r.enter(key)
		if first {
			return r.acquire(ctx, key, o)
		}
		select {
		case <-o.granted:
		case <-ctx.Done():
			TakeBack(ctx, func(ctx context.Context) error { return r.leave(ctx, key, o) })
			return nil, NotAcquired(ctx, "", nil)
		}
		if o.err == nil && o.lease.Context().Err() == nil {
			return r.handle(key, o), nil
		}
		r.forget(key, o) // it failed or ended meanwhile: begin again
	}
}

// Close closes the lock behind it.
func (r *Reentrant) Close() error {
	if closer, ok := r.Locker.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// acquire asks the lock behind it, on behalf of the owner.
func (r *Reentrant) acquire(ctx context.Context, key ownedName, o *ownership) (Lease, error) {
	defer close(o.granted)
	if o.lease, o.err = r.Locker.Acquire(ctx, key.name); o.err != nil {
		r.forget(key, o)
		return nil, o.err
	}
	context.AfterFunc(o.lease.Context(), func() { r.forget(key, o) })
	return r.handle(key, o), nil
}

// enter finds the owner's lease, or begins one.
func (r *Reentrant) enter(key ownedName) (o *ownership, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o = r.owned[key]
	if o == nil {
		o = &ownership{granted: make(chan struct{})}
		r.owned[key] = o
		first = true
	}
	o.depth++
	return o, first
}

// leave counts down, and gives the name back with the last. From then on no
// request can join: later ones wait for the release like all others.
func (r *Reentrant) leave(ctx context.Context, key ownedName, o *ownership) error {
	r.mu.Lock()
	o.depth--
	last := o.depth == 0 && o.lease != nil
	if last && r.owned[key] == o {
		delete(r.owned, key)
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	return o.lease.Release(ctx)
}

// forget ends an ownership that no request can join any more.
func (r *Reentrant) forget(key ownedName, o *ownership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owned[key] == o {
		delete(r.owned, key)
	}
}

// handle is one of the owner's leases.
func (r *Reentrant) handle(key ownedName, o *ownership) Lease {
	h := NewHeld(o.lease.Token(), func(ctx context.Context) error {
		lost := context.Cause(o.lease.Context()) // the news may still be on their way to h
		return cmp.Or(r.leave(ctx, key, o), lost)
	})
	h.behind, _ = o.lease.(*Held)
	unlink := context.AfterFunc(o.lease.Context(), h.Lose)
	context.AfterFunc(h.ctx, func() { unlink() })
	return h
}

type ownerKey struct{}

// WithOwner names the owner of what is acquired under the context. Go has no
// thread identity: a caller that takes a lock again that it holds names itself.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// namedOwner is the owner that the context names.
func namedOwner(ctx context.Context) (owner string, named bool) {
	owner, named = ctx.Value(ownerKey{}).(string)
	return owner, named
}

// OwnerOf is the owner that the context names, or a new one.
func OwnerOf(ctx context.Context) string {
	if owner, named := namedOwner(ctx); named {
		return owner
	}
	return NewOwner()
}

// NewOwner returns a random value that no other call returns.
func NewOwner() string { return rand.Text() }
