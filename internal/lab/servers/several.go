package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/pause"
)

// members are as many as ensembles and clusters have: the fewest of which one
// may fail.
const members = 3

// startAll starts a number of servers at once. Where one does not start, none
// runs on.
func startAll[S runner](ctx context.Context, count int, start func(ctx context.Context) (S, error)) ([]S, error) {
	all, started := make([]S, count), make([]bool, count)
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range all {
		group.Go(func() (err error) {
			all[i], err = start(groupCtx)
			started[i] = err == nil
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for i, one := range all {
			if started[i] {
				err = errors.Join(err, one.Close(context.WithoutCancel(ctx)))
			}
		}
		return nil, err
	}
	return all, nil
}

// restartAll starts servers at once that need each other to answer.
func restartAll[S runner](ctx context.Context, all []S) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, one := range all {
		group.Go(func() error { return one.Restart(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return errors.Join(err, closeAll(context.WithoutCancel(ctx), all))
	}
	return nil
}

func closeAll[S runner](ctx context.Context, all []S) error {
	errs := make([]error, len(all))
	for i, one := range all {
		errs[i] = one.Close(ctx)
	}
	return errors.Join(errs...)
}

const (
	// leaderWithin bounds one question to a member, which may be paused.
	leaderWithin = 500 * time.Millisecond
	// leaderPoll is the pause between two.
	leaderPoll = 20 * time.Millisecond
)

// awaitLeader asks members, until one says that it leads.
func awaitLeader[S any](ctx context.Context, all []S, leads func(ctx context.Context, one S) bool) (S, error) {
	for {
		for _, one := range all {
			limited, cancel := context.WithTimeout(ctx, leaderWithin)
			found := leads(limited, one)
			cancel()
			if found {
				return one, nil
			}
		}
		if err := pause.For(ctx, leaderPoll); err != nil {
			var none S
			return none, fmt.Errorf("wait for a leader: %w", err)
		}
	}
}
