package step

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/pause"
)

// InOrder does one step after the other.
func InOrder(steps ...experiment.Step) experiment.Step {
	return func(ctx context.Context, s *experiment.Scene) error {
		for _, step := range steps {
			if err := step(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// Meanwhile does all of them at the same time, and waits for the last one.
func Meanwhile(steps ...experiment.Step) experiment.Step {
	return func(ctx context.Context, s *experiment.Scene) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, step := range steps {
			group.Go(func() error { return step(ctx, s) })
		}
		return group.Wait()
	}
}

// Wait lets time pass.
func Wait(d time.Duration) experiment.Step {
	return func(ctx context.Context, _ *experiment.Scene) error { return pause.For(ctx, d) }
}
