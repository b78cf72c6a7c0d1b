package step

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
)

// lateSession outlasts what a proxy holds up.
const lateSession = 6 * time.Second

// LateWatch has two contenders want one name of a lock in ZooKeeper. The second
// one's watch of the first one's node comes to the server when that is gone. It
// waits for no longer than within.
func LateWatch(kind string, within time.Duration) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		if err := proxy(s, s.Backends.ZooKeeper.Address); err != nil {
			return err
		}
		first, err := queuer(s, "first", kind, s.Backends.ZooKeeper.Address)
		if err != nil {
			return err
		}
		second, err := queuer(s, "second", kind, s.Proxy.Address)
		if err != nil {
			return err
		}
		lease, err := takeWithin(ctx, first, name(s), reachedWithin)
		if err != nil {
			return err
		}
		node, err := ephemeral(ctx, s)
		if err != nil {
			return err
		}
		return Meanwhile(
			InOrder(Arm(servers.Rule{Sent: node, Do: servers.Hold}), func(ctx context.Context, s *scenario.Environment) error {
				return hold(ctx, second, name(s), within, 0)
			}),
			InOrder(Wait(50*time.Millisecond), Met(), func(ctx context.Context, _ *scenario.Environment) error {
				return lease.Release(ctx)
			}, Pass()),
		)(ctx, s)
	}
}

func queuer(s *scenario.Environment, name, kind, address string) (lock.Locker, error) {
	c, err := s.Contend(name)
	if err != nil {
		return nil, err
	}
	if kind != sourcelock.NodeCache {
		c.UseZooKeeper(address, lateSession)
		return c.Locker(kind)
	}
	l, err := sourcelock.NewNodeCache(address, lateSession)
	if err != nil {
		return nil, err
	}
	return c.Record(kind, l), nil
}

// ephemeral asks the server for the one ephemeral node that has to do with the
// item of the try, and returns the last part of its path.
func ephemeral(ctx context.Context, s *scenario.Environment) (string, error) {
	said, err := ask(ctx, s, "dump")
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(fmt.Sprintf(`/\S*lab\S*%d/(\S+)`, s.Item)).FindStringSubmatch(said)
	if found == nil {
		return "", fmt.Errorf("the server knows no node of the lock:\n%s", strings.TrimSpace(said))
	}
	return found[1], nil
}

// toldWithin bounds one question to a ZooKeeper.
const answerWithin = 5 * time.Second

// ask sends ZooKeeper one of its four-letter words.
func ask(ctx context.Context, s *scenario.Environment, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	said, err := s.Backends.ZooKeeper.Ask(ctx, word)
	if err != nil {
		return "", fmt.Errorf("ask ZooKeeper to %s: %w", word, err)
	}
	return said, nil
}

// WakeUps counts how many watches ZooKeeper fires while the steps are done, and
// divides them by the number of releases.
func WakeUps(releases int, steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		before, err := fired(ctx, s)
		if err != nil {
			return err
		}
		if err := InOrder(steps...)(ctx, s); err != nil {
			return err
		}
		after, err := fired(ctx, s)
		if err != nil {
			return err
		}
		if err := s.Figure("watches_fired", after-before); err != nil {
			return err
		}
		return s.Figure("wakeups_per_release", (after-before)/float64(releases))
	}
}

// fired asks the server how many watches on nodes that went, and on the children
// of nodes, it has fired.
func fired(ctx context.Context, s *scenario.Environment) (sum float64, err error) {
	said, err := ask(ctx, s, "mntr")
	if err != nil {
		return 0, err
	}
	found := 0
	for line := range strings.Lines(said) {
		name, value, _ := strings.Cut(line, "\t")
		if name != "zk_sum_node_deleted_watch_count" && name != "zk_sum_node_children_watch_count" {
			continue
		}
		var n float64
		if _, err := fmt.Sscan(value, &n); err != nil {
			return 0, fmt.Errorf("count wake-ups: %s is %q: %w", name, value, err)
		}
		sum, found = sum+n, found+1
	}
	if found != 2 {
		return 0, fmt.Errorf("count wake-ups: the server has %d of 2 counters", found)
	}
	return sum, nil
}
