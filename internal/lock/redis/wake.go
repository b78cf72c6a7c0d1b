package redis

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
)

// wakeups is one subscription for all waiters of this replica: what a release publishes
// wakes one of them. It begins with the first waiter.
//
// A message is lost with the connection, and wakes no waiter: each of them looks again by
// itself, in bounded time.
type wakeups struct {
	client  redis.UniversalClient
	pattern string

	mu      sync.Mutex
	waiting map[string][]*sleeper // by channel, in the order of their coming
	sub     *redis.PubSub
	closed  bool
}

// sleeper is a waiter.
type sleeper struct {
	id   string
	wake chan struct{} // holds one element when there is reason to look
}

func newWakeups(client redis.UniversalClient, pattern string) *wakeups {
	return &wakeups{client: client, pattern: pattern, waiting: make(map[string][]*sleeper)}
}

// enter registers a sleeper: what is published on the channel from now on may
// wake it.
func (w *wakeups) enter(channel, id string) *sleeper {
	s := &sleeper{id: id, wake: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[channel] = append(w.waiting[channel], s)
	if w.sub == nil && !w.closed {
		w.sub = w.client.PSubscribe(context.Background()) // to nothing yet: it does not wait for the server
		go w.listen(w.sub)
	}
	return s
}

// leave removes a sleeper. A wake-up that it did not use is the next one's.
func (w *wakeups) leave(channel string, s *sleeper) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[channel] = slices.DeleteFunc(w.waiting[channel], func(o *sleeper) bool { return o == s })
	if len(w.waiting[channel]) == 0 {
		delete(w.waiting, channel)
		return
	}
	select {
	case <-s.wake:
		w.waiting[channel][0].rouse()
	default:
	}
}

// listen delivers what is published until the subscription is closed.
func (w *wakeups) listen(sub *redis.PubSub) {
	// Where it fails, the subscription is made again with the connection.
	_ = sub.PSubscribe(context.Background(), w.pattern)
	for event := range sub.ChannelWithSubscriptions() {
		switch e := event.(type) {
		case *redis.Message:
			w.deliver(e.Channel, e.Payload)
		case *redis.Subscription:
			// What was published before is lost.
			w.rouseAll()
		}
	}
}

func (w *wakeups) rouseAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sleepers := range w.waiting {
		for _, s := range sleepers {
			s.rouse()
		}
	}
}

// deliver wakes the waiter of an id, or the first where the id is empty.
func (w *wakeups) deliver(channel, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.waiting[channel] {
		if id == "" || s.id == id {
			s.rouse()
			return
		}
	}
}

func (s *sleeper) rouse() {
	select {
	case s.wake <- struct{}{}:
	default: // it has a reason already
	}
}

// Close ends the subscription.
func (w *wakeups) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.sub == nil {
		return nil
	}
	return backend.HangUp(w.sub)
}
