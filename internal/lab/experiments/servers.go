package experiments

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
)

// proxied puts a proxy before a server.
func (x *Try) proxied(target string) *servers.Proxy {
	p := flow.Get(servers.NewProxy(target))(x.Flow)
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
		x.Backends.Redlock = flow.Get(servers.StartRedlockWith(x, x.Supervisor, o))(x.Flow)
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
	x.Pair = flow.Get(servers.StartRedisPair(x, x.Supervisor))(x.Flow)
	x.closeLater(x.Pair)
	return x.Pair.Conn().Env()
}

// redis connects to the Redis of the run until the end of the try.
func (x *Try) redis() *redis.Client {
	client := flow.Get(x.Backends.Redis.Client())(x.Flow)
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
