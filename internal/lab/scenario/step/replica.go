package step

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/pause"
)

// Hold pauses a replica for d in its next sale of the item, between its read and
// its write. The replica ignores cancellation and goes on even where its lock is
// lost, like a process in garbage collection or in long work.
func Hold(replica int, d time.Duration) scenario.Step {
	return set(replica, failpoint.Fault{Do: failpoint.Hold, For: d, IgnoreCancel: true})
}

// Work is Hold for a replica that honors cancellation: it gives up when it is
// notified of the loss of its lock.
func Work(replica int, d time.Duration) scenario.Step {
	return set(replica, failpoint.Fault{Do: failpoint.Hold, For: d})
}

// Pause has a replica stop itself (SIGSTOP) in its next sale of the item, until
// Wake.
func Pause(replica int) scenario.Step {
	return set(replica, failpoint.Fault{Do: failpoint.Pause, IgnoreCancel: true})
}

// Crash has a replica kill itself (SIGKILL) in its next sale of the item.
func Crash(replica int) scenario.Step {
	return InOrder((*scenario.Try).Spoil, set(replica, failpoint.Fault{Do: failpoint.Crash}))
}

func set(replica int, f failpoint.Fault) scenario.Step {
	return func(x *scenario.Try) {
		mine := f
		mine.GoodsID = x.Item
		x.Must(x.Cluster.ClientOf(replica-1).SetFault(x, mine))
	}
}

// reachedWithin bounds the wait for a fault to be reached.
const reachedWithin = 15 * time.Second

// Reached waits until a replica has reached its failpoint.
func Reached(replica int) scenario.Step {
	return await(replica, "come to its fault", func(ctx context.Context, x *scenario.Try) (bool, error) {
		faults, err := x.Cluster.ClientOf(replica - 1).Faults(ctx)
		return slices.ContainsFunc(faults, func(f failpoint.Fault) bool { return f.GoodsID == x.Item && f.Reached > 0 }), err
	})
}

// await asks again and again whether a replica has done what it is to do.
func await(replica int, what string, done func(ctx context.Context, x *scenario.Try) (bool, error)) scenario.Step {
	return func(x *scenario.Try) {
		ctx, cancel := context.WithTimeoutCause(x, reachedWithin, fmt.Errorf("replica %d did not %s within %s", replica, what, reachedWithin))
		defer cancel()
		for {
			ok, err := done(ctx, x)
			if x.Must(err); ok {
				return
			}
			x.Must(pause.For(ctx, 10*time.Millisecond))
		}
	}
}

// Gone waits until a replica has killed itself.
func Gone(replica int) scenario.Step {
	return InOrder(await(replica, "come to its end", func(_ context.Context, x *scenario.Try) (bool, error) {
		select {
		case <-x.Cluster.Replicas[replica-1].Done():
			return true, nil
		default:
			return false, nil
		}
	}), func(x *scenario.Try) { x.Mark(x.Cluster.Replicas[replica-1].Name, checker.Killed+": it is gone") })
}

// Stopped waits until a replica has reported that it is about to stop itself. It
// cannot be asked any more: the report is in its record.
func Stopped(replica int) scenario.Step {
	return await(replica, "stop itself", func(_ context.Context, x *scenario.Try) (bool, error) {
		h, err := history.Read(x.Cluster.Replicas[replica-1].History())
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(h.Marks, func(m history.Mark) bool { return m.What == failpoint.Paused && m.At.After(x.Start) }), nil
	})
}

// Wake has a replica that stopped itself go on.
func Wake(replica int) scenario.Step {
	return func(x *scenario.Try) {
		r := x.Cluster.Replicas[replica-1]
		x.Mark(r.Name, "is woken")
		x.Must(r.Signal(x, syscall.SIGCONT))
	}
}
