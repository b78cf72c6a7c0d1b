package servers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// What a program uses is what its children use that live, and what those have used that have
// ended. Another program has none of it.
func TestProcessorTimeIsOfAProgramAndWhatItStarted(t *testing.T) {
	const loop = `i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo done; `
	k := labtest.StartSupervisor(t)
	if _, err := k.Run(t.Context(), servers.Command{Path: "/bin/sleep", Args: []string{"1000"}, Log: k.Folder() + "/log"}); err != nil {
		t.Fatal(err)
	}
	for where, script := range map[string]string{
		"the program itself":     `eval "$0"; sleep 1000`,
		"one that it started":    `sh -c "$0 sleep 1000" & wait`,
		"one that has ended":     `sh -c "$0"; sleep 1000`,
		"one that another began": `sh -c 'sh -c "$0"; sleep 1000' "$0" & wait`,
	} {
		log, begun := filepath.Join(t.TempDir(), "log"), time.Now()
		p, err := k.Run(t.Context(), servers.Command{Path: "/bin/sh", Args: []string{"-c", script, loop}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		if !labtest.Eventually(time.Minute, func() bool {
			said, err := os.ReadFile(log)
			return err == nil && strings.Contains(string(said), "done")
		}) {
			t.Fatal("the loop does not end")
		}
		all, err := k.Used()
		if err != nil {
			t.Fatal(err)
		}
		// What runs one after the other uses no more than the time that passes.
		if used := all["sh"].User; used < 30*time.Millisecond || used > time.Since(begun) {
			t.Errorf("a loop in %s used %s of %s", where, used, time.Since(begun))
		}
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all, err := k.Used()
	if err != nil || all["sleep"].User != 0 || all["sh"].User != 0 {
		t.Errorf("afterwards %+v, %v; want nothing of sleep, and no more of sh", all, err)
	}
}
