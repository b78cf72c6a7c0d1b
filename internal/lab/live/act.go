package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
)

// What is done to a machine by hand.
const (
	Kill   = "kill"
	Pause  = "pause"
	Resume = "resume"
	Start  = "start" // what was killed
	// Trap has a replica stop itself in its next purchase, between read and write and under
	// the lock where there is one.
	Trap = "trap"
	// Add starts one more replica, and Remove stops one, while the others sell.
	Add    = "add"
	Remove = "remove"
	// Slow has each request to a server and each answer take linkDelay longer, and Fast ends that.
	Slow = "slow"
	Fast = "fast"
	// Cut ends all connections to a server and rejects new ones, until Mend.
	Cut  = "cut"
	Mend = "mend"
	// Drop loses the answer to the next request about the item, after the server has acted.
	Drop = "drop"
	// Lag has the replica of Redis receive nothing more, and Promote puts it in the place of its
	// primary, with what it has.
	Lag     = "lag"
	Promote = "promote"
	// Ahead moves the clock of a master of redlock, and Right sets it right.
	Ahead = "ahead"
	Right = "right"
)

const (
	// linkDelay is what a slow way adds in each direction.
	linkDelay = 50 * time.Millisecond
	// clockJump is how far a clock is moved: beyond every TTL.
	clockJump = time.Hour
)

// The states of the way from the replicas to a server.
const (
	whole = "whole"
	slow  = "slow"
	cut   = "cut"
)

// action is what is done to a machine: where it fits, and what is different of the machine afterwards.
type action struct {
	fits func(Machine) bool
	do   func(context.Context, Machine) error
	then func(*Machine)
	// flag is the option without which it fits nowhere.
	flag string
}

func (s *stage) actions() map[string]action {
	promote := offered(Promote, func(ctx context.Context, _ Machine) error { return s.pair.Promote(ctx) })
	promote.then = func(m *Machine) { m.Can = nil; s.replace(m) }
	return map[string]action{
		Kill: ofProcess(running, down, runner.Kill), Pause: ofProcess(running, paused, runner.Pause),
		Resume: ofProcess(paused, running, runner.Resume), Start: ofProcess(down, running, runner.Restart),
		Slow: ofWay(slow, slower(linkDelay), whole), Fast: ofWay(whole, slower(0), slow),
		Cut:     ofWay(cut, func(p *servers.Proxy) error { p.Cut(); return nil }, whole, slow),
		Mend:    ofWay(whole, func(p *servers.Proxy) error { p.Slow(0); return p.Mend() }, cut),
		Lag:     offered(Lag, func(context.Context, Machine) error { s.pair.Link.Freeze(); return nil }, Promote),
		Promote: promote,
		Ahead:   offered(Ahead, func(_ context.Context, m Machine) error { return s.clock(m.Name).Set(clockJump) }, Right),
		Right:   offered(Right, func(_ context.Context, m Machine) error { return s.clock(m.Name).Set(0) }, Ahead),
	}
}

// ofProcess brings the process of a machine from one status to another.
func ofProcess(from, to string, do func(runner, context.Context) error) action {
	return action{
		fits: func(m Machine) bool { return m.run != nil && m.Status == from },
		do:   func(ctx context.Context, m Machine) error { return do(m.run, ctx) },
		then: func(m *Machine) { m.Status = to },
	}
}

// ofWay brings the way to a server from one of several states to another.
func ofWay(to string, do func(*servers.Proxy) error, from ...string) action {
	return action{
		flag: "--proxies",
		fits: func(m Machine) bool { return m.proxy != nil && slices.Contains(from, m.Link) },
		do:   func(_ context.Context, m Machine) error { return do(m.proxy) },
		then: func(m *Machine) { m.Link = to },
	}
}

func slower(by time.Duration) func(*servers.Proxy) error {
	return func(p *servers.Proxy) error { p.Slow(by); return nil }
}

// offered is what a machine says can be done to it, and what it says afterwards.
func offered(what string, do func(context.Context, Machine) error, afterwards ...string) action {
	return action{
		flag: "--redis-faults",
		fits: func(m Machine) bool { return slices.Contains(m.Can, what) },
		do:   do,
		then: func(m *Machine) { m.Can = afterwards },
	}
}

// act does something to a machine, and returns when it is done.
func (s *stage) act(ctx context.Context, name, what string) error {
	switch what {
	case Trap:
		return s.trap(ctx, name)
	case Add, Remove:
		return s.resize(ctx, name, what)
	case Drop:
		return s.drop(ctx, name)
	}
	change, ok := s.actions()[what]
	if !ok {
		return fmt.Errorf("%w: %q is not one of %v", errConflict, what, slices.Sorted(maps.Keys(s.actions())))
	}
	s.mu.Lock()
	m, c := s.machine(name), s.cluster
	if m == nil || m.Status == working || !change.fits(*m) {
		s.mu.Unlock()
		return unfit(what, name, change.flag)
	}
	before := *m
	m.Status = working
	s.publishLocked()
	s.mu.Unlock()

	at := time.Now()
	err := s.perform(ctx, c, before, what, change)
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.machine(name); m != nil && m.Status == working {
		m.Status = before.Status
		if err == nil {
			change.then(m)
		}
	}
	if what == Start || what == Promote {
		at = time.Now() // it answers from now on
	}
	if err == nil {
		s.hub.publish(Mark{At: millis(at), Who: name, What: what})
	}
	s.publishLocked()
	return err
}

// unfit says that something cannot be done to a machine as it is, or without an option, if there is one.
func unfit(what, name, flag string) error {
	if flag != "" {
		flag = ": not as it is now, or not without " + flag
	}
	return fmt.Errorf("%w: %s %s%s", errConflict, what, name, flag)
}

// perform does something to a machine. A cluster ends before or after a replica of it is started again.
func (s *stage) perform(ctx context.Context, c *shop.Cluster, m Machine, what string, change action) error {
	limited, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	replica, ok := m.run.(*shop.Replica)
	if !ok || what != Start {
		return change.do(limited, m)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.mu.Lock()
	ended := s.cluster != c
	s.mu.Unlock()
	if ended {
		return unfit(Start, m.Name, "")
	}
	if err := change.do(limited, m); err != nil {
		return err
	}
	s.mu.Lock()
	s.set(m.Name, running, working) // also where its failpoint cannot be armed
	s.watch(replica)
	s.mu.Unlock()
	return s.arm(ctx, c, replica)
}

// trap arms a replica, which is paused when it reports that it is.
func (s *stage) trap(ctx context.Context, name string) error {
	s.mu.Lock()
	c, work := s.cluster, s.work
	var replica *shop.Replica
	if m := s.machine(name); m != nil && m.Status == running && work.GoodsID != 0 {
		replica, _ = m.run.(*shop.Replica)
	}
	s.mu.Unlock()
	if replica == nil {
		return unfit(Trap, name, "")
	}
	s.hub.publish(Mark{At: millis(time.Now()), Who: name, What: Trap})
	// The first fault of a list that fits is reached: this one stands before the work. A purchase may come before the
	// answer, which then waits until the replica goes on.
	return faults(ctx, c.ClientTo(replica), failpoint.Fault{Do: failpoint.Pause, GoodsID: work.GoodsID, Times: 1}, work)
}

// drop loses the next answer about the item. A mark is there when it is lost.
func (s *stage) drop(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machine(name)
	if m == nil || m.proxy == nil {
		return unfit(Drop, name, "--proxies")
	}
	trigger := m.proxy.Arm(servers.Rule{Sent: about(name, s.work.GoodsID), Do: servers.LoseReply})
	s.hub.publish(Mark{At: millis(time.Now()), Who: name, What: Drop})
	go func() {
		ctx, cancel := context.WithTimeout(ctx, longest) // no sale is longer
		defer cancel()
		if trigger.Wait(ctx) == nil {
			s.hub.publish(Mark{At: millis(time.Now()), Who: name, What: "dropped"})
		}
		trigger.Disarm()
	}()
	return nil
}

// about are bytes of the requests about an item: a commit of the database, the names of keys
// and nodes of the others.
func about(server string, item int64) string {
	switch {
	case server == "database":
		return "COMMIT"
	case strings.HasPrefix(server, "red"):
		return strconv.FormatInt(item, 10) + "}"
	default:
		return url.PathEscape(lockName(item))
	}
}

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
