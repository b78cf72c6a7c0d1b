package servers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// members are as many as groups of servers have where nothing else is said: the
// fewest of which one may fail.
const members = 3

type member interface {
	runner
	server
	leads(ctx context.Context) bool
}

// Ensemble is members that serve as long as most of them run. Each keeps its data
// over a restart.
type Ensemble[M member] struct {
	Info
	Members []M
}

type (
	// EtcdCluster has members that elect a leader.
	EtcdCluster = Ensemble[*Etcd]
	// ZooKeeperEnsemble has servers of which one leads.
	ZooKeeperEnsemble = Ensemble[*ZooKeeper]
)

// startEnsemble starts so many members at once, which need each other to answer. configure
// gives each its ports, and the list of all of them.
func startEnsemble[M member](ctx context.Context, members int, create func() (M, error), configure func([]M) error) (_ *Ensemble[M], err error) {
	e := &Ensemble[M]{Members: make([]M, members)}
	for i := range e.Members {
		if e.Members[i], err = create(); err != nil {
			return nil, err
		}
	}
	err = onFreePort(func(int) error {
		if err := configure(e.Members); err != nil {
			return err
		}
		return e.Restart(ctx)
	})
	if err != nil {
		return nil, err
	}
	e.Info = e.Members[0].info()
	e.Name = fmt.Sprintf("%d × %s", members, e.Name)
	return e, nil
}

const (
	// leaderWithin bounds one question to a member, which may be paused.
	leaderWithin = 500 * time.Millisecond
	// leaderPoll is the pause between two.
	leaderPoll = 20 * time.Millisecond
)

// AwaitLeader waits until a member leads, and returns it.
func (e *Ensemble[M]) AwaitLeader(ctx context.Context) (leader M, err error) {
	err = eventually(ctx, "a leader", func(ctx context.Context) (bool, error) {
		for _, one := range e.Members {
			limited, cancel := context.WithTimeout(ctx, leaderWithin)
			leads := one.leads(limited)
			cancel()
			if leads {
				leader = one
				return true, nil
			}
		}
		return false, nil
	})
	return leader, err
}

// Kill ends all members without a warning.
func (e *Ensemble[M]) Kill(ctx context.Context) error { return e.Close(ctx) }

// Restart starts all members again.
func (e *Ensemble[M]) Restart(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for _, one := range e.Members {
		group.Go(func() error { return one.Restart(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return errors.Join(err, closeAll(context.WithoutCancel(ctx), e.Members))
	}
	return nil
}

// Close ends all members.
func (e *Ensemble[M]) Close(ctx context.Context) error { return closeAll(ctx, e.Members) }

// Conn is how the ensemble is reached.
func (e *Ensemble[M]) Conn() Conn {
	c := e.Members[0].Conn()
	for _, one := range e.Members[1:] {
		its := one.Conn()
		c.ZooKeeper.Servers, c.Etcd.Endpoints = append(c.ZooKeeper.Servers, its.ZooKeeper.Servers...), append(c.Etcd.Endpoints, its.Etcd.Endpoints...)
	}
	return c
}
