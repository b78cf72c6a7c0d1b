package report_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/must"
)

// unpacked is data of a saved page.
func unpacked(t *testing.T, page, id string, to any) {
	t.Helper()
	_, after, ok := strings.Cut(page, `id="`+id+`">`)
	data, _, _ := strings.Cut(after, "<")
	unzipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if !ok || err != nil {
		t.Fatalf("the page has no data %s (%v)", id, err)
	}
	must.Do(t, json.NewDecoder(unzipped).Decode(to))
}

// It is one file: each experiment with its figures, and the recording of each part that was made and can be read.
func TestTheReportHasEachExperimentAndItsRecordings(t *testing.T) {
	folder := t.TempDir()
	r := fakeReport()
	makeRun(t, folder, r)
	must.Do(t, os.WriteFile(filepath.Join(folder, r.Experiments[0].Parts[0].History), []byte("{\n{}\n"), 0o600)) // a broken one
	r.Interrupted = true
	must.Do(t, report.Write(folder, r))
	page := text(t, filepath.Join(folder, report.File))
	var whole live.Report
	unpacked(t, page, "run", &whole)
	if len(whole.Experiments) != len(r.Experiments) || !whole.Interrupted || len(whole.Facts) == 0 {
		t.Fatalf("%d experiments, interrupted %t, on %v", len(whole.Experiments), whole.Interrupted, whole.Facts)
	}
	for i, e := range whole.Experiments {
		var recordings []live.Recording
		unpacked(t, page, "of-"+e.Name, &recordings)
		want := len(e.Parts)
		for _, p := range e.Parts {
			if p.NotRun != "" || p.Trouble != "" {
				want--
			} else if len(p.Figures) == 0 {
				t.Errorf("%s has no figures of %s", e.Name, p.Name)
			}
		}
		if e.Verdict != r.Experiments[i].Verdict || len(recordings) != want {
			t.Errorf("%s is %s, with %d recordings, want %d", e.Name, e.Verdict, len(recordings), want)
		}
		one := text(t, filepath.Join(folder, fmt.Sprintf("replay-%02d-%s.html", e.Number, e.Name)))
		unpacked(t, one, "of-"+e.Name, &recordings)
	}
	if trouble := whole.Experiments[0].Parts[0].Trouble; !strings.Contains(trouble, "line 1") {
		t.Errorf("of a broken history it says %q", trouble)
	}
	if whole.Experiments[1].Parts[0].Trouble != "" {
		t.Error("a whole history is said to be broken")
	}
}

func TestTheTableSaysWhatCameOutAndWhatWasFoundWhereItDidNot(t *testing.T) {
	var b bytes.Buffer
	must.Do(t, report.Table(&b, fakeReport(), false))
	wants(t, "the table", b.String(), "✓ reproduced", "✗ not reproduced", "– not run", "It needs row locks, and SQLite has none.",
		"optimistic, naive: not as expected in 5 tries: 5,000 sales of 1,000 units", "Expected: More is sold than there was",
		"optimistic, with-lock: as expected in 1 try", "3 reproduced, 1 not reproduced, 1 not run in 7 min 12 s", "redis: Redis 7.0.15 (local)")
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
	interrupted := fakeReport()
	interrupted.Interrupted = true
	must.Do(t, report.Table(&b, interrupted, true))
	wants(t, "the table for a terminal", b.String(), "\x1b[32m✓ reproduced", "\x1b[31m✗ not reproduced", "\x1b[33m– not run", "ended before the last experiment")
}
