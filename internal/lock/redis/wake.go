package redis

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
)

// wakeups is one subscription for all waiters of this replica: what a release publishes
// wakes one of them. It begins with the first waiter.
//
// All names share one channel, because Redis lets a user subscribe to a pattern only where its rights have that very
// pattern. A message is the key of a name and, after a blank, the id of the waiter whose turn it is, or nothing: the
// first in line here.
type wakeups struct {
	*backend.RedisChannel

	mu      sync.Mutex
	waiting map[string][]*sleeper // by key, in the order of their coming
}

// sleeper is a waiter.
type sleeper struct {
	id   string
	wake chan struct{} // holds one element when there is reason to look
}

func newWakeups(client redis.UniversalClient, channel string, log *slog.Logger) *wakeups {
	w := &wakeups{waiting: make(map[string][]*sleeper)}
	w.RedisChannel = backend.NewRedisChannel(client, channel, log, w.deliver)
	return w
}

// enter registers a sleeper: what is published of the key from now on may wake it.
func (w *wakeups) enter(key, id string) *sleeper {
	s := &sleeper{id: id, wake: make(chan struct{}, 1)}
	w.mu.Lock()
	w.waiting[key] = append(w.waiting[key], s)
	w.mu.Unlock()
	w.Listen()
	return s
}

// leave removes a sleeper. A wake-up that it did not use is the next one's.
func (w *wakeups) leave(key string, s *sleeper) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[key] = slices.DeleteFunc(w.waiting[key], func(o *sleeper) bool { return o == s })
	if len(w.waiting[key]) == 0 {
		delete(w.waiting, key)
		return
	}
	select {
	case <-s.wake:
		w.waiting[key][0].rouse()
	default:
	}
}

// deliver wakes the waiter that a message is for; all of them, where messages may have been lost.
func (w *wakeups) deliver(m *redis.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m == nil {
		for _, sleepers := range w.waiting {
			for _, s := range sleepers {
				s.rouse()
			}
		}
		return
	}
	key, id, _ := strings.Cut(m.Payload, " ")
	for _, s := range w.waiting[key] {
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
