package step

import (
	"context"
	"errors"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lock"
)

// AskForTaken has one contender take a lock for some time, and a second one ask
// for it as soon as the first one has it.
func AskForTaken(kind string, each time.Duration, needs ...scenario.Need) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		var both [2]lock.Locker
		for i, name := range []string{"first", "second"} {
			var err error
			if _, both[i], err = contend(s, name, kind, needs); err != nil {
				return err
			}
		}
		lease, err := both[0].Acquire(ctx, name(s))
		if err != nil {
			return err
		}
		asked := make(chan error, 1)
		go func() { asked <- hold(ctx, both[1], name(s), each+patience, 0) }()
		err = Wait(each)(ctx, s)
		return errors.Join(err, lease.Release(context.WithoutCancel(ctx)), <-asked)
	}
}
