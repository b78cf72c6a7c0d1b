package servers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

// A process that is paused does nothing, and goes on where it stood.
func TestAProcessIsPausedResumedAndKilled(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := lab.Supervisor().Run(t.Context(), servers.Command{
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
	must(t, p.Pause(t.Context()))
	from := size()
	time.Sleep(100 * time.Millisecond)
	if now := size(); now != from {
		t.Errorf("a paused process has written %d bytes", now-from)
	}
	must(t, p.Resume(t.Context()))
	grows()
	must(t, p.Pause(t.Context()))
	must(t, p.Kill(within(t, limit)))
	if state := p.State(); !strings.Contains(state, "killed") {
		t.Errorf("it has ended with %s", state)
	}
}
