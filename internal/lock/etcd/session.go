package etcd

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

const (
	// lookEvery is how long the watch may be silent, while keys of ours are
	// there, before the queue is read anew: the bounded fallback.
	lookEvery = time.Second
	// revokeWithin bounds the revocation of the lease: a replica that stops waits for it.
	revokeWithin = 500 * time.Millisecond
	// rewatchAfter is the pause before a watch that ended begins again.
	rewatchAfter = 50 * time.Millisecond
)

var errStalled = errors.New("the watch did not tell what a look found")

// session is a lease of etcd that the keys of a replica hang on, and the
// queue as it is seen from here. It has one goroutine; its lease is renewed by
// a watchdog, which has none.
type session struct {
	client *clientv3.Client
	prefix string // of every key
	ttl    time.Duration
	// life is our hold on the session: lost when the lease of etcd is over, or
	// may be.
	life *lock.Held

	// What follows is written before ready is closed: the session is open then,
	// or has failed to be.
	ready   chan struct{}
	opening sync.Once
	err     error
	id      clientv3.LeaseID
	queue   *queue

	silent atomic.Bool // the last request was not answered

	sweep chan struct{} // holds one element when there is new litter

	mu     sync.Mutex
	asked  time.Time  // when the lease was prolonged the last time, or begun
	litter []position // keys that no waiter or holder has, to be deleted
}

func newSession(client *clientv3.Client, prefix string, ttl time.Duration) *session {
	return &session{
		client: client, prefix: prefix, ttl: ttl, life: lock.NewHeld(0, nil),
		ready: make(chan struct{}), sweep: make(chan struct{}, 1),
	}
}

func (s *session) over() bool { return s.life.Context().Err() != nil }

// run opens the session and attends to its queue until it is over.
func (s *session) run() {
	err := s.grant()
	for err == nil {
		err = s.attend()
		if s.isOpen() && pause.About(s.life.Context(), rewatchAfter) == nil {
			err = nil // an open session ends with its lease, not with a watch
		}
	}
	s.end(err)
}

func (s *session) grant() error {
	seconds := int64((s.ttl + time.Second - 1) / time.Second)
	s.asked = time.Now()
	err := bounded(s.life.Context(), func(ctx context.Context) error {
		granted, err := s.client.Grant(ctx, seconds)
		if err == nil {
			s.id = granted.ID
		}
		return err
	})
	if err != nil {
		return err
	}
	s.queue = newQueue(s.prefix, s.id)
	context.AfterFunc(s.life.Context(), s.queue.close)
	lock.Watch(s.life, s.asked, s.ttl, s.renew)
	return nil
}

// renew prolongs the lease. One try takes a part of the TTL only: the next one
// may reach another member.
func (s *session) renew(ctx context.Context) (still bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := time.Now()
	_, err = s.client.KeepAliveOnce(ctx, s.id)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = asked
	return true, nil
}

// expired reports whether the lease has run out by our clock. The watchdog ends
// the session then; but where the whole process was paused, the watch may go
// on first, and report a turn that has come and gone.
func (s *session) expired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.asked) >= s.ttl
}

// end notifies all waiters and holders that the session is over, or could not be opened,
// and has etcd delete its keys, which otherwise end with the TTL.
func (s *session) end(err error) {
	if s.over() {
		err = errAgain
	}
	s.life.Lose()
	s.open(err)
	if s.queue == nil {
		return
	}
	s.queue.close()
	ctx, cancel := context.WithTimeout(context.Background(), revokeWithin)
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.id)
}

func (s *session) open(err error) {
	s.opening.Do(func() {
		s.err = err
		close(s.ready)
	})
}

func (s *session) isOpen() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// attend reads the queue and follows it with a watch, from the revision that
// was read, until the watch ends or fails to tell something.
//
// The watch begins at a revision that is the next one, so that the server takes
// it for up to date and tells of each change as it happens. One that begins
// where something has happened since is served from a loop of 100 ms, and that
// is what a watch for each waiter would be.
func (s *session) attend() error {
	if _, err := s.look(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.life.Context()))
	defer cancel()
	late := time.AfterFunc(patience, cancel)
	events := s.client.Watch(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithRev(s.queue.next()))
	if !late.Stop() {
		return backend.ErrUnanswered
	}
	s.open(nil)
	return s.listen(events)
}

// look reads the queue as it is, and reports whether that was news.
func (s *session) look() (news bool, err error) {
	err = s.ask(s.life.Context(), func(ctx context.Context) error {
		found, err := s.client.Get(ctx, s.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil {
			var strays []position
			news, strays = s.queue.replace(found.Kvs, found.Header.Revision)
			s.discard(strays...)
		}
		return err
	})
	return news, err
}

// listen follows the watch. Where it is silent for long, a look finds out
// whether that is because nothing happened.
func (s *session) listen(events clientv3.WatchChan) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	active := true
	for {
		select {
		case changes, more := <-events:
			if err := changes.Err(); err != nil {
				return err
			}
			if !more {
				return backend.ErrUnanswered
			}
			active = true
			s.silent.Store(false)
			s.discard(s.queue.apply(changes.Events)...)
		case <-s.sweep:
			s.clean()
		case <-tick.C:
			if !active && s.queue.inUse() {
				if news, err := s.look(); news || err != nil {
					return cmp.Or(err, errStalled)
				}
			}
			s.clean() // what could not be deleted before
			active = false
		}
	}
}

// ask asks one question and remembers whether it was answered.
func (s *session) ask(ctx context.Context, do func(context.Context) error) error {
	err := bounded(ctx, do)
	switch {
	case err == nil:
		s.silent.Store(false)
	case errors.Is(err, backend.ErrUnanswered):
		s.silent.Store(true)
	}
	return err
}

// acquire puts a key of our own into the queue of a name and waits until it is
// the first.
func (s *session) acquire(ctx context.Context, name string) (*lock.Held, error) {
	t := s.queue.enter(name)
	if t == nil {
		return nil, errAgain
	}
	if err := s.put(ctx, t); err != nil {
		return nil, err
	}
	lock.Tell(ctx, lock.Note{At: time.Now(), What: lock.Placed, Key: t.key})
	waits := t.settled.Err() == nil
	select {
	case <-t.settled.Done():
		if waits {
			lock.Tell(ctx, lock.Note{At: time.Now(), What: lock.Woken, By: lock.ByWatch})
		}
	case <-ctx.Done():
		s.withdraw(ctx, t)
		if s.silent.Load() && !errors.Is(ctx.Err(), context.Canceled) {
			return nil, backend.ErrUnanswered
		}
		return nil, ctx.Err()
	}
	if s.expired() {
		s.life.Lose()
		return nil, errAgain
	}
	lease := s.queue.claim(t, s.release)
	if lease == nil {
		return nil, errAgain
	}
	return lease, nil
}

// put creates the key, and counts in the same transaction the keys in line
// with it: where it is alone, it is our turn.
func (s *session) put(ctx context.Context, t *ticket) error {
	var placed *clientv3.TxnResponse
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		placed, err = s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(t.key), "=", 0)).
			Then(clientv3.OpPut(t.key, "", clientv3.WithLease(s.id)),
				clientv3.OpGet(lineOf(t.key), clientv3.WithPrefix(), clientv3.WithCountOnly())).
			Commit()
		return err
	})
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.queue.forget(t.key)
		s.life.Lose()
		return errAgain
	case err != nil:
		s.queue.leave(t)
		s.discard(position{key: t.key}) // it may be there, or still be coming
		return err
	case !placed.Succeeded: // sent twice, by whatever is between us
		s.queue.leave(t)
		s.discard(position{key: t.key})
		return errAgain
	}
	s.queue.placed(t, placed.Header.Revision, placed.Responses[1].GetResponseRange().Count == 1)
	return nil
}

// withdraw deletes a key that is not waited for any more.
func (s *session) withdraw(ctx context.Context, t *ticket) {
	s.queue.leave(t)
	place := position{t.key, t.rev}
	if s.silent.Load() {
		s.discard(place) // the caller need not wait for that
		return
	}
	lock.TakeBack(ctx, func(ctx context.Context) error {
		_, err := s.delete(ctx, place)
		if err != nil {
			s.discard(place)
		}
		return err
	})
}

// release deletes the key of a holder. It is not cut off with ctx: a cancelled
// request still has to let go.
func (s *session) release(ctx context.Context, place position) error {
	ours, err := s.delete(context.WithoutCancel(ctx), place)
	if err != nil {
		s.discard(place)
	}
	return lock.Released(server, ours, err)
}

// delete deletes a key of ours, and reports whether it was there. Where we know
// when it was created, nothing but that is deleted.
func (s *session) delete(ctx context.Context, place position) (was bool, err error) {
	is := clientv3.Compare(clientv3.CreateRevision(place.key), "=", place.rev)
	if place.rev == 0 {
		is = clientv3.Compare(clientv3.CreateRevision(place.key), ">", 0)
	}
	err = s.ask(ctx, func(ctx context.Context) error {
		deleted, err := s.client.Txn(ctx).If(is).Then(clientv3.OpDelete(place.key)).Commit()
		was = err == nil && deleted.Succeeded
		return err
	})
	if err == nil && place.rev == 0 {
		s.queue.forget(place.key)
	}
	return was, err
}

// discard has keys deleted by the session's goroutine. The lease would keep them for as
// long as the replica lives, with all waiters behind them; so that is repeated until they
// are gone, or the session is.
func (s *session) discard(places ...position) {
	if len(places) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.litter = append(s.litter, places...)
	select {
	case s.sweep <- struct{}{}:
	default: // it knows already
	}
}

// clean deletes the litter, as far as etcd lets it. The rest is left for the
// next time.
func (s *session) clean() {
	s.mu.Lock()
	litter := s.litter
	s.litter = nil
	s.mu.Unlock()
	var left []position
	for i, place := range litter {
		if _, err := s.delete(s.life.Context(), place); err == nil {
			continue
		}
		left = append(left, place)
		if s.silent.Load() {
			left = append(left, litter[i+1:]...)
			break
		}
	}
	s.mu.Lock()
	s.litter = append(s.litter, left...)
	s.mu.Unlock()
}
