package fault_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/fault"
	"github.com/stockd/stockd/internal/lab/keeper"
)

// A process that is paused does nothing, and goes on where it stood.
func TestAProcessIsPausedResumedAndKilled(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := lab.Keeper().Run(t.Context(), keeper.Command{
		Path: "/bin/sh", Args: []string{"-c", `trap "" TERM; while :; do echo x; sleep 0.01; done`}, Env: os.Environ(), Log: log,
	})
	must(t, err)
	size := func() int64 {
		info, err := os.Stat(log)
		must(t, err)
		return info.Size()
	}
	grows := func() {
		t.Helper()
		for from, end := size(), time.Now().Add(limit); size() == from; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not run")
			}
		}
	}
	grows()
	must(t, fault.Pause(t.Context(), p))
	from := size()
	time.Sleep(100 * time.Millisecond)
	if now := size(); now != from {
		t.Errorf("a paused process has written %d bytes", now-from)
	}
	must(t, fault.Resume(t.Context(), p))
	grows()
	must(t, fault.Pause(t.Context(), p))
	must(t, fault.Kill(within(t, limit), p))
	if state := p.State(); !strings.Contains(state, "killed") {
		t.Errorf("it has ended with %s", state)
	}
}
