package experiments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// contender acquires locks as one replica does, on its own connections and without a stock. Its leases are recorded.
type contender struct {
	*Try

	name string
	// ttl is that of its locks, retry their pause between two tries.
	ttl, retry time.Duration
	// timeout is for how long a Redis or a ZooKeeper may be silent.
	timeout time.Duration
	// now is the clock of locks that write times; nil: time.Now.
	now func() time.Time

	clients *backend.Clients
	record  *failpoint.Registry
	lockers map[string]lock.Locker
	closers []func() error
}

// contend makes a contender with connections to what a lock needs. It ends with the try.
func (x *Try) contend(name string, needs ...Need) *contender {
	record := flow.Get(failpoint.Open(failpoint.Options{Replica: name, Writer: x.History}))(x.Flow)
	c := &contender{
		Try: x, name: name, ttl: 2 * time.Second, retry: 10 * time.Millisecond, timeout: time.Second,
		clients: &backend.Clients{}, record: record, lockers: make(map[string]lock.Locker),
	}
	x.Later(c.close)
	for _, need := range needs {
		c.connect(x.Backends.Conn(string(need)), c.ttl)
	}
	return c
}

// connect has the contender go to servers. Its session in a ZooKeeper lasts for so long when it is silent.
func (c *contender) connect(to servers.Conn, session time.Duration) {
	c.clients = flow.Get(to.AsAdmin().Connect(servers.Limits{Session: session, Timeout: c.timeout, Pool: 8}))(c.Flow)
}

// connectByProxies is connect through proxies that hold up or lose what the contender sends. There are none to a database.
func (c *contender) connectByProxies(need Need) (links []*servers.Proxy) {
	to := c.Backends.Conn(string(need))
	if need != MySQL {
		to, links = c.Through(to)
	}
	c.connect(to, c.ttl)
	return links
}

// locker is a lock of the registry, or one of the sources.
func (c *contender) locker(kind string) lock.Locker {
	if c.lockers[kind] != nil {
		return c.lockers[kind]
	}
	all := append(registry.Locks(), sourcelock.Registry()...)
	at := slices.IndexFunc(all, func(e lock.Entry) bool { return e.Name == kind })
	if at < 0 {
		c.Must(fmt.Errorf("%q is not a lock", kind))
	}
	c.lockers[kind] = c.recorded(kind, all[at].New(lock.Deps{Clients: c.clients, TTL: c.ttl, Retry: c.retry, Now: c.now}))
	return c.lockers[kind]
}

// unrecorded is a lock whose leases are not written down.
func (c *contender) unrecorded(kind string) lock.Locker {
	if recorded, ok := c.locker(kind).(interface{ Unwrap() lock.Locker }); ok {
		return recorded.Unwrap()
	}
	return c.locker(kind)
}

// warm has a lock of the registry taken once under a name of its own, so that no measurement includes the cost of
// connecting. It is not recorded.
func (c *contender) warm(kind string) {
	locker, name := c.unrecorded(kind), "lab/warm/"+c.name
	lease, err := takeWithin(c, locker, name, patience)
	if errors.Is(err, backend.ErrUnanswered) { // many connect at once
		lease, err = takeWithin(c, locker, name, patience)
	}
	if err != nil {
		err = fmt.Errorf("warm up %s: %w", c.name, err)
	} else {
		err = lease.Release(c)
	}
	c.Must(err)
}

// recorded has the leases of any lock written down as this contender's, and closes it with the try where it is an
// io.Closer.
func (c *contender) recorded(kind string, locker lock.Locker) lock.Locker {
	if closer, ok := locker.(io.Closer); ok {
		c.closers = append(c.closers, closer.Close)
	}
	return c.record.Record(kind, locker)
}

func (c *contender) close() error {
	var err error
	for _, do := range append(c.closers, c.clients.Close, c.record.Close) {
		err = errors.Join(err, do())
	}
	return err
}

func takeWithin(ctx context.Context, l lock.Locker, name string, within time.Duration) (lock.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return l.Acquire(ctx, name)
}

// take takes a lock that is granted in time.
func (x *Try) take(l lock.Locker, name string) lock.Lease {
	return flow.Get(takeWithin(x, l, name, patience))(x.Flow)
}

// release gives a lock back, also after the end of the try.
func (x *Try) release(lease lock.Lease) { x.Must(lease.Release(context.WithoutCancel(x))) }

// holdFor takes a lock, has it for some time and gives it back. Not to be granted it in time is no error: it is in
// the history.
func (x *Try) holdFor(each time.Duration, l lock.Locker, name string, within time.Duration) {
	lease, err := takeWithin(x, l, name, within)
	if errors.Is(err, lock.ErrNotAcquired) && x.Err() == nil {
		return
	}
	x.Must(err)
	defer lease.Release(context.WithoutCancel(x)) //nolint:errcheck // that is in the history
	x.sleep(each)
}

// takeTwice has one owner take a lock, and take it again while it has it, for no longer than two seconds; then it
// gives back what it got.
func (x *Try) takeTwice(kind string, need Need) {
	locker, ctx := x.contend("owner", need).locker(kind), lock.WithOwner(x, "one and the same")
	for range 2 {
		lease, err := takeWithin(ctx, locker, x.lockName(), 2*time.Second)
		if errors.Is(err, lock.ErrNotAcquired) && x.Err() == nil {
			return // that is in the history
		}
		x.Must(err)
		defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // that is in the history, too
	}
}

// crowd makes contenders, and returns their locks when all are connected. shared: they are requests to one replica,
// on its connections.
func (x *Try) crowd(size int, kind string, need Need, shared bool) []lock.Locker {
	lockers := make([]lock.Locker, size)
	x.Each(size, func(i int) {
		if shared && i > 0 {
			return
		}
		one := x.contend(fmt.Sprintf("contender-%d", i+1), need)
		lockers[i] = one.locker(kind)
		one.warm(kind)
	})
	for i := range lockers {
		if lockers[i] == nil {
			lockers[i] = lockers[0]
		}
	}
	return lockers
}

// keysOf are the keys of the name in a Redis, of one kind of lock or, with *, of all.
func (x *Try) keysOf(client *redis.Client, kind string) []string {
	return flow.Get(client.Keys(x, "*{"+url.PathEscape(x.lockName())+"}:"+kind).Result())(x.Flow)
}

// clockStart is where the clock of actors begins: 50 ms before a full second.
const clockStart = 1_800_000_000*time.Second - 50*time.Millisecond

// turn moves the clock of all actors, which stands still otherwise.
func (x *Try) turn(by time.Duration) {
	x.clock.Add(int64(by))
	x.Mark("", "the clock of the clients moves by "+by.String())
}

// heldUp outlasts what is held up at a proxy.
const heldUp = 10 * time.Second
