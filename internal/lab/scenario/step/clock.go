package step

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
)

// MoveClock has the clock of a master jump, by its number from 1, to so much ahead
// of the right time, or behind it where ahead is negative.
func MoveClock(master int, ahead time.Duration) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		if err := s.Masters.Nodes[master-1].Clock.Set(ahead); err != nil {
			return err
		}
		return s.Mark(fmt.Sprintf("master %d", master), where(ahead))
	}
}

func where(ahead time.Duration) string {
	if ahead < 0 {
		return "its clock is " + (-ahead).String() + " behind"
	}
	return "its clock is " + ahead.String() + " ahead"
}

// RunClock has the clock of a master run so many times as fast as the right one. Do it
// while it has no key: it jumps, too.
func RunClock(master int, rate float64) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		if err := s.Masters.Nodes[master-1].Clock.Run(rate); err != nil {
			return err
		}
		return s.Mark(fmt.Sprintf("master %d", master), fmt.Sprintf("its clock runs %g times as fast", rate))
	}
}

// OnZooKeeperWithClock gives a stage a ZooKeeper with a clock of its own.
func OnZooKeeperWithClock(ctx context.Context, s *scenario.Environment) (env []string, err error) {
	if s.ZooKeeper, err = servers.StartZooKeeperWithClock(ctx, s.Supervisor); err != nil {
		return nil, err
	}
	s.Later(func() error { return s.ZooKeeper.Close(context.WithoutCancel(ctx)) })
	// Its first request takes a Java long that has just started.
	_, err = clockOf(s.ZooKeeper)
	return s.ZooKeeper.Env(), err
}

// zooKeeper is that of the stage, or that of the run where it has none of its own.
func zooKeeper(s *scenario.Environment) *servers.ZooKeeper {
	if s.ZooKeeper != nil {
		return s.ZooKeeper
	}
	return s.Backends.ZooKeeper
}

// ClockAhead is the figure of MoveZooKeeper: the hours by which the server's clock is ahead,
// as the server itself writes the time.
const ClockAhead = "clock_ahead_h"

// MoveZooKeeper has the clock of the stage's ZooKeeper jump.
func MoveZooKeeper(ahead time.Duration) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		if err := s.ZooKeeper.Clock.Set(ahead); err != nil {
			return err
		}
		if err := s.Mark("zookeeper", where(ahead)); err != nil {
			return err
		}
		moved, err := clockOf(s.ZooKeeper)
		if err != nil {
			return err
		}
		return s.Figure(ClockAhead, moved.Round(time.Minute).Hours())
	}
}

// clockOf reads by how much the clock of a ZooKeeper is ahead: from the time that it writes
// into a new node.
func clockOf(z *servers.ZooKeeper) (ahead time.Duration, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the clock of ZooKeeper: %w", err)
		}
	}()
	conn, _, err := zk.Connect([]string{z.Address}, patience, zk.WithLogger(silent{}))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	path, err := conn.Create("/lab-clock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return 0, err
	}
	there, stat, err := conn.Exists(path)
	if err == nil && !there {
		err = errors.New("the node is gone")
	}
	if err != nil {
		return 0, err
	}
	return time.Until(time.UnixMilli(stat.Ctime)), nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}
