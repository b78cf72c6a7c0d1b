// Package flow has what the lab does one step after the other: it reads from top to bottom, and the first failure ends it.
package flow

import (
	"context"
	"runtime"
	"sync"
)

// Flow is what is done so. As a context it ends with the first failure.
type Flow struct {
	context.Context

	fail context.CancelCauseFunc
}

// Do calls a function in a goroutine of its own, which the first failure ends, and returns that.
func Do(ctx context.Context, what func(x *Flow)) error {
	x := new(Flow)
	x.Context, x.fail = context.WithCancelCause(ctx)
	defer x.fail(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		what(x)
	}()
	<-ended
	return context.Cause(x)
}

// Must ends the flow where there is an error: what calls it does not go on, and what goes on beside it finds its
// context ended. It is called by the goroutine of Do, or by one of Together and Each.
func (x *Flow) Must(err error) {
	if x.Fail(err); err != nil {
		runtime.Goexit()
	}
}

// Fail is Must for what has to go on: a goroutine of another package.
func (x *Flow) Fail(err error) {
	if err != nil {
		x.fail(err)
	}
}

// Get is the value of a call, as in v := flow.Get(f())(x); where the call has failed, it ends the flow.
func Get[T any](value T, err error) func(x *Flow) T {
	return func(x *Flow) T {
		x.Must(err)
		return value
	}
}

// Together does all of them at the same time, and waits for the last one.
func (x *Flow) Together(do ...func()) {
	var all sync.WaitGroup
	for _, one := range do {
		all.Go(one)
	}
	all.Wait()
	x.Must(context.Cause(x))
}

// Each does something so many times at the same time, numbered from 0, and waits for the last one.
func (x *Flow) Each(count int, do func(i int)) {
	all := make([]func(), count)
	for i := range all {
		all[i] = func() { do(i) }
	}
	x.Together(all...)
}
