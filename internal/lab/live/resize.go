package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/shop"
)

// maxReplicas is how many there are at a time.
const maxReplicas = 5

// resize adds a replica, or removes one; one at a time.
func (s *stage) resize(ctx context.Context, name, what string) error {
	if !s.changing.TryLock() {
		return fmt.Errorf("%w: another replica is being added or removed", errConflict)
	}
	defer s.changing.Unlock()
	s.mu.Lock()
	c, n := s.cluster, len(s.replicas())
	s.mu.Unlock()
	if c == nil || what == Add && n >= maxReplicas || what == Remove && n <= 1 {
		return fmt.Errorf("%w: %s %s, of %d replicas", errConflict, what, name, n)
	}
	ctx, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	if what == Add {
		return s.add(ctx, c)
	}
	return s.remove(ctx, c, name)
}

// add starts a replica, and has the balancer send requests to it.
func (s *stage) add(ctx context.Context, c *shop.Cluster) error {
	r := c.Another()
	if err := r.Start(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.enter(r)
	s.mu.Unlock()
	s.follow.add(r.History())
	err := errors.Join(s.arm(ctx, c, r), c.Join(ctx, r))
	s.publish()
	s.hub.publish(Mark{At: millis(time.Now()), Who: r.Name, What: Add})
	return err
}

// remove has the balancer leave a replica out, and stops it when it has answered what it had.
func (s *stage) remove(ctx context.Context, c *shop.Cluster, name string) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.replicas(), func(r *shop.Replica) bool { return r.Name == name })
	if i < 0 || !s.set(name, working, running, paused, down) {
		s.mu.Unlock()
		return fmt.Errorf("%w: %s %s", errConflict, Remove, name)
	}
	run := s.replicas()[i]
	s.machine(name).run = nil
	s.layout.replicas = len(s.replicas())
	s.publishLocked()
	s.mu.Unlock()
	at := time.Now()
	err := c.Leave(ctx, run)
	_ = run.Resume(ctx) // a paused one would not end; it may have ended
	err = errors.Join(err, run.Stop(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines = slices.DeleteFunc(s.machines, func(m Machine) bool { return m.Name == name })
	s.publishLocked()
	s.hub.publish(Mark{At: millis(at), Who: name, What: Remove})
	return err
}

// enter lists a replica that runs; the caller holds mu.
func (s *stage) enter(r *shop.Replica) {
	s.machines = append(s.machines, Machine{Name: r.Name, Kind: "replica", Title: "stockd", Status: running, run: r})
	s.layout.replicas = len(s.replicas())
	s.watch(r)
}
