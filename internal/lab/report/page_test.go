package report_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// REPORT says where to keep the page, to be looked at.
func TestAReportIsMadeOfARun(t *testing.T) {
	folder, _ := fakeRun(t)
	content, err := os.ReadFile(filepath.Join(folder, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(content), `<section class="experiment"`)[1:]
	largest := slices.MaxFunc(sections, func(a, b string) int { return len(a) - len(b) })
	if size := len(largest) * len(sections); size > 3_000_000 {
		t.Errorf("with histories of 5,000 requests everywhere it would have %d bytes, want 3 MB at most", size)
	}
	if keep := os.Getenv("REPORT"); keep != "" {
		if err := os.WriteFile(keep, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
