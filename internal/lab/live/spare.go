package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

// What is done to a Redis with a replica, and to the clock of a master of redlock.
const (
	// Lag has the replica receive nothing more, and Promote puts it in the place of its
	// primary, with what it has.
	Lag     = "lag"
	Promote = "promote"
	// Ahead moves the clock of a master, and Right sets it right.
	Ahead = "ahead"
	Right = "right"
)

// clockJump is how far a clock is moved: beyond every TTL.
const clockJump = time.Hour

// startSpare starts a Redis with a replica, and five masters with clocks of their own, beside the other servers, whose
// Redis they are.
func (s *stage) startSpare(ctx context.Context, o Options) (err error) {
	o.Progress("starting a Redis with a replica, and masters of redlock with clocks of their own")
	if s.pair, err = servers.StartRedisPair(ctx, s.shop.Supervisor); err != nil {
		return err
	}
	if s.shop.Servers.Redlock, err = servers.StartRedlockWith(ctx, s.shop.Supervisor, servers.RedlockOptions{Clocks: true}); err != nil {
		return err
	}
	front := *s.pair.Primary // reached through the pair's front, as its replica will be
	front.Address, front.Info = s.pair.Front.Address, s.pair.Info
	s.shop.Servers.Redis = &front
	delete(s.shop.Servers.Missing, "redis")
	delete(s.shop.Servers.Missing, "redlock")
	return nil
}

// offerSpare lists what can be done; the servers are listed already.
func (s *stage) offerSpare() {
	if s.pair == nil {
		return
	}
	s.machines = append(s.machines, Machine{Name: "redis-replica", Kind: "server", Title: s.pair.Replica.String(), Status: running})
	s.runners["redis-replica"] = s.pair.Replica
	for i := range s.machines {
		switch m := &s.machines[i]; {
		case m.Name == "redis-replica":
			m.Can = []string{Lag, Promote}
		case s.clock(m.Name) != nil:
			m.Can = []string{Ahead}
		}
	}
}

// clock is that of a master; nil where there is none.
func (s *stage) clock(name string) *servers.Clock {
	for i, node := range s.shop.Servers.Redlock.Nodes {
		if name == fmt.Sprintf("redlock-%d", i+1) {
			return node.Clock
		}
	}
	return nil
}

// use does something to the replica, or to a clock.
func (s *stage) use(ctx context.Context, name, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.machines, func(m Machine) bool { return m.Name == name && slices.Contains(m.Can, what) })
	if i < 0 {
		return fmt.Errorf("%w: %s %s: start with --redis-faults", errConflict, what, name)
	}
	m := &s.machines[i]
	var err error
	var can []string // afterwards
	switch what {
	case Lag:
		s.pair.Link.Freeze()
		can = []string{Promote}
	case Promote:
		err = s.pair.Promote(ctx)
	case Ahead:
		err, can = s.clock(name).Set(clockJump), []string{Right}
	default:
		err, can = s.clock(name).Set(0), []string{Ahead}
	}
	if err != nil {
		return err
	}
	if m.Can = can; what == Promote {
		s.replace("redis", m)
	}
	s.publishLocked()
	s.hub.publish(Mark{At: millis(time.Now()), Who: name, What: what})
	return nil
}

// replace has a server stand where another one did: the way of the replicas leads to it, and nothing can
// be done any more to the other one, which no request reaches. The caller holds mu.
func (s *stage) replace(name string, by *Machine) {
	i := slices.IndexFunc(s.machines, func(m Machine) bool { return m.Name == name })
	old := &s.machines[i]
	old.Why, by.Link, old.Link = "replaced", old.Link, ""
	delete(s.runners, name)
	if proxy := s.links[name]; proxy != nil {
		s.links[by.Name] = proxy
		delete(s.links, name)
	}
}
