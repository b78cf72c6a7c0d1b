package report_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/report"
)

func TestTheTableSaysWhatCameOutAndWhatWasFoundWhereItDidNot(t *testing.T) {
	var b bytes.Buffer
	if err := report.Table(&b, fakeReport(), false); err != nil {
		t.Fatal(err)
	}
	wants(t, "the table", b.String(), "✓ reproduced", "✗ not reproduced", "– not run", "It needs row locks, and SQLite has none.",
		"optimistic, naive: not as expected in 5 tries: 5,000 sales of 1,000 units", "Expected: More is sold than there was",
		"optimistic, with-lock: as expected in 1 try", "24 reproduced, 1 not reproduced, 1 not run in 7 min 12 s", "redis: Redis 7.0.15 (local)")
	if n := strings.Count(b.String(), "Expected:"); n != 1 {
		t.Errorf("the table says %d times what was expected, want that of the part that did not come out", n)
	}
	if strings.Contains(b.String(), "ended before") {
		t.Error("a whole run was ended before its last experiment")
	}
	if strings.Contains(b.String(), "rejected the others") {
		t.Error("the reason of what came out fills the table")
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a table that is not for a terminal has colours")
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "│") && len([]rune(line)) > 120 {
			t.Errorf("a line of the table has %d letters: %s", len([]rune(line)), line)
		}
	}
	b.Reset()
	if err := report.Table(&b, fakeReport(), true); err != nil {
		t.Fatal(err)
	}
	wants(t, "the table for a terminal", b.String(), "\x1b[32m✓ reproduced", "\x1b[31m✗ not reproduced", "\x1b[33m– not run")
}

func TestAnInterruptedRunSaysSo(t *testing.T) {
	r := fakeReport()
	r.Interrupted = true
	var b bytes.Buffer
	if err := report.Table(&b, r, false); err != nil {
		t.Fatal(err)
	}
	wants(t, "the table", b.String(), "ended before the last experiment")
}
