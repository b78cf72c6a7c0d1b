package lock

import (
	"context"
	"errors"
	"testing"
)

// A renewal that is under way while the name is given back finds it gone.
func TestALeaseIsNotLostByItsOwnRelease(t *testing.T) {
	var lease *Held
	lease = NewHeld(1, func(context.Context) error {
		lease.Lose()
		return nil
	})
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if cause := context.Cause(lease.Context()); cause == nil || errors.Is(cause, ErrLost) {
		t.Errorf("a lease that was given back ended with %v", cause)
	}
}

// A name that belonged to another by the time it was given back was lost.
func TestALeaseIsLostWhereTheReleaseFindsOut(t *testing.T) {
	lease := NewHeld(1, func(context.Context) error { return ErrLost })
	if err := lease.Release(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("released with %v, want %v", err, ErrLost)
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, ErrLost) {
		t.Errorf("ended with %v, want %v", cause, ErrLost)
	}
}
