package strategy

// Locked makes an entry of a lock that only a test has.
var Locked = locked

// Idle tells whether a grouped strategy keeps nothing of any goods.
func (g *Grouped) Idle() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queues) == 0
}
