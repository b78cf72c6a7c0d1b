package page_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAReportIsMadeOfARun keeps the page where REPORT says, to be looked at.
func TestAReportIsMadeOfARun(t *testing.T) {
	folder, _ := fakeRun(t)
	content, err := os.ReadFile(filepath.Join(folder, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	if size := len(content); size > 3_000_000 {
		t.Errorf("it has %d bytes, want 3 MB at most", size)
	}
	if keep := os.Getenv("REPORT"); keep != "" {
		if err := os.WriteFile(keep, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
