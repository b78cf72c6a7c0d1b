package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

// The lock of most blogs frees another's hold by its late DEL, and redislock does not; what was recorded is judged again
// with the same marks.
func TestLibrariesOnTrial(t *testing.T) {
	cmdtest.NeedDatabase(t, "mariadb")
	cmdtest.NeedRedis(t)
	file := filepath.Join(t.TempDir(), "trial.json")
	status, out, errOut := stocklab("trial", "--only", "SET NX,redislock", "--question", "dies,late-release", "--json", file)
	if status != 0 {
		t.Fatalf("status %d: %s", status, errOut)
	}
	_, page, _ := stocklab("trial", "judge", file)
	for _, want := range []string{"REDISLOCK │ SET NX PX, DEL", "dies         │ ✓         │ ✓", "late-release │ ✓         │ not promised"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s\n%s", want, out, errOut)
		}
	}
	if want := "[not promised](#2-late-release)"; !strings.Contains(page, want) {
		t.Errorf("%q is not in\n%s", want, page)
	}
}
