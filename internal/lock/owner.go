package lock

import (
	"context"
	"crypto/rand"
)

type ownerKey struct{}

// WithOwner names the owner of what is acquired under the context. Go has no
// thread identity: whoever wants to take a lock again that it holds already
// says who it is.
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

// NewOwner is a random value, unique to its lease.
func NewOwner() string { return rand.Text() }
