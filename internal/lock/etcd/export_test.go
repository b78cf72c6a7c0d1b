package etcd

import (
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Line is what the keys of a name begin with.
func Line(c *backend.Clients, name string) string { return lineFor(keysOf(c), name) }

func sessionOf(l lock.Locker) (*session, error) {
	return l.(*lock.Reentrant).Locker.(*locker).current() //nolint:forcetypeassert // a test's own lock
}

// InLine reports whether a replica has a place in the line of a name, and knows it: the
// answer to its put has come.
func InLine(l lock.Locker, name string) bool {
	s, err := sessionOf(l)
	if err != nil || !s.isOpen() || s.err != nil {
		return false
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	for key, t := range s.queue.mine {
		if t.rev != 0 && lineOf(key) == lineFor(s.prefix, name) {
			return true
		}
	}
	return false
}

// Expire has a replica's session be over by its clock, as after a pause of the whole process.
func Expire(l lock.Locker) {
	s, err := sessionOf(l)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Now().Add(-s.ttl)
}

// Patience is how long a request waits for an answer.
const Patience = patience
