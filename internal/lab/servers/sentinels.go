package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
)

// Sentinels are three that watch over a master with a replica, and put the replica
// in its place when it dies. The two keep nothing on disk.
type Sentinels struct {
	Info
	Master, Replica *Redis
	Watchers        []*Redis
}

// MasterName is under which name the Sentinels know the master.
const MasterName = "shop"

// Bounds of a failover, in milliseconds: after which silence the master counts as
// dead, and how long a try to replace it may take.
const (
	downAfter      = 1000
	failoverWithin = 5000
)

// StartSentinels starts them. Everybody can be reached, and has heard of everybody,
// before this returns. s is what they ask of clients and of each other; nil:
// passwords alone, of which the Sentinels have another than those they watch. With
// it, the Sentinels have a user of their own, too.
func StartSentinels(ctx context.Context, k *Supervisor, s *Security) (*Sentinels, error) {
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

func (s *Sentinels) startReplica(ctx context.Context, k *Supervisor, setup redisSetup) (err error) {
	host, port, err := net.SplitHostPort(s.Master.Address)
	if err != nil {
		return err
	}
	setup.config += fmt.Sprintf("replicaof %s %s\n", host, port)
	if s.Replica, err = localRedis(ctx, k, setup); err != nil {
		return err
	}
	return s.Replica.AwaitReplica(ctx)
}

func (s *Sentinels) startWatchers(ctx context.Context, k *Supervisor, security *Security) error {
	host, port, err := net.SplitHostPort(s.Master.Address)
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel auth-pass %[1]s %[4]s
sentinel down-after-milliseconds %[1]s %[5]d
sentinel failover-timeout %[1]s %[6]d
`, MasterName, host, port, s.Master.Password, downAfter, failoverWithin)
	setup := redisSetup{password: rand.Text(), security: security, sentinel: true}
	if security != nil {
		setup.username = clientName
		config += fmt.Sprintf("sentinel sentinel-user %s\nsentinel sentinel-pass %s\n", setup.username, setup.password)
	}
	setup.config = config
	s.Watchers, err = startAll(ctx, members, func(ctx context.Context) (*Redis, error) { return localRedis(ctx, k, setup) })
	if err != nil {
		return err
	}
	return s.AwaitAgreement(ctx, s.Master)
}

// AwaitAgreement waits until every Sentinel knows this master, its replica, and all
// other Sentinels.
func (s *Sentinels) AwaitAgreement(ctx context.Context, master *Redis) error {
	for _, watcher := range s.Watchers {
		if err := watcher.await(ctx, master); err != nil {
			return fmt.Errorf("wait for the Sentinels: %w", err)
		}
	}
	return nil
}

// await waits until a Sentinel is content with a master.
func (r *Redis) await(ctx context.Context, master *Redis) error {
	client, err := r.Client()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	want := fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", master.Address, members)
	return awaitSaid(ctx, func() (string, error) { return client.Info(ctx, "sentinel").Result() }, want)
}

// Current is the master, as the first Sentinel knows it.
func (s *Sentinels) Current(ctx context.Context) (*Redis, error) {
	client, err := s.Watchers[0].Client()
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	at, err := client.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("ask for the master: %w", err)
	}
	if net.JoinHostPort(at[0], at[1]) == s.Replica.Address {
		return s.Replica, nil
	}
	return s.Master, nil
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
		"STOCKD_REDIS_MASTER=" + MasterName, "STOCKD_REDIS_ADDRESSES=" + strings.Join(addresses, ","),
		"STOCKD_REDIS_PASSWORD=" + s.Master.Password, "STOCKD_REDIS_SENTINEL_PASSWORD=" + s.Watchers[0].Password,
	}
	if name := s.Watchers[0].Username; name != "" {
		env = append(env, "STOCKD_REDIS_SENTINEL_USERNAME="+name)
	}
	return append(env, s.Master.security.env("redis")...)
}
