package locktest

import (
	"sync"
	"testing"

	"github.com/stockd/stockd/internal/should"
)

// No lock here lets two holders in, so that the suite is not shown one that does.
func TestTheGateShowsTwoHolders(t *testing.T) {
	pass := func(holders int) string {
		var g gate
		var all sync.WaitGroup
		for range holders {
			all.Go(func() {
				for range 20 {
					g.pass(0)
				}
			})
		}
		all.Wait()
		return g.damage()
	}
	should.Be(t, pass(1), "", "one holder")
	if pass(8) == "" {
		t.Error("eight holders at once do no damage")
	}
	var overlapped, lost gate
	overlapped.overlapped.Store(true) // and no update was lost, by luck
	lost.passed.Store(2)
	lost.count.Store(1)
	if overlapped.damage() == "" || lost.damage() == "" {
		t.Errorf("an overlap alone is %q, a lost update alone %q", overlapped.damage(), lost.damage())
	}
}
