package step

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
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
		first, err := queuer(s, "first", kind, s.Backends.ZooKeeper.Address, lateSession)
		if err != nil {
			return err
		}
		second, err := queuer(s, "second", kind, s.Proxy.Address, lateSession)
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
		return InOrder(Arm(servers.Rule{Sent: node, Do: servers.Hold}), Meanwhile(
			func(ctx context.Context, s *scenario.Environment) error { return hold(ctx, second, name(s), within, 0) },
			InOrder(Met(), func(ctx context.Context, _ *scenario.Environment) error { return lease.Release(ctx) }, Pass()),
		))(ctx, s)
	}
}

func queuer(s *scenario.Environment, name, kind, address string, session time.Duration) (lock.Locker, error) {
	c, err := s.Contend(name)
	if err != nil {
		return nil, err
	}
	if kind != sourcelock.NodeCache && kind != sourcelock.NodeCacheTimeout {
		c.Timeout = castTimeout
		c.UseZooKeeper(address, session)
		return c.Locker(kind)
	}
	l, err := sourcelock.NewNodeCache(kind, address, session)
	if err != nil {
		return nil, err
	}
	return c.Record(kind, l), nil
}

// ephemeral asks the server for the ephemeral nodes that have to do with the item of the
// try, and returns the last part of the path of the latest.
func ephemeral(ctx context.Context, s *scenario.Environment) (string, error) {
	said, err := ask(ctx, s, "dump")
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(fmt.Sprintf(`/\S*lab\S*\D%d/(\S+)`, s.Item)).FindAllStringSubmatch(said, -1)
	if found == nil {
		return "", fmt.Errorf("the server knows no node of the lock:\n%s", strings.TrimSpace(said))
	}
	latest := slices.MaxFunc(found, func(a, b []string) int { return cmp.Compare(number(a[1]), number(b[1])) })
	return latest[1], nil
}

// number is the part of a node's name by which ZooKeeper counts.
func number(node string) string { return node[max(0, len(node)-sequenceDigits):] }

const sequenceDigits = 10

// answerWithin bounds one question to a ZooKeeper.
const answerWithin = 5 * time.Second

// ask sends ZooKeeper one of its four-letter words.
func ask(ctx context.Context, s *scenario.Environment, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	said, err := zooKeeper(s).Ask(ctx, word)
	if err != nil {
		return "", fmt.Errorf("ask ZooKeeper to %s: %w", word, err)
	}
	return said, nil
}
