package checker_test

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

func TestRejectedWithinIsBrokenByAContenderThatWaited(t *testing.T) {
	holder := history.Lease{ID: "a", Name: "x", Lock: "l", Holder: "one", Asked: at(0), Granted: at(1), Released: at(1000)}
	gaveUp := func(after int) history.Lease {
		return history.Lease{ID: "b", Name: "x", Lock: "l", Holder: "two", Asked: at(10), GaveUp: at(10 + after)}
	}
	for name, c := range map[string]struct {
		leases []history.Lease
		holds  bool
	}{
		"one that gave up at once":          {[]history.Lease{holder, gaveUp(5)}, true},
		"one that waited before it gave up": {[]history.Lease{holder, gaveUp(500)}, false},
		"one who gave up a free name":       {[]history.Lease{gaveUp(5)}, false},
		"one who gave up after the end":     {[]history.Lease{holder, gaveUp(2000)}, false},
		"no contender that gave up":         {[]history.Lease{holder}, false},
	} {
		if f := checker.RejectedWithin(100 * time.Millisecond)(&history.History{Leases: c.leases}); f.Holds != c.holds {
			t.Errorf("%s: holds %t: %s", name, f.Holds, f.Says)
		}
	}
}
