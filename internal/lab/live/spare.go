package live

import (
	"context"
	"fmt"

	"github.com/stockd/stockd/internal/lab/servers"
)

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
	s.machines = append(s.machines, Machine{Name: "redis-replica", Kind: "server", Title: s.pair.Replica.String(), Status: running, run: s.pair.Replica})
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

// replace has a server stand where Redis did: the way of the replicas leads to it, and nothing can be done any more to
// Redis, which no request reaches. The caller holds mu.
func (s *stage) replace(by *Machine) {
	old := s.machine("redis")
	by.Link, by.proxy = old.Link, old.proxy
	old.Why, old.Link, old.proxy, old.run = "replaced", "", nil, nil
}
