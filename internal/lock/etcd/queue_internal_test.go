package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/should"
)

// testPrefix is the default.
const testPrefix = "stockd/etcd/"

// etcdModel is a store, with one queue that sees it late and in jumps.
type etcdModel struct {
	t      *testing.T
	random *rand.Rand
	queue  *queue

	rev     int64
	history []*clientv3.Event // one a revision
	states  [][]*mvccpb.KeyValue
	tickets []*modelTicket
	others  int
}

// modelTicket is one of ours; its put has been answered or not.
type modelTicket struct {
	*ticket

	created  int64
	alone    bool
	answered bool
}

func newEtcdModel(t *testing.T, seed uint64) *etcdModel {
	t.Helper()
	return &etcdModel{
		t: t, random: rand.New(rand.NewPCG(seed, seed)), queue: newQueue(testPrefix, 1),
		states: [][]*mvccpb.KeyValue{nil},
	}
}

func (m *etcdModel) live() []*mvccpb.KeyValue { return m.states[m.rev] }

// line is the keys in line, the oldest first.
func (m *etcdModel) line(key string) (line []*mvccpb.KeyValue) {
	for _, kv := range m.live() {
		if lineOf(string(kv.Key)) == lineOf(key) {
			line = append(line, kv)
		}
	}
	return line
}

func (m *etcdModel) put(key string, lease int64) {
	m.rev++
	kv := &mvccpb.KeyValue{Key: []byte(key), Lease: lease, CreateRevision: m.rev, ModRevision: m.rev, Version: 1}
	m.history = append(m.history, &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv})
	m.states = append(m.states, append(slices.Clone(m.states[m.rev-1]), kv))
}

func (m *etcdModel) delete(key string) {
	m.rev++
	m.history = append(m.history, &clientv3.Event{
		Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: m.rev},
	})
	m.states = append(m.states, slices.DeleteFunc(slices.Clone(m.states[m.rev-1]), func(kv *mvccpb.KeyValue) bool {
		return string(kv.Key) == key
	}))
}

// step does one thing at random.
func (m *etcdModel) step() {
	name := fmt.Sprint("name", m.random.IntN(2))
	switch m.random.IntN(8) {
	case 0: // another replica comes
		m.others++
		m.put(fmt.Sprintf("%s%s/2-%d", testPrefix, name, m.others), 2)
	case 1: // one of ours does; that it has been put need not be known yet
		one := &modelTicket{ticket: m.queue.enter(name)}
		m.put(one.key, 1)
		// The only waiter may be counted with a key that is not ours.
		one.created, one.alone = m.rev, len(m.line(one.key)) == 1 && m.random.IntN(4) > 0
		m.tickets = append(m.tickets, one)
	case 2:
		m.answer()
	case 3, 4: // one goes, the first as well as any other
		if live := m.live(); len(live) > 0 {
			m.delete(string(live[m.random.IntN(len(live))].Key))
		}
	case 5, 6: // the watch tells something
		m.tell(m.rev)
	case 7: // a look finds what was there at a time, maybe a while ago
		at := m.random.Int64N(m.rev + 1)
		m.look(max(at, m.rev-3))
	}
}

// answer has one of ours get the answer to its put.
func (m *etcdModel) answer() {
	for _, i := range m.random.Perm(len(m.tickets)) {
		if one := m.tickets[i]; !one.answered {
			one.answered = true
			m.queue.placed(one.ticket, one.created, one.alone)
			return
		}
	}
}

func (m *etcdModel) tell(upTo int64) {
	from := m.queue.seen
	to := from + m.random.Int64N(upTo-from+1)
	if from >= 2 {
		from -= m.random.Int64N(2) // what a look has found before is reported all the same
	}
	m.noStrays(m.queue.apply(m.history[from:to]))
}

func (m *etcdModel) look(at int64) {
	found := slices.Clone(m.states[at])
	m.random.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	_, strays := m.queue.replace(found, at)
	m.noStrays(strays)
}

func (m *etcdModel) noStrays(strays []position) {
	if len(strays) > 0 {
		m.t.Errorf("%v are taken for strays", strays)
	}
}

// check finds a ticket that was granted a name that is another's.
func (m *etcdModel) check() {
	for _, one := range m.tickets {
		select {
		case <-one.settled.Done():
		default:
			continue
		}
		line := m.line(one.key)
		stands := slices.ContainsFunc(line, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == one.created })
		if stands && (one.gone || line[0].CreateRevision != one.created) {
			m.t.Errorf("at %d of %d, %s of %d is settled (gone: %v), and the line is %v",
				m.queue.seen, m.rev, one.key, one.created, one.gone, line)
		}
	}
}

// finish lets the queue see everything: then the first ticket knows it, and so does each
// that is gone.
func (m *etcdModel) finish() {
	for range m.tickets {
		m.answer()
	}
	if m.random.IntN(2) == 0 {
		m.look(m.rev)
	} else {
		m.noStrays(m.queue.apply(m.history[m.queue.seen:]))
	}
	left := 0
	for _, one := range m.tickets {
		line := m.line(one.key)
		stands := slices.ContainsFunc(line, func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == one.created })
		settled := false
		select {
		case <-one.settled.Done():
			settled = true
		default:
		}
		switch {
		case stands && settled != (line[0].CreateRevision == one.created):
			m.t.Errorf("%s of %d is settled: %v, and the line is %v", one.key, one.created, settled, line)
		case !stands && !one.gone:
			m.t.Errorf("%s of %d does not know that it is gone", one.key, one.created)
		}
		if stands {
			left++
		}
	}
	if len(m.queue.mine) != left {
		m.t.Errorf("%d tickets are kept for %d keys", len(m.queue.mine), left)
	}
}

// A queue that lags behind grants no name too early, forgets no ticket, and loses none that
// is there: whatever comes in whatever order.
func TestEtcdQueueGrantsNothingTooEarly(t *testing.T) {
	const runs, steps = 1000, 60
	for seed := range uint64(runs) {
		m := newEtcdModel(t, seed)
		for range steps {
			m.step()
			m.check()
		}
		m.finish()
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

// FuzzEtcdKeys has others put anything below the prefix, and delete what they like,
// before our own key is there and after: the watch and a look tell the same of it,
// and it is our turn when all that was there before is gone.
func FuzzEtcdKeys(f *testing.F) {
	f.Add("a/2-1\na/3-1", "a/0-1")
	f.Add("a/2-1\na/3-1", "a/2-1\na/3-1\na/4-1")
	f.Add("\n/\na\na/\n//\n\xff", "\n/\na/b/2-1")
	f.Add("a%2Fb/2-1\na/b/2-1\na/2-1", "a/1-1")
	f.Fuzz(func(t *testing.T, before, after string) {
		m := newEtcdModel(t, 0)
		m.toggle(before)
		one := m.queue.enter("a")
		if m.isThere(one.key) {
			return // the put finds that out
		}
		m.put(one.key, 1)
		m.queue.placed(one, m.rev, len(m.line(one.key)) == 1)
		m.tickets = append(m.tickets, &modelTicket{ticket: one, created: m.rev, answered: true})
		m.toggle(after)
		m.check()
		m.queue.apply(m.history)
		m.check()
		m.finish()
		looked := newQueue(testPrefix, 3) // of another replica
		if looked.replace(m.live(), m.rev); !maps.EqualFunc(m.queue.lines, looked.lines, slices.Equal) {
			t.Errorf("the watch tells of %v, a look of %v", m.queue.lines, looked.lines)
		}
	})
}

// toggle has others put each of the keys that is not there, and delete each that is.
func (m *etcdModel) toggle(keys string) {
	const most = 30
	for _, key := range strings.SplitN(keys, "\n", most) {
		if key = testPrefix + key; m.isThere(key) {
			m.delete(key)
		} else {
			m.put(key, 2)
		}
	}
}

func (m *etcdModel) isThere(key string) bool {
	return slices.ContainsFunc(m.live(), func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == key })
}

func TestEtcdQueueTellsStrays(t *testing.T) {
	m := newEtcdModel(t, 0)
	m.put(testPrefix+"a/2-1", 2)
	m.put(testPrefix+"a/1-1", 1)
	want := []position{{testPrefix + "a/1-1", 2}}
	should.Equal(t, m.queue.apply(m.history), want, "the watch tells of")
	m.put(testPrefix+"b/2-1", 2)
	_, strays := m.queue.replace(m.live(), m.rev)
	should.Equal(t, strays, want, "a look tells of")
}

// Whatever is still under way because of a put that was not answered must not
// meet another key of the same name.
func TestEtcdQueueUsesNoKeyAgainThatIsInDoubt(t *testing.T) {
	m := newEtcdModel(t, 0)
	doubtful := m.queue.enter("a")
	m.queue.leave(doubtful)
	m.put(doubtful.key, 1)
	m.delete(doubtful.key)
	m.queue.apply(m.history)
	known := m.queue.enter("a")
	if known.key == doubtful.key {
		t.Errorf("%s is used again", known.key)
	}
	m.put(known.key, 1)
	m.queue.placed(known, m.rev, true)
	m.delete(known.key)
	if early := m.queue.enter("a"); early.key == known.key {
		t.Errorf("%s is used again before it is seen to be gone", known.key)
	}
	m.queue.apply(m.history)
	should.Be(t, m.queue.enter("a").key, known.key, "the key that is used again")
}

func TestEtcdQueueLosesWhatIsHeld(t *testing.T) {
	for what, happens := range map[string]func(m *etcdModel, key string){
		"deleted":               func(m *etcdModel, key string) { m.delete(key); m.queue.apply(m.history) },
		"deleted, a look later": func(m *etcdModel, key string) { m.delete(key); m.look(m.rev) },
		"session over":          func(m *etcdModel, _ string) { m.queue.close() },
	} {
		m := newEtcdModel(t, 0)
		one := m.queue.enter("a")
		m.put(one.key, 1)
		m.queue.placed(one, m.rev, true)
		<-one.settled.Done() // the only waiter needs no watch
		lease := m.queue.claim(one, func(context.Context, position) error { return nil })
		happens(m, one.key)
		should.Fail(t, context.Cause(lease.Context()), lock.ErrLost, what, "the lease ended with")
	}
}

// A question is answered, or fails, within the patience with etcd; it goes on for a little after
// its request, and says what ended it.
func TestEtcdQuestionsAreBounded(t *testing.T) {
	const little = 250 * time.Millisecond
	failed := errors.New("failed")
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			ends     time.Duration // of the request; 0: never
			canceled bool
			answered time.Duration
			answer   error
			took     time.Duration
			want     error
		}{
			"answered":              {0, false, patience - 1, nil, patience - 1, nil},
			"failed":                {0, false, time.Second, failed, time.Second, failed},
			"silent":                {0, false, time.Hour, nil, patience, backend.ErrUnanswered},
			"answered after it":     {time.Second, false, time.Second + little - 1, nil, time.Second + little - 1, nil},
			"failed after it":       {time.Second, false, time.Second + little - 1, failed, time.Second + little - 1, failed},
			"silent at its end":     {time.Second, false, time.Hour, nil, time.Second + little, backend.ErrUnanswered},
			"silent when cancelled": {time.Second, true, time.Hour, nil, time.Second + little, context.Canceled},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			if c.ends > 0 && !c.canceled {
				ctx, cancel = context.WithTimeout(t.Context(), c.ends)
			} else if c.canceled {
				time.AfterFunc(c.ends, cancel)
			}
			start := time.Now()
			err := bounded(ctx, func(ctx context.Context) error {
				select {
				case <-time.After(c.answered):
					return c.answer
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			if took := time.Since(start); took != c.took || !errors.Is(err, c.want) || c.want == nil && err != nil || errors.Is(c.want, backend.ErrUnanswered) && errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: ended after %s with %v, want %v after %s", name, took, err, c.want, c.took)
			}
			cancel()
		}
	})
}

// A session is over by our own clock when its TTL has passed since the last renewal was asked for.
func TestEtcdASessionExpiresByOurClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(nil, testPrefix, time.Second)
		s.asked = time.Now()
		for after, want := range map[time.Duration]bool{0: false, time.Second - 1: false, time.Second: true} {
			s.asked = time.Now().Add(-after)
			should.Be(t, s.expired(), want, "after the renewal the session has expired", after)
		}
	})
}
