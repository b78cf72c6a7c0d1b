package failpoint_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// purchasing has a test binary make one purchase and end, as a replica does: it names the
// fault and the file of the record.
const purchasing = "STOCKD_FAILPOINT_TEST"

func TestMain(m *testing.M) {
	if do, path, ok := strings.Cut(os.Getenv(purchasing), " "); ok {
		purchase(do, path)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// purchase reaches a fault with a request that has ended, and clears the faults.
func purchase(do, path string) {
	l, err := failpoint.Open(failpoint.Options{Replica: "replica-1", History: path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		os.Exit(1)
	}
	l.SetFault(failpoint.Fault{Do: do, IgnoreCancel: true})
	ctx, end := context.WithCancel(context.Background())
	end()
	ctx = l.Between(ctx, "naive", 1)
	l.ClearFaults() // it would wait for a purchase that is about to stop the process
	if ctx.Err() != nil || l.Close() != nil {
		os.Exit(1)
	}
}

// A pause stops the whole process, which goes on when it is continued; a crash ends it. That it
// was reached is recorded before.
func TestAFaultStopsOrKillsTheProcess(t *testing.T) {
	for do, want := range map[string][]string{
		failpoint.Pause: {failpoint.Paused, failpoint.WentOn}, failpoint.Crash: {failpoint.Killed},
	} {
		path := filepath.Join(t.TempDir(), "history.jsonl")
		self := exec.CommandContext(t.Context(), os.Args[0])
		self.Env = append(os.Environ(), purchasing+"="+do+" "+path)
		must.Do(t, self.Start())
		marks := func() (marks []string) {
			for _, m := range read(t, path).Marks {
				marks = append(marks, m.What)
			}
			return marks
		}
		var status syscall.WaitStatus
		if do == failpoint.Pause {
			_, err := syscall.Wait4(self.Process.Pid, &status, syscall.WUNTRACED, nil)
			if err != nil || !status.Stopped() || !slices.Equal(marks(), want[:1]) {
				t.Errorf("a pause: status %x (%v), marks %q", status, err, marks())
			}
			should.Do(t, self.Process.Signal(syscall.SIGCONT))
		}
		_ = self.Wait() // how it ended is below
		ended, ok := self.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || ended.Signaled() != (do == failpoint.Crash) || do == failpoint.Pause && ended.ExitStatus() != 0 || !slices.Equal(marks(), want) {
			t.Errorf("%s: it ended with %s, and marks are %q, want %q", do, self.ProcessState, marks(), want)
		}
	}
}
