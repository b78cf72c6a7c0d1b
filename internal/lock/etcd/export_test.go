package etcd

import (
	"net/url"
	"strings"

	"github.com/stockd/stockd/internal/lock"
)

// EtcdInLine tells whether a replica has a place in the line of a name, and knows of
// it: the answer to its put has come.
func InLine(l lock.Locker, name string) bool {
	s, err := l.(*lock.Reentrant).Locker.(*etcdLocker).current() //nolint:forcetypeassert // a test's own lock
	if err != nil || !s.isOpen() || s.err != nil {
		return false
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	for key, ticket := range s.queue.mine {
		if ticket.rev != 0 && strings.HasPrefix(key, s.prefix+url.PathEscape(name)+"/") {
			return true
		}
	}
	return false
}
