package step

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/pause"
)

// InOrder does one step after the other.
func InOrder(steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		for _, step := range steps {
			if err := step(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// Meanwhile does all of them at the same time, and waits for the last one.
func Meanwhile(steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, step := range steps {
			group.Go(func() error { return step(ctx, s) })
		}
		return group.Wait()
	}
}

// Wait lets time pass.
func Wait(d time.Duration) scenario.Step {
	return func(ctx context.Context, _ *scenario.Environment) error { return pause.For(ctx, d) }
}
