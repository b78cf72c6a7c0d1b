package replica

import (
	"runtime/debug"
	"testing"
)

func TestGarbageIsCollectedAsTheOperatorSays(t *testing.T) {
	for gogc, want := range map[string]int{"": garbagePercent, "50": 50} {
		before := debug.SetGCPercent(50) // as Go does for GOGC=50
		t.Setenv("GOGC", gogc)
		prepareProcess()
		if got := debug.SetGCPercent(before); got != want {
			t.Errorf("with GOGC=%q a collection is made at %d percent, not at %d", gogc, got, want)
		}
	}
}
