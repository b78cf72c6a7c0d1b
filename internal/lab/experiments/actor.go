package experiments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
)

// actor is one of several contenders for one name, which do one thing after the other, so that their requests come
// to the server in that order.
type actor struct {
	*contender

	need   Need
	locker lock.Locker
	// ahead is by how much its clock is ahead of that of the others; owner is the owner it asks for, where it is not empty.
	ahead time.Duration
	owner string

	links    []*servers.Proxy // to its servers; none to a database
	proxy    *servers.Proxy   // where rules are laid down: the first of them
	rule     *servers.Trigger
	answered chan struct{} // closed when its Acquire has returned
	leave    context.CancelFunc
	lease    lock.Lease // these two then
	failed   error
	dead     bool
}

// enter connects an actor. ttl is that of the lock, or of the session in ZooKeeper.
func (x *Try) enter(name, kind string, need Need, ttl time.Duration) *actor {
	a := &actor{contender: x.contend(name), need: need}
	a.ttl, a.timeout = ttl, heldUp
	a.now = func() time.Time { return time.Unix(0, x.clock.Load()).Add(a.ahead) }
	if a.links = a.connectByProxies(need); len(a.links) > 0 {
		a.proxy = a.links[0]
	}
	a.locker = a.contender.locker(kind)
	return a
}

// firstAndSecond are two actors who contend for the same kind of lock.
func (x *Try) firstAndSecond(kind string, need Need, ttl time.Duration) (first, second *actor) {
	return x.enter("first", kind, need, ttl), x.enter("second", kind, need, ttl)
}

// ask has it ask for the name for no longer than within, and goes on when it has been answered.
func (a *actor) ask(within time.Duration) {
	a.begin(within)
	a.awaitAnswer(patience)
}

// askAndGoOn has it ask for the name, and goes on after a time, also where it has not been answered by then.
func (a *actor) askAndGoOn(after time.Duration) {
	a.begin(patience)
	a.awaitAnswer(after)
}

// acquire has it ask for a name that is free.
func (a *actor) acquire() { a.ask(patience) }

// askHeldUp has it ask for the name, and goes on when one of its requests, or the reply to it, is held up at the proxy.
func (a *actor) askHeldUp(rule servers.Rule) {
	a.rule = a.proxy.Arm(rule)
	a.begin(patience)
	a.metRule()
}

// queue has it ask for the name in ZooKeeper or etcd, and goes on when it watches the node or the key of the one that
// asked before.
func (a *actor) queue() {
	latest := a.latestNode
	if a.need == Etcd {
		latest = a.latestKey
	}
	a.askHeldUp(servers.Rule{Sent: latest(), Do: servers.HoldReply, For: time.Millisecond})
}

// metRule waits until it has met its rule, or has been answered without it.
func (a *actor) metRule() {
	select {
	case <-a.rule.Reached():
		a.mark(fmt.Sprintf("%s: %s", a.rule.Do, visible(a.rule.Sent)))
	case <-a.answered:
		a.Must(a.failure())
	case <-time.After(reachedWithin):
		a.Must(fmt.Errorf("%s did not send %q within %s", a.name, a.rule.Sent, reachedWithin))
	case <-a.Done():
		a.Must(context.Cause(a))
	}
}

func (a *actor) mark(what string) { a.Mark(a.name, what) }

// failure is why it was not answered at all. That it was not granted the name is in the history.
func (a *actor) failure() error {
	if a.dead || errors.Is(a.failed, lock.ErrNotAcquired) {
		return nil
	}
	return a.failed
}

func (a *actor) begin(within time.Duration) {
	answered, ctx := make(chan struct{}), context.Context(a.Try)
	a.answered = answered
	if a.owner != "" {
		ctx = lock.WithOwner(ctx, a.owner)
	}
	ctx, a.leave = context.WithTimeout(ctx, within)
	go func() {
		defer close(answered)
		a.lease, a.failed = a.locker.Acquire(ctx, a.lockName())
	}()
	a.Later(func() error { a.leave(); <-answered; return nil })
}

// goOn lets go what is held up of it.
func (a *actor) goOn() { a.pass(a.name, a.rule) }

// goOnUntil is goOn that waits for its next request with these bytes, or for its answer: it has read the reply by then.
func (a *actor) goOnUntil(sent string) {
	held := a.rule
	a.rule = a.proxy.Arm(servers.Rule{Sent: sent, Do: servers.Hold, For: time.Millisecond})
	a.pass(a.name, held)
	a.metRule()
}

// awaitAnswer waits until it has the name or has given up, or for atMost.
func (a *actor) awaitAnswer(atMost time.Duration) {
	select {
	case <-a.answered:
		a.Must(a.failure())
	case <-time.After(atMost):
	case <-a.Done():
		a.Must(context.Cause(a))
	}
}

// giveBack has it give the name back, where it has it.
func (a *actor) giveBack() {
	select {
	case <-a.answered:
	default:
		return
	}
	if a.lease == nil {
		return
	}
	// That it was lost is in the history, and some masters may be out of reach.
	if err := a.lease.Release(a); !errors.Is(err, lock.ErrLost) && a.need != Redlock {
		a.Must(err)
	}
}

// givenBack has two be done, in this order, a moment later.
func (x *Try) givenBack(one, other *actor) {
	x.sleep(50 * time.Millisecond)
	one.giveBack()
	other.awaitAnswer(patience)
	other.giveBack()
}

// giveUp has it wait no longer.
func (a *actor) giveUp() {
	a.leave()
	a.awaitAnswer(patience)
}

// die ends it like a process that is killed: it sends nothing any more.
func (a *actor) die() {
	a.dead = true
	for _, link := range a.links {
		link.Cut()
	}
	a.mark(checker.Killed + ": its connections end, and it sends nothing any more")
}

// armAt lays a rule down before each of these masters, from 1, of which nothing waits.
func (a *actor) armAt(rule servers.Rule, masters ...int) {
	for _, master := range masters {
		a.links[master-1].Arm(rule)
	}
	a.mark(fmt.Sprintf("before masters %v: %s of %s", masters, rule.Do, visible(rule.Sent)))
}

// cutOff keeps it from masters, from 1.
func (a *actor) cutOff(masters ...int) {
	for _, master := range masters {
		a.links[master-1].Cut()
	}
	a.mark(fmt.Sprintf("masters %v are out of its reach", masters))
}

// latestKey is the key that was created last in etcd.
func (x *Try) latestKey() string {
	ctx, cancel := context.WithTimeout(x, answerWithin)
	defer cancel()
	client := flow.Get(x.Backends.Etcd.Open())(x.Flow)
	defer client.Close() //nolint:errcheck // nothing is lost with it
	found, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if err == nil && len(found.Kvs) == 0 {
		err = errors.New("look for the latest key in etcd: there is none")
	}
	x.Must(err)
	return string(found.Kvs[0].Key)
}

// latestNode asks ZooKeeper for the ephemeral nodes that have to do with the item of the try, and returns the last
// part of the path of the latest.
func (x *Try) latestNode() string {
	said := x.askZooKeeper("dump")
	found := regexp.MustCompile(fmt.Sprintf(`/\S*lab\S*\D%d/(\S+)`, x.Item)).FindAllStringSubmatch(said, -1)
	if found == nil {
		x.Must(fmt.Errorf("the server knows no node of the lock:\n%s", strings.TrimSpace(said)))
	}
	const digits = 10 // by which ZooKeeper counts, at the end of a name
	number := func(node string) string { return node[max(0, len(node)-digits):] }
	return slices.MaxFunc(found, func(a, b []string) int { return cmp.Compare(number(a[1]), number(b[1])) })[1]
}
