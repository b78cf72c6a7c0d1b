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
	return func(x *scenario.Try) {
		c.members = make(map[string]*member)
		c.clock.Store(int64(castClock))
		for _, who := range names {
			c.members[who] = new(member)
			c.enter(x, who, c.members[who])
		}
	}
}

func (c *Cast) enter(x *scenario.Try, who string, m *member) {
	if c.Need == scenario.ZooKeeper {
		m.proxy = proxied(x, zooKeeper(x).Address)
		m.locker = queuer(x, who, c.Lock, m.proxy.Address, cmp.Or(c.TTL, lateSession))
		return
	}
	one := x.Contend(who)
	one.TTL = cmp.Or(c.TTL, time.Second)
	one.Now = func() time.Time { return time.Unix(0, c.clock.Load()).Add(c.Ahead[who]) }
	switch c.Need {
	case scenario.Redis:
		m.proxy = proxied(x, x.Backends.Redis.Address)
		one.UseRedis(backend.RedisOptions{Addresses: []string{m.proxy.Address}, Password: x.Backends.Redis.Password, Timeout: castTimeout})
	case scenario.Redlock:
		m.links = links(x, masters(x))
		m.proxy, one.Timeout = m.links[0], castTimeout
		one.UseMasters(addresses(m.links), masters(x).Nodes[0].Password)
	case scenario.Etcd:
		scheme, address, _ := strings.Cut(x.Backends.Etcd.Endpoint, "//")
		m.proxy = proxied(x, address)
		one.UseEtcd(x.Backends.Etcd, scheme+"//"+m.proxy.Address)
	default:
		one.Connect(c.Need)
	}
	m.locker = one.Locker(cmp.Or(c.Locks[who], c.Lock))
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
	return func(x *scenario.Try) {
		c.AskHeldUp(who, within, servers.Rule{Sent: latest(x), Do: servers.HoldReply, For: time.Millisecond})(x)
	}
}

func (c *Cast) holdUp(who string, rule servers.Rule) scenario.Step {
	return func(*scenario.Try) { c.members[who].rule = c.members[who].proxy.Arm(rule) }
}

// met waits until a member has met its rule, or has been answered without it.
func (c *Cast) met(who string) scenario.Step {
	return func(x *scenario.Try) {
		m := c.members[who]
		select {
		case <-m.rule.Reached():
			x.Mark(who, fmt.Sprintf("%s: %s", m.rule.Do, visible(m.rule.Sent)))
		case <-m.answered:
			x.Must(m.failure())
		case <-time.After(reachedWithin):
			x.Must(fmt.Errorf("%s did not send %q within %s", who, m.rule.Sent, reachedWithin))
		case <-x.Done():
			x.Must(context.Cause(x))
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
	return func(x *scenario.Try) {
		m, answered, ctx := c.members[who], make(chan struct{}), context.Context(x)
		m.answered = answered
		if owner, ok := c.Owners[who]; ok {
			ctx = lock.WithOwner(ctx, owner)
		}
		ctx, m.leave = context.WithTimeout(ctx, within)
		go func() {
			defer close(answered)
			m.lease, m.failed = m.locker.Acquire(ctx, name(x))
		}()
		x.Later(func() error { m.leave(); <-answered; return nil })
	}
}

// Pass lets go what is held up of a member.
func (c *Cast) Pass(who string) scenario.Step {
	return func(x *scenario.Try) { pass(x, who, c.members[who].rule) }
}

// PassUntil is Pass that waits for the next request of the member with these bytes, or for
// its answer: it has read the reply by then.
func (c *Cast) PassUntil(who, sent string) scenario.Step {
	return func(x *scenario.Try) {
		held := c.members[who].rule
		c.holdUp(who, servers.Rule{Sent: sent, Do: servers.Hold, For: time.Millisecond})(x)
		pass(x, who, held)
		c.met(who)(x)
	}
}

// Answered waits until a member has the name or has given up, or for atMost.
func (c *Cast) Answered(who string, atMost time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		m := c.members[who]
		select {
		case <-m.answered:
			x.Must(m.failure())
		case <-time.After(atMost):
		case <-x.Done():
			x.Must(context.Cause(x))
		}
	}
}

// GiveBack has a member give the name back, where it has it.
func (c *Cast) GiveBack(who string) scenario.Step {
	return func(x *scenario.Try) {
		m := c.members[who]
		select {
		case <-m.answered:
		default:
			return
		}
		if m.lease == nil {
			return
		}
		// That it was lost is in the history, and some masters may be out of reach.
		if err := m.lease.Release(x); !errors.Is(err, lock.ErrLost) && m.links == nil {
			x.Must(err)
		}
	}
}

// Leave has a member that waits give up.
func (c *Cast) Leave(who string) scenario.Step {
	return InOrder(func(*scenario.Try) { c.members[who].leave() }, c.Answered(who, patience))
}

// Die ends a member like a process that is killed: it sends nothing any more.
func (c *Cast) Die(who string) scenario.Step {
	return func(x *scenario.Try) {
		m := c.members[who]
		m.dead = true
		for _, link := range append(m.links, m.proxy) {
			link.Cut()
		}
		x.Mark(who, checker.Killed+": its connections end, and it sends nothing any more")
	}
}

// Turn moves the clock of all members.
func (c *Cast) Turn(by time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		c.clock.Add(int64(by))
		x.Mark("", "the clock of the clients moves by "+by.String())
	}
}

// ExpiryMoved is the figure of Expiring.
const ExpiryMoved = "expiry_moved_ms"

// Expiring records by how much the steps have changed the time that is the value of the
// lock.
func (c *Cast) Expiring(steps ...scenario.Step) scenario.Step {
	return func(x *scenario.Try) {
		before := c.expiry(x)
		InOrder(steps...)(x)
		x.Figure(ExpiryMoved, c.expiry(x)-before)
	}
}

func (c *Cast) expiry(x *scenario.Try) (ms float64) {
	client := redisOf(x)
	keys := keysOf(x, client, c.Lock)
	if len(keys) != 1 {
		x.Must(fmt.Errorf("look for the one key of %s: %d found", c.Lock, len(keys)))
	}
	value, err := client.Get(x, keys[0]).Result()
	x.Must(err)
	ms, err = strconv.ParseFloat(value, 64)
	x.Must(err)
	return ms
}

// redisOf connects to the Redis of the run until the end of the try.
func redisOf(x *scenario.Try) *redis.Client {
	client, err := x.Backends.Redis.Client()
	x.Must(err)
	x.Later(client.Close)
	return client
}

// keysOf are the keys of the name in a Redis, of one kind of lock or, with *, of all.
func keysOf(x *scenario.Try, client *redis.Client, kind string) []string {
	keys, err := client.Keys(x, "*{"+url.PathEscape(name(x))+"}:"+kind).Result()
	x.Must(err)
	return keys
}

// RenewAside has a service beside the replicas renew the lock of the item while the steps
// are done. It does not know whether the holder lives.
func RenewAside(kind string, ttl time.Duration, steps ...scenario.Step) scenario.Step {
	return func(x *scenario.Try) {
		client := redisOf(x)
		beside(x, func(during context.Context) {
			keys, err := client.Keys(during, fmt.Sprintf("*{goods%%2F%d}:%s", x.Item, kind)).Result()
			for _, key := range keys {
				err = errors.Join(err, client.PExpire(during, key, ttl).Err())
			}
			if during.Err() == nil {
				x.Must(err)
			}
			_ = pause.For(during, ttl/10) // what ends it ends the renewals
		}, steps...)
	}
}

// masters are those of the stage, or else those of the run.
func masters(x *scenario.Try) *servers.Redlock {
	if x.Masters != nil {
		return x.Masters
	}
	return x.Backends.Redlock
}

// At has the next rule of a member be laid down before this master, from 1.
func (c *Cast) At(who string, master int) scenario.Step {
	return func(*scenario.Try) { c.members[who].proxy = c.members[who].links[master-1] }
}

// Arm lays a rule down before each of these masters, from 1, of which no step waits.
func (c *Cast) Arm(who string, rule servers.Rule, masters ...int) scenario.Step {
	return func(x *scenario.Try) {
		for _, master := range masters {
			c.members[who].links[master-1].Arm(rule)
		}
		x.Mark(who, fmt.Sprintf("before masters %v: %s of %s", masters, rule.Do, visible(rule.Sent)))
	}
}

// CutOff keeps a member from masters, from 1.
func (c *Cast) CutOff(who string, masters ...int) scenario.Step {
	return func(x *scenario.Try) {
		for _, master := range masters {
			c.members[who].links[master-1].Cut()
		}
		x.Mark(who, fmt.Sprintf("masters %v are out of its reach", masters))
	}
}

// KeysLeft is the figure of CountKeys.
const KeysLeft = "keys_left"

// CountKeys records how many masters have the key of the name.
func (c *Cast) CountKeys() scenario.Step {
	return func(x *scenario.Try) {
		left := 0
		for _, master := range masters(x).Nodes {
			client := master.Open()
			x.Later(client.Close)
			left += len(keysOf(x, client, c.Lock))
		}
		x.Figure(KeysLeft, float64(left))
	}
}
