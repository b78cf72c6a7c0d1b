package step

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
)

// ThroughRedis puts a proxy between the replicas of a stage and their Redis.
func ThroughRedis(_ context.Context, s *scenario.Environment) (env []string, err error) {
	if err := proxy(s, s.Backends.Redis.Address); err != nil {
		return nil, err
	}
	return []string{"STOCKD_REDIS_ADDRESSES=" + s.Proxy.Address}, nil
}

// proxy puts the environment's proxy before a server.
func proxy(s *scenario.Environment, target string) (err error) {
	if s.Proxy, err = servers.NewProxy(target); err != nil {
		return err
	}
	s.Later(func() error { s.Proxy.Close(); return nil })
	return nil
}

// ProxyBefore puts a proxy before a replica; AtProxy is where buyers then go.
func ProxyBefore(replica int) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		return proxy(s, s.URL(replica)[len("http://"):])
	}
}

// AtProxy is the URL of the environment's proxy.
func AtProxy(s *scenario.Environment) string { return "http://" + s.Proxy.Address }

// Arm lays down a rule at the proxy.
func Arm(r servers.Rule) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		s.Trigger.Store(s.Proxy.Arm(r))
		return nil
	}
}

var (
	errNotArmed = errors.New("no rule is armed at the proxy")
	errNotMet   = fmt.Errorf("it was not met within %s", reachedWithin)
)

// armed is the rule that was armed last.
func armed(s *scenario.Environment) (*servers.Trigger, error) {
	if trigger := s.Trigger.Load(); trigger != nil {
		return trigger, nil
	}
	return nil, errNotArmed
}

// Met waits until a request has met the rule that was armed last.
func Met() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		trigger, err := armed(s)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, reachedWithin, errNotMet)
		defer cancel()
		if err := trigger.Wait(ctx); err != nil {
			return err
		}
		return s.Mark("proxy", fmt.Sprintf("%s: %s", trigger.Do, visible(trigger.Sent)))
	}
}

// RequestsHeld is the figure of Held.
const RequestsHeld = "requests_held"

// Held is Met for a part that may come out without it: it measures RequestsHeld, which is 0 where no
// request has met the rule in time.
func Held() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		err := Met()(ctx, s)
		switch {
		case errors.Is(err, errNotMet):
			return s.Figure(RequestsHeld, 0)
		case err != nil:
			return err
		default:
			return s.Figure(RequestsHeld, 1)
		}
	}
}

// Pass lets go what the proxy holds.
func Pass() scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		trigger, err := armed(s)
		if err != nil {
			return err
		}
		trigger.Pass()
		return s.Mark("proxy", "let go: "+visible(trigger.Sent))
	}
}

func visible(sent string) string {
	out := make([]rune, 0, len(sent))
	for _, r := range sent {
		if r >= ' ' && r < 127 {
			out = append(out, r)
		}
	}
	return string(out)
}

// OnMasters gives a stage five masters of its own. The first replica of the
// service reaches them through links of its own, which can be cut.
func OnMasters(o servers.RedlockOptions) func(context.Context, *scenario.Environment) ([]string, error) {
	return func(ctx context.Context, s *scenario.Environment) (env []string, err error) {
		if s.Masters, err = servers.StartRedlockWith(ctx, s.Supervisor, o); err != nil {
			return nil, err
		}
		s.Later(func() error { return s.Masters.Close(context.WithoutCancel(ctx)) })
		if s.Links, err = links(s, s.Masters); err != nil {
			return nil, err
		}
		s.Own = map[int][]string{1: {"STOCKD_REDLOCK_ADDRESSES=" + strings.Join(addresses(s.Links), ",")}}
		return s.Masters.Env(), nil
	}
}

func links(s *scenario.Environment, masters *servers.Redlock) ([]*servers.Proxy, error) {
	list := make([]*servers.Proxy, len(masters.Nodes))
	for i, node := range masters.Nodes {
		link, err := servers.NewProxy(node.Address)
		if err != nil {
			return nil, err
		}
		s.Later(func() error { link.Close(); return nil })
		list[i] = link
	}
	return list, nil
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
	return func(_ context.Context, s *scenario.Environment) error {
		for _, m := range masters {
			s.Links[m-1].Cut()
		}
		return s.Mark("", fmt.Sprintf("masters %v are out of reach for replica 1", masters))
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
	return func(ctx context.Context, s *scenario.Environment) error {
		var lost int64
		cut := func(r *servers.Redis, ctx context.Context) (err error) {
			lost, err = r.CutPower(ctx)
			return err
		}
		if err := onMaster(master, "loses its power, and what was not on its disk", cut)(ctx, s); err != nil {
			return err
		}
		return s.Figure(LostBytes, float64(lost))
	}
}

func onMaster(master int, what string, do func(*servers.Redis, context.Context) error) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		if err := do(s.Masters.Nodes[master-1], ctx); err != nil {
			return err
		}
		return s.Mark(fmt.Sprintf("master %d", master), what)
	}
}

// OnPair gives a stage a Redis of its own that has a replica.
func OnPair(ctx context.Context, s *scenario.Environment) (env []string, err error) {
	if s.Pair, err = servers.StartRedisPair(ctx, s.Supervisor); err != nil {
		return nil, err
	}
	s.Later(func() error { return s.Pair.Close(context.WithoutCancel(ctx)) })
	return s.Pair.Env(), nil
}

// Sync waits until the replica has all that the primary has.
func Sync() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error { return s.Pair.AwaitSync(ctx) }
}

// Freeze stops the replication from the primary.
func Freeze() scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		s.Pair.Link.Freeze()
		return s.Mark("redis", "writes to the primary no longer reach its replica")
	}
}

// Promote kills the primary and puts the replica in its place.
func Promote() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		if err := s.Pair.Primary.Kill(ctx); err != nil {
			return err
		}
		if err := s.Pair.Promote(ctx); err != nil {
			return err
		}
		return s.Mark("redis", "the primary is killed, its replica is promoted")
	}
}
