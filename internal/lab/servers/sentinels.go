package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/keeper"
)

// Sentinels are three that watch over a master with a replica, and put the replica
// in its place when it dies. The two keep nothing on disk.
type Sentinels struct {
	Info
	Master, Replica *Redis
	Watchers        []*Redis
}

// masterName is under which name the Sentinels know the master.
const masterName = "shop"

// Bounds of a failover, in milliseconds: after which silence the master counts as
// dead, and how long a try to replace it may take.
const (
	downAfter      = 1000
	failoverWithin = 5000
)

// StartSentinels starts them. Everybody can be reached, and has heard of everybody,
// before this returns. s is what they ask of clients and of each other; nil:
// passwords alone, of which the Sentinels have another than those they watch.
func StartSentinels(ctx context.Context, k *keeper.Keeper, s *Security) (*Sentinels, error) {
	setup := redisSetup{password: rand.Text(), security: s}
	both := keepsNothing + "repl-diskless-sync-delay 0\nmasterauth " + setup.password + "\n"
	setup.config = both
	master, err := localRedis(ctx, k, setup)
	if err != nil {
		return nil, err
	}
	all := &Sentinels{Info: master.Info, Master: master}
	all.Name += " with a replica and three Sentinels"
	err = all.startReplica(ctx, k, setup)
	if err == nil {
		err = all.startWatchers(ctx, k, s)
	}
	if err != nil {
		return nil, errors.Join(err, all.Close(context.WithoutCancel(ctx)))
	}
	return all, nil
}

func (s *Sentinels) startReplica(ctx context.Context, k *keeper.Keeper, setup redisSetup) (err error) {
	host, port, err := net.SplitHostPort(s.Master.Address)
	if err != nil {
		return err
	}
	setup.config += fmt.Sprintf("replicaof %s %s\n", host, port)
	if s.Replica, err = localRedis(ctx, k, setup); err != nil {
		return err
	}
	return s.await(ctx, s.Replica, func(c *redis.Client) (string, error) { return c.Info(ctx, "replication").Result() },
		"master_link_status:up")
}

func (s *Sentinels) startWatchers(ctx context.Context, k *keeper.Keeper, security *Security) error {
	host, port, err := net.SplitHostPort(s.Master.Address)
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel auth-pass %[1]s %[4]s
sentinel down-after-milliseconds %[1]s %[5]d
sentinel failover-timeout %[1]s %[6]d
`, masterName, host, port, s.Master.Password, downAfter, failoverWithin)
	password := rand.Text()
	s.Watchers, err = startAll(ctx, members, func(ctx context.Context) (*Redis, error) {
		return localRedis(ctx, k, redisSetup{password: password, config: config, security: security, sentinel: true})
	})
	if err != nil {
		return err
	}
	for _, watcher := range s.Watchers {
		ask := func(c *redis.Client) (string, error) { return c.Info(ctx, "sentinel").Result() }
		if err := s.await(ctx, watcher, ask, fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", s.Master.Address, members)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sentinels) await(ctx context.Context, of *Redis, ask func(*redis.Client) (string, error), want string) error {
	client, err := of.Client()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	if err := awaitSaid(ctx, func() (string, error) { return ask(client) }, want); err != nil {
		return fmt.Errorf("wait for the Sentinels: %w", err)
	}
	return nil
}

// Close ends them all.
func (s *Sentinels) Close(ctx context.Context) error {
	err := closeAll(ctx, s.Watchers)
	for _, server := range []*Redis{s.Master, s.Replica} {
		if server != nil {
			err = errors.Join(err, server.Close(ctx))
		}
	}
	return err
}

// Env is what a replica of stockd has to be told to find the master.
func (s *Sentinels) Env() []string {
	addresses := make([]string, len(s.Watchers))
	for i, watcher := range s.Watchers {
		addresses[i] = watcher.Address
	}
	env := []string{
		"STOCKD_REDIS_MASTER=" + masterName, "STOCKD_REDIS_ADDRESSES=" + strings.Join(addresses, ","),
		"STOCKD_REDIS_PASSWORD=" + s.Master.Password, "STOCKD_REDIS_SENTINEL_PASSWORD=" + s.Watchers[0].Password,
	}
	return append(env, s.Master.security.env("redis")...)
}
