package step

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
)

// ThroughRedis puts a proxy between the replicas of a stage and their Redis.
func ThroughRedis(x *scenario.Try) (env []string) {
	x.Proxy = proxied(x, x.Backends.Redis.Address)
	return []string{"STOCKD_REDIS_ADDRESSES=" + x.Proxy.Address}
}

// proxied puts a proxy before a server.
func proxied(x *scenario.Try, target string) *servers.Proxy {
	p, err := servers.NewProxy(target)
	x.Must(err)
	x.Later(func() error { p.Close(); return nil })
	return p
}

// ProxyBefore puts a proxy before a replica; AtProxy is where buyers then go.
func ProxyBefore(replica int) scenario.Step {
	return func(x *scenario.Try) { x.Proxy = proxied(x, strings.TrimPrefix(x.URL(replica), "http://")) }
}

// AtProxy is the URL of the try's proxy.
func AtProxy(x *scenario.Try) string { return "http://" + x.Proxy.Address }

// Arm lays down a rule at the proxy.
func Arm(r servers.Rule) scenario.Step {
	return func(x *scenario.Try) { x.Trigger.Store(x.Proxy.Arm(r)) }
}

var (
	errNotArmed = errors.New("no rule is armed at the proxy")
	errNotMet   = fmt.Errorf("it was not met within %s", reachedWithin)
)

// armed is the rule that was armed last.
func armed(x *scenario.Try) *servers.Trigger {
	trigger := x.Trigger.Load()
	if trigger == nil {
		x.Must(errNotArmed)
	}
	return trigger
}

// Met waits until a request has met the rule that was armed last.
func Met() scenario.Step {
	return func(x *scenario.Try) { x.Must(met(x)) }
}

func met(x *scenario.Try) error {
	trigger := armed(x)
	ctx, cancel := context.WithTimeoutCause(x, reachedWithin, errNotMet)
	defer cancel()
	if err := trigger.Wait(ctx); err != nil {
		return err
	}
	x.Mark("proxy", fmt.Sprintf("%s: %s", trigger.Do, visible(trigger.Sent)))
	return nil
}

// RequestsHeld is the figure of Held.
const RequestsHeld = "requests_held"

// Held is Met for a part that may come out without it: it measures RequestsHeld, which is 0 where no
// request has met the rule in time.
func Held() scenario.Step {
	return func(x *scenario.Try) {
		err := met(x)
		if errors.Is(err, errNotMet) {
			x.Figure(RequestsHeld, 0)
			return
		}
		x.Must(err)
		x.Figure(RequestsHeld, 1)
	}
}

// Pass lets go what the proxy holds.
func Pass() scenario.Step {
	return func(x *scenario.Try) { pass(x, "proxy", armed(x)) }
}

func pass(x *scenario.Try, who string, held *servers.Trigger) {
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

// OnMasters gives a stage five masters of its own. The first replica of the
// service reaches them through links of its own, which can be cut.
func OnMasters(o servers.RedlockOptions) func(*scenario.Try) []string {
	return func(x *scenario.Try) (env []string) {
		var err error
		x.Masters, err = servers.StartRedlockWith(x, x.Supervisor, o)
		x.Must(err)
		closeLater(x, x.Masters)
		x.Links = links(x, x.Masters)
		x.Own = map[int][]string{1: {"STOCKD_REDLOCK_ADDRESSES=" + strings.Join(addresses(x.Links), ",")}}
		return x.Masters.Env()
	}
}

// closer is a server, or several.
type closer interface {
	Close(ctx context.Context) error
}

// closeLater closes servers at the end of the try.
func closeLater(x *scenario.Try, started closer) {
	x.Later(func() error { return started.Close(context.WithoutCancel(x)) })
}

func links(x *scenario.Try, masters *servers.Redlock) []*servers.Proxy {
	list := make([]*servers.Proxy, len(masters.Nodes))
	for i, node := range masters.Nodes {
		list[i] = proxied(x, node.Address)
	}
	return list
}

func addresses(links []*servers.Proxy) []string {
	list := make([]string, len(links))
	for i, link := range links {
		list[i] = link.Address
	}
	return list
}

// CutOff keeps the first replica from masters, by their number from 1.
func CutOff(masters ...int) scenario.Step {
	return func(x *scenario.Try) {
		for _, m := range masters {
			x.Links[m-1].Cut()
		}
		x.Mark("", fmt.Sprintf("masters %v are out of reach for replica 1", masters))
	}
}

// KillMaster ends a master without a warning.
func KillMaster(master int) scenario.Step {
	return onMaster(master, "is killed", (*servers.Redis).Kill)
}

// StartMaster starts a master again, with what it has on its disk.
func StartMaster(master int) scenario.Step {
	return onMaster(master, "is started again", (*servers.Redis).Restart)
}

// AwaitOnDisk waits until all that a master has is on its disk.
func AwaitOnDisk(master int) scenario.Step {
	return onMaster(master, "has all on its disk", (*servers.Redis).AwaitOnDisk)
}

// LostBytes is the figure of CutPower: how much of a master's file was not on its disk.
const LostBytes = "lost_bytes"

// CutPower ends a master, and takes from it what was not on its disk.
func CutPower(master int) scenario.Step {
	return func(x *scenario.Try) {
		onMaster(master, "loses its power, and what was not on its disk", func(r *servers.Redis, ctx context.Context) error {
			lost, err := r.CutPower(ctx)
			x.Must(err)
			x.Figure(LostBytes, float64(lost))
			return nil
		})(x)
	}
}

func onMaster(master int, what string, do func(*servers.Redis, context.Context) error) scenario.Step {
	return func(x *scenario.Try) {
		x.Must(do(x.Masters.Nodes[master-1], x))
		x.Mark(fmt.Sprintf("master %d", master), what)
	}
}

// OnPair gives a stage a Redis of its own that has a replica.
func OnPair(x *scenario.Try) (env []string) {
	var err error
	x.Pair, err = servers.StartRedisPair(x, x.Supervisor)
	x.Must(err)
	closeLater(x, x.Pair)
	return x.Pair.Env()
}

// Sync waits until the replica has all that the primary has.
func Sync() scenario.Step {
	return func(x *scenario.Try) { x.Must(x.Pair.AwaitSync(x)) }
}

// Freeze stops the replication from the primary.
func Freeze() scenario.Step {
	return func(x *scenario.Try) {
		x.Pair.Link.Freeze()
		x.Mark("redis", "writes to the primary no longer reach its replica")
	}
}

// Promote kills the primary and puts the replica in its place.
func Promote() scenario.Step {
	return func(x *scenario.Try) {
		x.Must(x.Pair.Primary.Kill(x))
		x.Must(x.Pair.Promote(x))
		x.Mark("redis", "the primary is killed, its replica is promoted")
	}
}

// MoveClock has the clock of a master jump, by its number from 1, to so much ahead
// of the right time, or behind it where ahead is negative.
func MoveClock(master int, ahead time.Duration) scenario.Step {
	return onMaster(master, where(ahead), func(r *servers.Redis, _ context.Context) error { return r.Clock.Set(ahead) })
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
	return onMaster(master, fmt.Sprintf("its clock runs %g times as fast", rate), func(r *servers.Redis, _ context.Context) error { return r.Clock.Run(rate) })
}

// OnZooKeeperWithClock gives a stage a ZooKeeper with a clock of its own.
func OnZooKeeperWithClock(x *scenario.Try) (env []string) {
	var err error
	x.ZooKeeper, err = servers.StartZooKeeperWithClock(x, x.Supervisor)
	x.Must(err)
	closeLater(x, x.ZooKeeper)
	clockOf(x, x.ZooKeeper) // its first request takes a Java long that has just started
	return x.ZooKeeper.Env()
}

// zooKeeper is that of the stage, or else that of the run.
func zooKeeper(x *scenario.Try) *servers.ZooKeeper {
	if x.ZooKeeper != nil {
		return x.ZooKeeper
	}
	return x.Backends.ZooKeeper
}

// ClockAhead is the figure of MoveZooKeeper: the hours by which the server's clock is ahead,
// as the server itself writes the time.
const ClockAhead = "clock_ahead_h"

// MoveZooKeeper has the clock of the stage's ZooKeeper jump.
func MoveZooKeeper(ahead time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		x.Must(x.ZooKeeper.Clock.Set(ahead))
		x.Mark("zookeeper", where(ahead))
		x.Figure(ClockAhead, clockOf(x, x.ZooKeeper).Round(time.Minute).Hours())
	}
}

// clockOf reads by how much the clock of a ZooKeeper is ahead: from the time that it writes
// into a new node.
func clockOf(x *scenario.Try, z *servers.ZooKeeper) (ahead time.Duration) {
	conn, _, err := zk.Connect([]string{z.Address}, patience, zk.WithLogger(silent{}))
	x.Must(err)
	defer conn.Close()
	path, err := conn.Create("/lab-clock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	x.Must(err)
	there, stat, err := conn.Exists(path)
	if err == nil && !there {
		err = errors.New("read the clock of ZooKeeper: the node is gone")
	}
	x.Must(err)
	return time.Until(time.UnixMilli(stat.Ctime))
}

type silent struct{}

func (silent) Printf(string, ...any) {}
