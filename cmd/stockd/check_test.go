package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/backend/check"
)

// The command tells what to do, and its exit status whether something must be done.
func TestCheckPrintsWhatToDo(t *testing.T) {
	dsn := "--database-dsn=" + filepath.Join(t.TempDir(), "stockd.db")
	if status, out, errOut := stockd("check", dsn); status != cli.Failure || !strings.Contains(out, "stockd migrate up") || !strings.Contains(errOut, "1 of ") {
		t.Errorf("of a database without tables it says %d, %s%s", status, out, errOut)
	}
	if status, _, errOut := stockd("migrate", "up", dsn); status != cli.OK {
		t.Fatal(errOut)
	}
	status, out, errOut := stockd("check", dsn, "--json")
	var found []check.Finding
	if err := json.Unmarshal([]byte(out), &found); status != cli.OK || err != nil || len(found) < 4 || found[0].What == "" || found[0].State == "" {
		t.Errorf("of one with tables it says %d, %s%s (%v)", status, out, errOut, err)
	}
	if status, _, errOut := stockd("check", dsn, "--replicas=0"); status != cli.Usage || !strings.Contains(errOut, "--replicas") {
		t.Errorf("of no replicas it says %d, %s", status, errOut)
	}
}
