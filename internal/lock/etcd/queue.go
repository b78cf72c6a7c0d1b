package etcd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lock"
)

// lineFor is what the keys of a name begin with. The name may contain slashes, and its keys
// must not look like those of another.
func lineFor(prefix, name string) string { return prefix + url.PathEscape(name) + "/" }

func lineOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

// queue is what a replica knows of all keys: those of each name in the order
// of their create revisions, as they were at one revision of the store. It is
// moved on by the watch, and by looks at the whole.
//
// It may lag behind the store, and grants no name too early for that. A key of
// ours that is seen as the first of its name was the first at the revision that
// is seen, which is not before our key was created. Those created before it
// were gone by then, and a key that is gone never comes back with an old create
// revision; those created later come after it. So the first stays the first for
// as long as it is there. For the same reason it does not matter whether a look
// or the watch is the quicker: what is older than what was seen is passed over.
//
// That our key is still there is not what is seen, but what the session stands
// for, and what the release finds out in the end.
type queue struct {
	// prefix begins every key. Then come the name and, after a slash, what no other key
	// of the name has: stockd/etcd/<name>/<lease>-<slot>.
	prefix string
	lease  clientv3.LeaseID // ours

	mu    sync.Mutex
	seen  int64 // the revision
	lines map[string][]position
	mine  map[string]*ticket // by key, until they are seen to be gone
	slots int                // given out so far
	free  []int              // those of them that may be given out again
	over  bool
}

// position is a key in line.
type position struct {
	key string
	rev int64 // when it was created
}

// ticket is a key of ours, whose Acquire waits for its turn, or has the name, or does not
// want it any more. It is guarded by the queue's mutex, but
// for what never changes.
type ticket struct {
	key     string
	slot    int
	settled context.Context //nolint:containedctx // it ends when it is its turn, or it is gone
	settle  context.CancelFunc

	rev     int64 // when it was created, 0 until the answer to the put tells it
	leaving bool  // its end will be no loss
	gone    bool
	lease   *lock.Held // nil until claimed
}

func newQueue(prefix string, lease clientv3.LeaseID) *queue {
	return &queue{prefix: prefix, lease: lease, lines: make(map[string][]position), mine: make(map[string]*ticket)}
}

// next is the revision after the one that is seen.
func (q *queue) next() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.seen + 1
}

// inUse reports whether there is anything of ours that could happen.
func (q *queue) inUse() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mine) > 0
}

// enter makes a ticket, before its key is put: whatever happens to the key is
// seen. It is nil where the session is over.
func (q *queue) enter(name string) *ticket {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return nil
	}
	t := &ticket{slot: q.takeSlot()}
	t.settled, t.settle = context.WithCancel(context.Background())
	t.key = fmt.Sprintf("%s%x-%d", lineFor(q.prefix, name), int64(q.lease), t.slot)
	q.mine[t.key] = t
	return t
}

// takeSlot gives out a number that no other key of ours has. Numbers are used
// again: until it is compacted, etcd's index keeps every key that ever was, and
// walks over all of them whenever the keys of a name are counted.
func (q *queue) takeSlot() int {
	if last := len(q.free) - 1; last >= 0 {
		slot := q.free[last]
		q.free = q.free[:last]
		return slot
	}
	q.slots++
	return q.slots
}

// placed tells when the key was created, and whether it was the only one of its
// name. At that revision no later key can be there: being alone is being first.
func (q *queue) placed(t *ticket, rev int64, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.rev = rev
	switch {
	case t.gone: // with the session, or seen to be gone
	case rev <= q.seen && !slices.Contains(q.lines[lineOf(t.key)], position{t.key, rev}):
		q.lose(t) // a look found it gone before we knew that it should be there
	case alone:
		t.settle()
	}
}

// claim makes the lease of a ticket whose turn it is. It is nil where the key is
// gone instead.
func (q *queue) claim(t *ticket, release func(context.Context, position) error) *lock.Held {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.gone {
		return nil
	}
	place := position{t.key, t.rev}
	token := uint64(t.rev) //nolint:gosec // revisions begin at 1
	t.lease = lock.NewHeld(token, func(ctx context.Context) error {
		q.leave(t)
		return release(ctx, place)
	})
	return t.lease
}

// leave tells that the key is about to be deleted by ourselves.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.leaving = true
}

// forget drops the ticket of a key that was never created, or that was deleted
// where it is unknown whether it had been.
func (q *queue) forget(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.mine, key)
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	for _, t := range q.mine {
		q.lose(t)
	}
}

// apply moves the queue on by what the watch tells. It returns those keys of
// our session that have no ticket: a put whose answer did not come, and that
// arrived after all, when its key had been deleted already.
func (q *queue) apply(events []*clientv3.Event) (strays []position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range events {
		key := string(e.Kv.Key)
		switch {
		case e.Kv.ModRevision <= q.seen: // a look was quicker
		case e.Type == clientv3.EventTypeDelete:
			q.remove(key)
		case e.IsCreate():
			line, place := lineOf(key), position{key, e.Kv.CreateRevision}
			q.lines[line] = append(q.lines[line], place)
			if q.isStray(e.Kv) {
				strays = append(strays, place)
			}
			q.call(line)
		}
	}
	if len(events) > 0 {
		q.seen = max(q.seen, events[len(events)-1].Kv.ModRevision)
	}
	return strays
}

// replace moves the queue on to what a look found at a revision, and reports
// whether that was news. It returns strays as apply does.
func (q *queue) replace(found []*mvccpb.KeyValue, rev int64) (news bool, strays []position) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if rev <= q.seen {
		return false, nil
	}
	slices.SortFunc(found, func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) })
	lines, there := make(map[string][]position), make(map[string]bool)
	for _, kv := range found {
		place := position{string(kv.Key), kv.CreateRevision}
		lines[lineOf(place.key)] = append(lines[lineOf(place.key)], place)
		there[place.key] = true
		if q.isStray(kv) {
			strays = append(strays, place)
		}
	}
	news = !maps.EqualFunc(q.lines, lines, slices.Equal)
	q.lines, q.seen = lines, rev
	for key, t := range q.mine {
		if !there[key] && t.rev != 0 && t.rev <= rev {
			q.lose(t)
		}
	}
	for line := range lines {
		q.call(line)
	}
	return news, strays
}

func (q *queue) isStray(kv *mvccpb.KeyValue) bool {
	return clientv3.LeaseID(kv.Lease) == q.lease && q.mine[string(kv.Key)] == nil
}

// remove takes a key out of its line, which is mostly the first.
func (q *queue) remove(key string) {
	if t := q.mine[key]; t != nil {
		q.lose(t)
	}
	line := lineOf(key)
	places := q.lines[line]
	i := slices.IndexFunc(places, func(p position) bool { return p.key == key })
	switch {
	case i < 0:
		return
	case len(places) == 1:
		delete(q.lines, line)
		return
	}
	q.lines[line] = slices.Delete(places, i, i+1)
	q.call(line)
}

// call tells the first in line that it is its turn, where it is one of ours.
func (q *queue) call(line string) {
	if t := q.mine[q.lines[line][0].key]; t != nil {
		t.settle()
	}
}

// lose ends a ticket whose key is gone, and the lease that hangs on it.
//
// Its slot is free then, but not where the put was never answered:
// whatever is still under way because of it must not meet another key. What is
// under way otherwise deletes the key of one create revision.
func (q *queue) lose(t *ticket) {
	delete(q.mine, t.key)
	if t.rev != 0 {
		q.free = append(q.free, t.slot)
	}
	if t.leaving {
		return
	}
	t.gone = true
	t.settle()
	if t.lease != nil {
		t.lease.Lose()
	}
}
