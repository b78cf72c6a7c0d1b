package strategy

// Locked makes an entry of a lock that only a test has.
var Locked = ofLock

// Idle reports whether a Batcher keeps nothing of any item.
func (b *Batcher) Idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues) == 0
}
