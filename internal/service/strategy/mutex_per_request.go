package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/process"
)

func mutexPerRequest() Entry {
	return Entry{
		Name:       "mutex-per-request",
		Family:     Process,
		Summary:    "a new mutex for each request, as a bean of prototype scope has it: every request locks, and none waits",
		Guarantees: Guarantees{SurvivesCrash: true},
		Damage:     LostUpdates,
		New: func(d Deps) Strategy {
			return newGuarded(d, freshMutex{})
		},
	}
}

// freshMutex grants each caller a mutex of its own.
type freshMutex struct{}

func (freshMutex) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	return process.New().Acquire(ctx, name)
}
