package experiments

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/pause"
)

// Replicas are numbered from 1. What a replica will do, it does in its next sale of the item,
// between its read and its write.

// willStall holds a replica up for d. It ignores cancellation and goes on even where its lock is lost, like a process
// in garbage collection or in long work.
func (x *Try) willStall(replica int, d time.Duration) {
	x.setFault(replica, failpoint.Fault{Do: failpoint.Hold, For: d, IgnoreCancel: true})
}

// willWork is willStall for a replica that honors cancellation: it gives up when it is notified of the loss of its lock.
func (x *Try) willWork(replica int, d time.Duration) {
	x.setFault(replica, failpoint.Fault{Do: failpoint.Hold, For: d})
}

// willPause has a replica stop itself (SIGSTOP), until wake.
func (x *Try) willPause(replica int) {
	x.Must(servers.CanPause())
	x.setFault(replica, failpoint.Fault{Do: failpoint.Pause, IgnoreCancel: true})
}

// willCrash has a replica kill itself (SIGKILL).
func (x *Try) willCrash(replica int) {
	x.Spoil()
	x.setFault(replica, failpoint.Fault{Do: failpoint.Crash})
}

func (x *Try) setFault(replica int, f failpoint.Fault) {
	f.GoodsID = x.Item
	x.Must(x.Cluster.ClientOf(replica-1).SetFault(x, f))
}

// reachedWithin bounds the wait for a fault to be reached.
const reachedWithin = 15 * time.Second

// awaitFault waits until a replica has reached its fault: it has the lock, and has read the stock.
func (x *Try) awaitFault(replica int) {
	x.await(replica, "come to its fault", func(ctx context.Context) (bool, error) {
		faults, err := x.Cluster.ClientOf(replica - 1).Faults(ctx)
		return slices.ContainsFunc(faults, func(f failpoint.Fault) bool { return f.GoodsID == x.Item && f.Reached > 0 }), err
	})
}

// await asks again and again whether a replica has done what it is to do.
func (x *Try) await(replica int, what string, done func(ctx context.Context) (bool, error)) {
	ctx, cancel := context.WithTimeoutCause(x, reachedWithin, fmt.Errorf("replica %d did not %s within %s", replica, what, reachedWithin))
	defer cancel()
	for {
		ok, err := done(ctx)
		if x.Must(err); ok {
			return
		}
		x.Must(pause.For(ctx, 10*time.Millisecond))
	}
}

// awaitGone waits until a replica has killed itself.
func (x *Try) awaitGone(replica int) {
	r := x.Cluster.Replicas[replica-1]
	x.await(replica, "come to its end", func(context.Context) (bool, error) { return r.Ended(), nil })
	x.Mark(r.Name, checker.Killed+": it is gone")
}

// awaitStopped waits until a replica has reported that it is about to stop itself. It cannot be asked any more: the
// report is in its record.
func (x *Try) awaitStopped(replica int) {
	x.await(replica, "stop itself", func(context.Context) (bool, error) {
		h, err := history.Read(x.Cluster.Replicas[replica-1].History())
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(h.Marks, func(m history.Mark) bool { return m.What == failpoint.Paused && m.At.After(x.Start) }), nil
	})
}

// wake has a replica that stopped itself go on.
func (x *Try) wake(replica int) {
	r := x.Cluster.Replicas[replica-1]
	x.Mark(r.Name, "is woken")
	x.Must(r.Resume(x))
}
