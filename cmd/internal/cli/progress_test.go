package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/should"
)

// Where there is no terminal each result is a line, with the time since the beginning and the number of
// what is done; a run that takes long says how far it is.
func TestProgressIsALineForEachResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := NewProgress(&out, 0)
		p.Begin(5)
		p.Say("starts at 100%")
		time.Sleep(1500 * time.Millisecond)
		p.Run("mutex", 1100)
		p.Answered(50)
		p.Update("measures")
		time.Sleep(5 * time.Second)
		p.Answered(1090)
		time.Sleep(time.Second)
		p.Answered(1095)
		p.Done(verdict.Run{Strategy: "mutex", Replicas: 1, Sold: 1000, Stock: 2000, Clean: true, Verdict: verdict.Expected})
		p.Done(verdict.Run{Strategy: "mutex", Replicas: 3, Group: true, Verdict: verdict.NotRun})
		p.Done(verdict.Run{Strategy: "naive", Sold: 9, Stock: 5, Reason: "4 clients hung up", Verdict: verdict.Unexpected})
		p.Step("10 a second", 90*time.Second+400*time.Millisecond)
		p.Step("20 a second", 0)
		p.Finish("all is measured")
		p.End()
		const want = `  0.0s  starts at 100%
  6.5s  mutex: 1,090 of 1,100 requests answered
  7.5s  1/5 mutex on 1 replica: sold 1,000 of 2,000: consistent
  7.5s  2/5 mutex, grouped on 3 replicas: not run
  7.5s  3/5 naive on an unknown number of replicas: sold 9 of 5: not expected: 4 clients hung up
  7.5s  4/5, 1m30s left  10 a second
  7.5s  5/5  20 a second
  7.5s  6/5 all is measured
`
		should.Be(t, out.String(), want, &out)
	})
}

// A report is shown and kept whatever it says; the exit status says what the table does.
func TestAReportIsShownAndKept(t *testing.T) {
	for name, c := range map[string]struct {
		runs []verdict.Run
		want error
		kept bool
	}{
		"as expected":     {[]verdict.Run{{Strategy: "mutex", Verdict: verdict.Expected}}, nil, true},
		"not as expected": {[]verdict.Run{{Strategy: "mutex", Verdict: verdict.Expected}, {Strategy: "naive", Verdict: verdict.Unexpected}}, errUnexpected, true},
		"no run":          {nil, nil, false},
	} {
		path := filepath.Join(t.TempDir(), "report.json")
		var out bytes.Buffer
		should.Fail(t, Show(&verdict.Report{Runs: c.runs}, &out, path), c.want, name)
		content, err := os.ReadFile(path)
		var kept verdict.Report
		if c.kept && (json.Unmarshal(content, &kept) != nil || len(kept.Runs) != len(c.runs)) || !c.kept && err == nil {
			t.Errorf("%s: the file has %s (%v)", name, content, err)
		}
		should.Be(t, bytes.Contains(out.Bytes(), []byte("mutex")), c.kept, "it shows", name, &out)
	}
	if err := Show(&verdict.Report{Runs: []verdict.Run{{Verdict: verdict.Expected}}}, &bytes.Buffer{}, filepath.Join(t.TempDir(), "no", "folder")); err == nil {
		t.Error("a file that cannot be written is no failure")
	}
}

// A bar that ends before it was ever drawn is not drawn afterwards: the result is below it by then.
func TestABarThatHasEndedIsDrawnNoMore(t *testing.T) {
	for range 100 {
		b := newBar(io.Discard)
		b.End()
		runtime.Gosched()
		if b.writer.IsRenderInProgress() {
			t.Fatal("it is still being drawn")
		}
	}
}
