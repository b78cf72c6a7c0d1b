package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/pause"
)

// proxied puts a proxy before a server.
func (x *Try) proxied(target string) *servers.Proxy {
	p, err := servers.NewProxy(target)
	x.Must(err)
	x.Later(func() error { p.Close(); return nil })
	return p
}

// Through leads to servers by proxies, which end with the try.
func (x *Try) Through(to servers.Conn) (_ servers.Conn, links []*servers.Proxy) {
	to, err := to.Through(func(address string) string {
		links = append(links, x.proxied(address))
		return links[len(links)-1].Address
	})
	x.Must(err)
	return to, links
}

// throughRedis puts a proxy between the replicas of a stage and their Redis.
func throughRedis(x *Try) (env []string) {
	x.Proxy = x.proxied(x.Backends.Redis.Address)
	return []string{"STOCKD_REDIS_ADDRESSES=" + x.Proxy.Address}
}

var errNotMet = fmt.Errorf("it was not met within %s", reachedWithin)

// awaitMet waits until a request has met a rule at a proxy.
func (x *Try) awaitMet(rule *servers.Trigger) { x.Must(x.tryMet(rule)) }

func (x *Try) tryMet(rule *servers.Trigger) error {
	ctx, cancel := context.WithTimeoutCause(x, reachedWithin, errNotMet)
	defer cancel()
	if err := rule.Wait(ctx); err != nil {
		return err
	}
	x.Mark("proxy", fmt.Sprintf("%s: %s", rule.Do, visible(rule.Sent)))
	return nil
}

// held is awaitMet for a part that may come out without it: its figure is 0 where no request has met the rule in time.
func (x *Try) held(rule *servers.Trigger) {
	err := x.tryMet(rule)
	if !errors.Is(err, errNotMet) {
		x.Must(err)
	}
	x.Figure("requests_held", checker.OneIf(err == nil))
}

// pass lets go what a proxy holds.
func (x *Try) pass(who string, held *servers.Trigger) {
	held.Pass()
	x.Mark(who, "let go: "+visible(held.Sent))
}

func visible(sent string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 127 {
			return -1
		}
		return r
	}, sent)
}

// fiveMasters gives a stage five masters of its own. The first replica of the service reaches them through links
// of its own, which can be cut.
func fiveMasters(o servers.RedlockOptions) func(*Try) []string {
	return func(x *Try) (env []string) {
		var err error
		x.Backends.Redlock, err = servers.StartRedlockWith(x, x.Supervisor, o)
		x.Must(err)
		x.closeLater(x.Backends.Redlock)
		addresses := make([]string, 0, len(x.Backends.Redlock.Nodes))
		for _, node := range x.Backends.Redlock.Nodes {
			link := x.proxied(node.Address)
			x.Links, addresses = append(x.Links, link), append(addresses, link.Address)
		}
		x.Own = map[int][]string{1: {"STOCKD_REDLOCK_ADDRESSES=" + strings.Join(addresses, ",")}}
		return x.Backends.Redlock.Conn().Env()
	}
}

// closer is a server, or several.
type closer interface {
	Close(ctx context.Context) error
}

// closeLater closes servers at the end of the try.
func (x *Try) closeLater(started closer) {
	x.Later(func() error { return started.Close(context.WithoutCancel(x)) })
}

// Masters are numbered from 1.

func (x *Try) killMaster(master int) {
	x.Must(x.Backends.Redlock.Nodes[master-1].Kill(x))
	x.markMaster(master, "is killed")
}

// startMaster starts a master again, with what it has on its disk.
func (x *Try) startMaster(master int) {
	x.Must(x.Backends.Redlock.Nodes[master-1].Restart(x))
	x.markMaster(master, "is started again")
}

// moveClock has the clock of a master jump to so much ahead of the right time, or behind it where ahead is negative.
func (x *Try) moveClock(master int, ahead time.Duration) {
	x.Must(x.Backends.Redlock.Nodes[master-1].Clock.Set(ahead))
	x.markMaster(master, where(ahead))
}

func (x *Try) markMaster(master int, what string) { x.Mark(fmt.Sprintf("master %d", master), what) }

func where(ahead time.Duration) string {
	if ahead < 0 {
		return "its clock is " + (-ahead).String() + " behind"
	}
	return "its clock is " + ahead.String() + " ahead"
}

// redisPair gives a stage a Redis of its own that has a replica.
func redisPair(x *Try) (env []string) {
	var err error
	x.Pair, err = servers.StartRedisPair(x, x.Supervisor)
	x.Must(err)
	x.closeLater(x.Pair)
	return x.Pair.Conn().Env()
}

// redis connects to the Redis of the run until the end of the try.
func (x *Try) redis() *redis.Client {
	client, err := x.Backends.Redis.Client()
	x.Must(err)
	x.Later(client.Close)
	return client
}

// answerWithin bounds one question to a ZooKeeper.
const answerWithin = 5 * time.Second

// askZooKeeper sends ZooKeeper one of its four-letter words.
func (x *Try) askZooKeeper(word string) string {
	ctx, cancel := context.WithTimeout(x, answerWithin)
	defer cancel()
	said, err := x.Backends.ZooKeeper.Ask(ctx, word)
	if err != nil {
		x.Must(fmt.Errorf("ask ZooKeeper to %s: %w", word, err))
	}
	return said
}

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
