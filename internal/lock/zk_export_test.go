package lock

import "time"

// ZKSession is the number of the session that a client has.
func ZKSession(c *ZooKeeperClient) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.conn.SessionID()
}

// ZKLastNumber has a lock take a lower number for the last one that the server
// can count to.
func ZKLastNumber(l Locker, last int) {
	l.(*reentrant).Locker.(*zkQueue).last = last //nolint:forcetypeassert // a test's own lock
}

// ZKLooksAgain is the shortest time after which a waiter looks again that
// nobody woke.
const ZKLooksAgain = lookAgain / 2

// ZKGuardsAfter is when a lease begins to watch its node.
const ZKGuardsAfter time.Duration = guardAfter
