package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// redisGroup is Redis servers that are one backend together.
type redisGroup struct {
	Info
	all     []*Redis
	proxies []*Proxy
}

// add starts so many at once.
func (g *redisGroup) add(ctx context.Context, count int, start func(context.Context) (*Redis, error)) ([]*Redis, error) {
	nodes := make([]*Redis, count)
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range nodes {
		group.Go(func() (err error) {
			nodes[i], err = start(groupCtx)
			return err
		})
	}
	err := group.Wait()
	for _, one := range nodes {
		if one != nil { // else it did not start, and closeAfter ends the others
			g.all = append(g.all, one)
		}
	}
	if err == nil && g.Info == (Info{}) {
		g.Info = nodes[0].Info
	}
	return nodes, err
}

func (g *redisGroup) addLocal(ctx context.Context, k *Supervisor, count int, setup redisSetup) ([]*Redis, error) {
	return g.add(ctx, count, func(ctx context.Context) (*Redis, error) { return localRedis(ctx, k, setup) })
}

func (g *redisGroup) addOne(ctx context.Context, k *Supervisor, setup redisSetup) (*Redis, error) {
	nodes, err := g.addLocal(ctx, k, 1, setup)
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

func (g *redisGroup) addProxy(target string) (*Proxy, error) {
	p, err := NewProxy(target)
	if err == nil {
		g.proxies = append(g.proxies, p)
	}
	return p, err
}

// Close ends all servers, and the proxies between them.
func (g *redisGroup) Close(ctx context.Context) error {
	for _, p := range g.proxies {
		p.Close()
	}
	return closeAll(ctx, g.all)
}

func addressesOf(all []*Redis) []string {
	addresses := make([]string, len(all))
	for i, one := range all {
		addresses[i] = one.Address
	}
	return addresses
}

// replicaOf are the lines of redis.conf for a replica of an address.
func replicaOf(address, password string) string {
	return fmt.Sprintf("replicaof %s\nmasterauth %s\n", strings.Replace(address, ":", " ", 1), password)
}

// syncsAtOnce has a primary not wait five seconds for further replicas that want a
// copy.
const syncsAtOnce = "repl-diskless-sync-delay 0\n"

func (r *Redis) use(do func(client *redis.Client) error) error {
	client, err := r.Client()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	return do(client)
}

// awaitInfo asks until the answer contains all lines that are wanted. A server that
// changes its role closes its connections: it is asked again.
func awaitInfo(ctx context.Context, what string, ask func(ctx context.Context) (string, error), wanted ...string) error {
	return eventually(ctx, what, func(ctx context.Context) (bool, error) {
		answer, err := ask(ctx)
		for _, want := range wanted {
			if !strings.Contains(answer, want+"\r\n") {
				return false, errors.Join(fmt.Errorf("%s is missing in the last answer:\n%s", want, answer), err)
			}
		}
		return true, nil
	})
}

func (r *Redis) awaitInfo(ctx context.Context, what, section string, wanted ...string) error {
	return r.use(func(client *redis.Client) error {
		return awaitInfo(ctx, what, func(ctx context.Context) (string, error) { return client.Info(ctx, section).Result() }, wanted...)
	})
}

// AwaitReplica waits until a server follows another one, and has all its data.
func (r *Redis) AwaitReplica(ctx context.Context) error {
	return r.awaitInfo(ctx, "the replica", "replication", "role:slave", "master_link_status:up")
}

// Redlock is a number of independent Redis masters with one password.
type Redlock struct {
	redisGroup

	Nodes []*Redis
}

// redlockNodes are as many as the description of Redlock has.
const redlockNodes = 5

// StartRedlock starts the masters. They keep nothing on disk.
func StartRedlock(ctx context.Context, k *Supervisor, mode Mode) (*Redlock, error) {
	password := rand.Text()
	return startRedlock(ctx, func(ctx context.Context) (*Redis, error) { return startRedis(ctx, k, mode, password) })
}

// RedlockOptions say how masters are to be that experiments are made with.
type RedlockOptions struct {
	// Durable has each master write each command to its disk before it answers, and
	// have it again after Restart.
	Durable bool
	// EverySecond has each master write to its file before it answers, and have the file
	// on its disk once a second, which is Redis's default where it keeps a file.
	EverySecond bool
	// Clocks gives each master a clock of its own.
	Clocks bool
	// Security is what they require of clients; nil: a password alone.
	Security *Security
}

// StartRedlockWith starts masters that are real servers.
func StartRedlockWith(ctx context.Context, k *Supervisor, o RedlockOptions) (*Redlock, error) {
	setup := redisSetup{password: rand.Text(), config: keepsNothing, clock: o.Clocks, security: o.Security}
	switch {
	case o.Durable:
		setup.config = keepsAll
	case o.EverySecond:
		setup.config = keepsSeconds
	}
	return startRedlock(ctx, func(ctx context.Context) (*Redis, error) { return localRedis(ctx, k, setup) })
}

func startRedlock(ctx context.Context, start func(context.Context) (*Redis, error)) (r *Redlock, err error) {
	r = new(Redlock)
	defer closeAfter(ctx, r, &err)
	if r.Nodes, err = r.add(ctx, redlockNodes, start); err != nil {
		return nil, err
	}
	r.Name = fmt.Sprintf("%d × %s", redlockNodes, r.Name)
	return r, nil
}

// Conn is how the masters are reached.
func (r *Redlock) Conn() Conn {
	c := r.Nodes[0].Conn()
	c.Redis.Addresses = addressesOf(r.Nodes)
	return Conn{Redlock: c.Redis, security: c.security}
}

// RedisPair is a primary with a replica that can replace it. Neither keeps anything
// on disk.
type RedisPair struct {
	redisGroup

	Primary, Replica *Redis
	// Link is between the primary and the replica: frozen, it delays replication.
	Link *Proxy
	// Front is where clients connect to: the primary is behind it, and after Promote
	// the replica.
	Front *Proxy
}

// StartRedisPair starts a primary and its replica, which has all data of the primary
// before this returns.
func StartRedisPair(ctx context.Context, k *Supervisor) (_ *RedisPair, err error) {
	p, setup := new(RedisPair), redisSetup{password: rand.Text(), config: keepsNothing + syncsAtOnce}
	defer closeAfter(ctx, p, &err)
	if p.Primary, err = p.addOne(ctx, k, setup); err != nil {
		return nil, err
	}
	p.Name += " with a replica"
	if p.Link, err = p.addProxy(p.Primary.Address); err != nil {
		return nil, err
	}
	if p.Front, err = p.addProxy(p.Primary.Address); err != nil {
		return nil, err
	}
	setup.config = keepsNothing + replicaOf(p.Link.Address, setup.password)
	if p.Replica, err = p.addOne(ctx, k, setup); err != nil {
		return nil, err
	}
	return p, p.AwaitSync(ctx)
}

// AwaitSync waits until the replica has all data of the primary: it has acknowledged
// a write.
func (p *RedisPair) AwaitSync(ctx context.Context) error {
	if err := p.Replica.AwaitReplica(ctx); err != nil {
		return err
	}
	return p.Primary.use(func(client *redis.Client) error {
		const key = "stockd:lab:in-sync"
		if err := errors.Join(client.Set(ctx, key, "", 0).Err(), client.Del(ctx, key).Err()); err != nil {
			return fmt.Errorf("write to the primary: %w", err)
		}
		return eventually(ctx, "the replica", func(ctx context.Context) (bool, error) {
			// WAIT counts for the connection that has written.
			n, err := client.Wait(ctx, 1, askWithin/2).Result()
			return n == 1, err
		})
	})
}

// Promote makes the replica the primary, with the data that it has received, and
// puts it behind the front. It is a primary also after a restart. The old primary goes on as one.
func (p *RedisPair) Promote(ctx context.Context) error {
	err := p.Replica.use(func(client *redis.Client) error {
		if err := client.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
			return fmt.Errorf("promote the replica: %w", err)
		}
		if err := p.Replica.awaitInfo(ctx, "the promotion", "replication", "role:master"); err != nil {
			return err
		}
		if err := client.ConfigRewrite(ctx).Err(); err != nil {
			return fmt.Errorf("have the promoted replica keep its role: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return p.Front.Redirect(p.Replica.Address)
}

// Conn is how the pair is reached.
func (p *RedisPair) Conn() Conn {
	c := p.Primary.Conn()
	c.Redis.Addresses = []string{p.Front.Address}
	return c
}

// Sentinels are three that watch a master with a replica, and promote the replica
// when the master dies. The two keep nothing on disk.
type Sentinels struct {
	redisGroup

	Master, Replica *Redis
	Watchers        []*Redis
}

// MasterName is the name of the master among the Sentinels.
const MasterName = "shop"

// Bounds of a failover, in milliseconds: the silence after which the master counts as
// dead, and how long a try to replace it may take.
const (
	downAfter      = 1000
	failoverWithin = 5000
)

// StartSentinels starts them. All are reachable, and know each other, before this
// returns. s is what they require of clients and of each other; nil: passwords alone,
// which differ between the Sentinels and the servers that they watch. With it, the
// Sentinels have a user of their own, too.
func StartSentinels(ctx context.Context, k *Supervisor, s *Security) (_ *Sentinels, err error) {
	all := new(Sentinels)
	defer closeAfter(ctx, all, &err)
	setup := redisSetup{password: rand.Text(), security: s}
	setup.config = keepsNothing + syncsAtOnce + "masterauth " + setup.password + "\n"
	if all.Master, err = all.addOne(ctx, k, setup); err != nil {
		return nil, err
	}
	all.Name += " with a replica and three Sentinels"
	setup.config = keepsNothing + syncsAtOnce + replicaOf(all.Master.Address, setup.password)
	if all.Replica, err = all.addOne(ctx, k, setup); err != nil {
		return nil, err
	}
	if err = all.Replica.AwaitReplica(ctx); err != nil {
		return nil, err
	}
	if all.Watchers, err = all.addLocal(ctx, k, members, all.watcher(s)); err != nil {
		return nil, err
	}
	return all, all.AwaitAgreement(ctx, all.Master)
}

func (s *Sentinels) watcher(security *Security) redisSetup {
	config := fmt.Sprintf(`sentinel monitor %[1]s %[2]s 2
sentinel auth-pass %[1]s %[3]s
sentinel down-after-milliseconds %[1]s %[4]d
sentinel failover-timeout %[1]s %[5]d
`, MasterName, strings.Replace(s.Master.Address, ":", " ", 1), s.Master.Password, downAfter, failoverWithin)
	setup := redisSetup{password: rand.Text(), security: security, sentinel: true}
	if security != nil {
		setup.username = clientName
		config += fmt.Sprintf("sentinel sentinel-user %s\nsentinel sentinel-pass %s\n", setup.username, setup.password)
	}
	setup.config = config
	return setup
}

// AwaitAgreement waits until every Sentinel knows this master, its replica, and all
// other Sentinels.
func (s *Sentinels) AwaitAgreement(ctx context.Context, master *Redis) error {
	want := fmt.Sprintf("status=ok,address=%s,slaves=1,sentinels=%d", master.Address, members)
	for _, watcher := range s.Watchers {
		if err := watcher.awaitInfo(ctx, "the Sentinels", "sentinel", want); err != nil {
			return err
		}
	}
	return nil
}

// Current is the master, as the first Sentinel knows it.
func (s *Sentinels) Current(ctx context.Context) (current *Redis, err error) {
	current = s.Master
	err = s.Watchers[0].use(func(client *redis.Client) error {
		at, err := client.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).StringSlice()
		if err != nil {
			return fmt.Errorf("ask for the master: %w", err)
		}
		if net.JoinHostPort(at[0], at[1]) == s.Replica.Address {
			current = s.Replica
		}
		return nil
	})
	return current, err
}

// Conn is how the master is found.
func (s *Sentinels) Conn() Conn {
	c, one := s.Master.Conn(), s.Watchers[0]
	c.Redis.Master, c.Redis.Addresses = MasterName, addressesOf(s.Watchers)
	c.Redis.SentinelUsername, c.Redis.SentinelPassword = one.Username, one.Password
	return c
}
