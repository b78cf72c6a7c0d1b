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
	used := func(script string) time.Duration {
		log := filepath.Join(t.TempDir(), "log")
		p, err := k.Run(t.Context(), servers.Command{Path: "/bin/sh", Args: []string{"-c", script, loop}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		if !labtest.Eventually(time.Minute, func() bool {
			said, err := os.ReadFile(log)
			return err == nil && strings.Count(string(said), "done") == strings.Count(script, "$0")
		}) {
			t.Fatal("the loops do not end")
		}
		all, err := k.Used()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		return all["sh"].User
	}
	if _, err := k.Run(t.Context(), servers.Command{Path: "/bin/sleep", Args: []string{"1000"}, Log: k.Folder() + "/log"}); err != nil {
		t.Fatal(err)
	}
	one, two := used(`eval "$0"; sleep 1000`), used(`sh -c "$0"; sh -c "$0 sleep 1000" & wait`)
	if one < 30*time.Millisecond || two < one*3/2 || two > one*3 {
		t.Errorf("one loop used %s, and two used %s", one, two)
	}
	all, err := k.Used()
	if err != nil || all["sleep"].User != 0 || all["sh"].User != 0 {
		t.Errorf("afterwards %+v, %v; want nothing of sleep, and no more of sh", all, err)
	}
}
