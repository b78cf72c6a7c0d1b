package failpoint

import (
	"testing"
	"testing/synctest"

	"github.com/stockd/stockd/internal/must"
)

// A purchase that has found its fault stops the process a moment later. Who has cleared
// the faults continues the process once more: what stopped after that would stay so.
func TestFaultsAreClearedWhenNoPurchaseIsAboutToStopTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := Open(Options{})
		must.Do(t, err)
		l.SetFault(Fault{Do: Pause})
		if _, _, found := l.reach("naive", 1); !found {
			t.Fatal("the fault is not reached")
		}
		cleared := false
		go func() {
			l.ClearFaults()
			cleared = true
		}()
		synctest.Wait()
		if cleared {
			t.Error("cleared before the purchase has stopped the process")
		}
		l.stopping.Done() // it has stopped, and goes on
		synctest.Wait()
		if !cleared {
			t.Error("not cleared, and nothing is on its way any more")
		}
	})
}
