package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// Cast is contenders for one name of a lock. Each step has one of them do something, so
// that their requests come to the server in the order of the steps. The clock of locks
// that write times stands still except for Turn.
type Cast struct {
	Lock string
	Need scenario.Need
	// Locks are those of single members, where they are not Lock.
	Locks map[string]string
	// TTL is that of the lock, 1 s where it is 0; or of the session, 6 s.
	TTL time.Duration
	// Ahead is by how much the clocks of single members are ahead.
	Ahead map[string]time.Duration
	// Owners are the owners that single members ask for.
	Owners map[string]string

	members map[string]*member
	clock   atomic.Int64 // in nanoseconds
}

type member struct {
	locker   lock.Locker
	proxy    *servers.Proxy   // where rules are laid down; nil before a database
	links    []*servers.Proxy // to the masters, where there are several
	rule     *servers.Trigger
	answered chan struct{} // closed when its Acquire has returned
	leave    context.CancelFunc
	lease    lock.Lease // these two then
	failed   error
	dead     bool
}

const (
	// castTimeout outlasts what is held up at a proxy.
	castTimeout = 10 * time.Second
	// castClock is 50 ms before a full second.
	castClock = 1_800_000_000*time.Second - 50*time.Millisecond
)

// Enter connects the members.
func (c *Cast) Enter(names ...string) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		c.members = make(map[string]*member)
		c.clock.Store(int64(castClock))
		for _, who := range names {
			if err := c.enter(s, who); err != nil {
				return fmt.Errorf("%s: %w", who, err)
			}
		}
		return nil
	}
}

func (c *Cast) enter(s *scenario.Environment, who string) (err error) {
	m := new(member)
	c.members[who] = m
	if c.Need == scenario.ZooKeeper {
		if m.proxy, err = proxied(s, zooKeeper(s).Address); err == nil {
			m.locker, err = queuer(s, who, c.Lock, m.proxy.Address, cmp.Or(c.TTL, lateSession))
		}
		return err
	}
	one, err := s.Contend(who)
	if err != nil {
		return err
	}
	one.TTL = cmp.Or(c.TTL, time.Second)
	one.Now = func() time.Time { return time.Unix(0, c.clock.Load()).Add(c.Ahead[who]) }
	switch c.Need {
	case scenario.Redis:
		if m.proxy, err = proxied(s, s.Backends.Redis.Address); err != nil {
			return err
		}
		one.UseRedis(backend.RedisOptions{Addresses: []string{m.proxy.Address}, Password: s.Backends.Redis.Password, Timeout: castTimeout})
	case scenario.Redlock:
		if m.links, err = links(s, masters(s)); err != nil {
			return err
		}
		m.proxy, one.Timeout = m.links[0], castTimeout
		one.UseMasters(addresses(m.links), masters(s).Nodes[0].Password)
	case scenario.Etcd:
		scheme, address, _ := strings.Cut(s.Backends.Etcd.Endpoint, "//")
		if m.proxy, err = proxied(s, address); err != nil {
			return err
		}
		if err := one.UseEtcd(scheme + "//" + m.proxy.Address); err != nil {
			return err
		}
	default:
		if err := one.Connect(s, c.Need); err != nil {
			return err
		}
	}
	m.locker, err = one.Locker(cmp.Or(c.Locks[who], c.Lock))
	return err
}

func proxied(s *scenario.Environment, target string) (*servers.Proxy, error) {
	p, err := servers.NewProxy(target)
	if err == nil {
		s.Later(func() error { p.Close(); return nil })
	}
	return p, err
}

// Ask has a member ask for the name for no longer than within, and goes on when it has
// been answered, or after atMost.
func (c *Cast) Ask(who string, within, atMost time.Duration) scenario.Step {
	return InOrder(c.begin(who, within), c.Answered(who, atMost))
}

// Take has a member ask for a name that is free.
func (c *Cast) Take(who string) scenario.Step { return c.Ask(who, patience, patience) }

// AskHeldUp has a member ask for the name, and goes on when one of its requests, or the
// reply to it, is held up at the proxy.
func (c *Cast) AskHeldUp(who string, within time.Duration, rule servers.Rule) scenario.Step {
	return InOrder(c.holdUp(who, rule), c.begin(who, within), c.met(who))
}

// Queue has a member ask for the name in ZooKeeper or etcd, and goes on when it watches the
// node or the key of the member that asked before.
func (c *Cast) Queue(who string, within time.Duration) scenario.Step {
	latest := ephemeral
	if c.Need == scenario.Etcd {
		latest = latestKey
	}
	return func(ctx context.Context, s *scenario.Environment) error {
		node, err := latest(ctx, s)
		if err != nil {
			return err
		}
		return c.AskHeldUp(who, within, servers.Rule{Sent: node, Do: servers.HoldReply, For: time.Millisecond})(ctx, s)
	}
}

func (c *Cast) holdUp(who string, rule servers.Rule) scenario.Step {
	return func(context.Context, *scenario.Environment) error {
		m := c.members[who]
		m.rule = m.proxy.Arm(rule)
		return nil
	}
}

// met waits until a member has met its rule, or has been answered without it.
func (c *Cast) met(who string) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		m := c.members[who]
		select {
		case <-m.rule.Reached():
			return s.Mark(who, fmt.Sprintf("%s: %s", m.rule.Do, visible(m.rule.Sent)))
		case <-m.answered:
			return m.failure()
		case <-time.After(reachedWithin):
			return fmt.Errorf("%s did not send %q within %s", who, m.rule.Sent, reachedWithin)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// failure is why a member was not answered at all. That it was not granted the name is in
// the history.
func (m *member) failure() error {
	if m.dead || errors.Is(m.failed, lock.ErrNotAcquired) {
		return nil
	}
	return m.failed
}

func (c *Cast) begin(who string, within time.Duration) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		m, answered := c.members[who], make(chan struct{})
		m.answered = answered
		if owner, ok := c.Owners[who]; ok {
			ctx = lock.WithOwner(ctx, owner)
		}
		ctx, m.leave = context.WithTimeout(ctx, within)
		go func() {
			defer close(answered)
			m.lease, m.failed = m.locker.Acquire(ctx, name(s))
		}()
		s.Later(func() error { m.leave(); <-answered; return nil })
		return nil
	}
}

// Pass lets go what is held up of a member.
func (c *Cast) Pass(who string) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error { return pass(s, who, c.members[who].rule) }
}

// PassUntil is Pass that waits for the next request of the member with these bytes, or for
// its answer: it has read the reply by then.
func (c *Cast) PassUntil(who, sent string) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		held := c.members[who].rule
		return InOrder(
			c.holdUp(who, servers.Rule{Sent: sent, Do: servers.Hold, For: time.Millisecond}),
			func(context.Context, *scenario.Environment) error { return pass(s, who, held) },
			c.met(who),
		)(ctx, s)
	}
}

func pass(s *scenario.Environment, who string, held *servers.Trigger) error {
	held.Pass()
	return s.Mark(who, "let go: "+visible(held.Sent))
}

// Answered waits until a member has the name or has given up, or for atMost.
func (c *Cast) Answered(who string, atMost time.Duration) scenario.Step {
	return func(ctx context.Context, _ *scenario.Environment) error {
		m := c.members[who]
		timer := time.NewTimer(atMost)
		defer timer.Stop()
		select {
		case <-m.answered:
			return m.failure()
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// GiveBack has a member give the name back, where it has it.
func (c *Cast) GiveBack(who string) scenario.Step {
	return func(ctx context.Context, _ *scenario.Environment) error {
		m := c.members[who]
		select {
		case <-m.answered:
		default:
			return nil
		}
		if m.lease == nil {
			return nil
		}
		err := m.lease.Release(ctx)
		if errors.Is(err, lock.ErrLost) || m.links != nil { // some masters may be out of reach
			return nil // that is in the history
		}
		return err
	}
}

// Leave has a member that waits give up.
func (c *Cast) Leave(who string) scenario.Step {
	return InOrder(func(context.Context, *scenario.Environment) error { c.members[who].leave(); return nil }, c.Answered(who, patience))
}

// Die ends a member like a process that is killed: it sends nothing any more.
func (c *Cast) Die(who string) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		m := c.members[who]
		m.dead = true
		for _, link := range append(m.links, m.proxy) {
			link.Cut()
		}
		return s.Mark(who, checker.Killed+": its connections end, and it sends nothing any more")
	}
}

// Turn moves the clock of all members.
func (c *Cast) Turn(by time.Duration) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		c.clock.Add(int64(by))
		return s.Mark("", "the clock of the clients moves by "+by.String())
	}
}

// ExpiryMoved is the figure of Expiring.
const ExpiryMoved = "expiry_moved_ms"

// Expiring records by how much the steps have changed the time that is the value of the
// lock.
func (c *Cast) Expiring(steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		before, err := c.expiry(ctx, s)
		if err != nil {
			return err
		}
		if err := InOrder(steps...)(ctx, s); err != nil {
			return err
		}
		after, err := c.expiry(ctx, s)
		if err != nil {
			return err
		}
		return s.Figure(ExpiryMoved, after-before)
	}
}

func (c *Cast) expiry(ctx context.Context, s *scenario.Environment) (ms float64, err error) {
	client, err := s.Backends.Redis.Client()
	if err != nil {
		return 0, err
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	keys, err := client.Keys(ctx, "*{"+url.PathEscape(name(s))+"}:"+c.Lock).Result()
	if err == nil && len(keys) != 1 {
		err = fmt.Errorf("%d found", len(keys))
	}
	if err != nil {
		return 0, fmt.Errorf("look for the one key of %s: %w", c.Lock, err)
	}
	value, err := client.Get(ctx, keys[0]).Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(value, 64)
}

// RenewAside has a service beside the replicas renew the lock of the item while the steps
// are done. It does not know whether the holder lives.
func RenewAside(kind string, ttl time.Duration, steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		client, err := s.Backends.Redis.Client()
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // nothing is lost with it
		renewing, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- renew(renewing, client, fmt.Sprintf("*{goods%%2F%d}:%s", s.Item, kind), ttl) }()
		err = InOrder(steps...)(ctx, s)
		stop()
		return errors.Join(err, <-done)
	}
}

func renew(ctx context.Context, client *redis.Client, pattern string, ttl time.Duration) error {
	for ctx.Err() == nil {
		keys, err := client.Keys(ctx, pattern).Result()
		for _, key := range keys {
			err = errors.Join(err, client.PExpire(ctx, key, ttl).Err())
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		_ = pause.For(ctx, ttl/10) // what ends it is seen at the top
	}
	return nil
}

// masters are those of the stage, or those of the run where it has none of its own.
func masters(s *scenario.Environment) *servers.Redlock {
	if s.Masters != nil {
		return s.Masters
	}
	return s.Backends.Redlock
}

// At has the next rule of a member be laid down before this master, from 1.
func (c *Cast) At(who string, master int) scenario.Step {
	return func(context.Context, *scenario.Environment) error {
		m := c.members[who]
		m.proxy = m.links[master-1]
		return nil
	}
}

// Arm lays a rule down before each of these masters, from 1, of which no step waits.
func (c *Cast) Arm(who string, rule servers.Rule, masters ...int) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		for _, master := range masters {
			c.members[who].links[master-1].Arm(rule)
		}
		return s.Mark(who, fmt.Sprintf("before masters %v: %s of %s", masters, rule.Do, visible(rule.Sent)))
	}
}

// CutOff keeps a member from masters, from 1.
func (c *Cast) CutOff(who string, masters ...int) scenario.Step {
	return func(_ context.Context, s *scenario.Environment) error {
		for _, master := range masters {
			c.members[who].links[master-1].Cut()
		}
		return s.Mark(who, fmt.Sprintf("masters %v are out of its reach", masters))
	}
}

// KeysLeft is the figure of CountKeys.
const KeysLeft = "keys_left"

// CountKeys records how many masters have the key of the name.
func (c *Cast) CountKeys() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		left := 0
		for _, master := range masters(s).Nodes {
			client := master.Open()
			keys, err := client.Keys(ctx, "*{"+url.PathEscape(name(s))+"}:"+c.Lock).Result()
			_ = client.Close() // nothing is lost with it
			if err != nil {
				return fmt.Errorf("count the keys of %s: %w", c.Lock, err)
			}
			left += len(keys)
		}
		return s.Figure(KeysLeft, float64(left))
	}
}
