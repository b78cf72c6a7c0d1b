package step

import (
	"context"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
)

// OnPair gives a stage a Redis of its own that has a replica.
func OnPair(ctx context.Context, s *scenario.Environment) (env []string, err error) {
	if s.Pair, err = servers.StartRedisPair(ctx, s.Keeper); err != nil {
		return nil, err
	}
	s.Later(func() error { return s.Pair.Close(context.WithoutCancel(ctx)) })
	return s.Pair.Env(), nil
}

// Sync waits until the replica has all that the primary has.
func Sync() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error { return s.Pair.AwaitSync(ctx) }
}

// Freeze stops the replication from the primary.
func Freeze() scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		s.Pair.Link.Freeze()
		return s.Mark("redis", "writes to the primary no longer reach its replica")
	}
}

// Promote kills the primary and puts the replica in its place.
func Promote() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		if err := s.Pair.Primary.Kill(ctx); err != nil {
			return err
		}
		if err := s.Pair.Promote(ctx); err != nil {
			return err
		}
		return s.Mark("redis", "the primary is killed, its replica is promoted")
	}
}
