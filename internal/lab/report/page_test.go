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
	"time"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/trial"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
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
	should.Contain(t, whole.Experiments[0].Parts[0].Trouble, "line 1")
	if whole.Experiments[1].Parts[0].Trouble != "" {
		t.Error("a whole history is said to be broken")
	}
}

func TestTheTableSaysWhatCameOutAndWhatWasFoundWhereItDidNot(t *testing.T) {
	var b bytes.Buffer
	must.Do(t, report.Table(&b, fakeReport(), false))
	should.Contain(t, b.String(), "✓ reproduced", "✗ not reproduced", "– not run", "It needs row locks, and SQLite has none.",
		"optimistic, naive: not as expected in 5 tries: 5,000 sales of 1,000 units", "Expected: More is sold than there was",
		"optimistic, with-lock: as expected in 1 try", "3 reproduced, 1 not reproduced, 1 not run in 7 min 12 s", "redis: Redis 7.0.15 (local)")
	should.Be(t, strings.Count(b.String(), "Expected:"), 1, "parts that say what was expected: the one that did not come out")
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
	should.Contain(t, b.String(), "\x1b[32m✓ reproduced", "\x1b[31m✗ not reproduced", "\x1b[33m– not run", "ended before the last experiment")
}

// registered are the experiments of a report as the registry would have them.
func registered(r *experiments.Report) []experiments.Experiment {
	list := make([]experiments.Experiment, 0, len(r.Experiments))
	for _, e := range r.Experiments {
		one := experiments.Experiment{Number: e.Number, Name: e.Name, Title: e.Title, Claim: e.Claim, Source: e.Source, Fix: e.Fix}
		for _, p := range e.Parts {
			one.Parts = append(one.Parts, p.Part)
		}
		list = append(list, one)
	}
	return list
}

func text(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(path))(t))
}

func TestThereIsAPageAnExperimentWithTheFiguresOfARun(t *testing.T) {
	run, r := fakeRun(t)
	folder := t.TempDir()
	if keep := os.Getenv("DOCS"); keep != "" {
		folder = keep
	}
	old := filepath.Join(folder, "03-no-longer.md")
	kept := filepath.Join(folder, "servers.md")
	for _, path := range []string{old, kept} {
		must.Do(t, os.WriteFile(path, []byte("text"), 0o644))
	}
	all := registered(r)
	all[0].Claim = "What the registry says now | and not then."
	must.Do(t, report.Docs(folder, run, all))
	index := text(t, filepath.Join(folder, "README.md"))
	should.Contain(t, index, "what is changed by hand is lost", "[An expiry shorter than the work](07-work-outlasts-ttl.md)",
		`What the registry says now \| and not then.`, "✗ not reproduced", "3 reproduced, 1 not reproduced, 1 not run", "MariaDB 10.11.14 (local)")
	should.Contain(t, text(t, filepath.Join(folder, "07-work-outlasts-ttl.md")), "what is changed by hand is lost", "stocklab lab run work-outlasts-ttl",
		"| oversold | 4,000 units |", "## What happens\n\n### naive (failure)\n\n1. ", "## What helps\n\n### with-lock (remedy)\n\n1. ",
		"The code: [`redis-setnx-ttl`](../../internal/lock/redis).", "![naive, Who held the lock", "](07-work-outlasts-ttl.svg)",
		"✗ [setnx_ttl.go](../../internal/lock/redis), [weak.go]", "✓ [acquire.lua](../../internal/lock/redis/lua)", "[简体中文](zh/01-10.md#work-outlasts-ttl) · previous: [1. ", "](01-oversell.md) · next: [8. ", "curl -X POST")
	if drawn, err := filepath.Glob(filepath.Join(folder, "07-*.svg")); err != nil || len(drawn) != 1 {
		t.Errorf("the page has pictures %v, want one (%v)", drawn, err)
	}
	should.Contain(t, text(t, filepath.Join(folder, "07-work-outlasts-ttl.svg")), `xmlns="http://www.w3.org/2000/svg"`, "prefers-color-scheme: dark",
		"held by two or more at once", "2. 100 ms: replica-1 paused (SIGSTOP)")
	should.Contain(t, text(t, filepath.Join(folder, "oversell.svg")), "5,000 sold, the row says 0 left", "1,000 sold, the row says 0 left")
	should.Contain(t, text(t, filepath.Join(folder, "22-innodb-matrix.md")), "– not run", "SQLite has none")
	if _, err := os.Stat(old); err == nil {
		t.Error("the page of an experiment that is no more is still there")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Error("a page that is not ours was removed")
	}
}

// What the catalogue has in Chinese is Chinese, and the rest stays English.
func TestPagesInChineseHaveThePicturesOfTheEnglishOnes(t *testing.T) {
	run, r := fakeRun(t)
	title := experiments.Chinese("work-outlasts-ttl").Title
	folder := t.TempDir()
	must.Do(t, report.Docs(folder, run, registered(r)))
	should.Contain(t, text(t, filepath.Join(folder, "zh", "01-10.md")), "## work-outlasts-ttl\n\n**7. "+title+"**（[English，附数据](../07-work-outlasts-ttl.md)）",
		"### naive（问题）\n\n1. 50 个客户端", "1. 50 buyers", "](../07-work-outlasts-ttl.svg)", "对策：", "已复现", "✓ [acquire.lua](../../../internal/lock/redis/lua)")
	should.Contain(t, text(t, filepath.Join(folder, "zh", "README.md")), "["+title+"](01-10.md#work-outlasts-ttl)", "未运行", "- 开始时间：")
	if drawn, err := filepath.Glob(filepath.Join(folder, "zh", "*.svg")); err != nil || len(drawn) != 0 {
		t.Errorf("pictures were drawn again: %v (%v)", drawn, err)
	}
}

const (
	// high is a window that has a whole part of the page: a screenshot of what is outside of
	// the window takes ten times as long.
	high        = 2000
	within      = time.Minute
	leasesDrawn = "document.querySelectorAll('#lanes .hold').length"
)

// The report needs no server: it has a table of the experiments, and plays the one that is chosen.
func TestABrowserShowsTheReportOnAPhoneAndOnADesk(t *testing.T) {
	folder, r := fakeRun(t)
	b := browser.Open(t)
	for width, scheme := range map[int64]string{375: "light", 1200: "dark"} {
		b.Show(t, "file://"+filepath.Join(folder, "report.html"), width, high, scheme)
		b.Until(t, within, fmt.Sprintf("document.querySelectorAll('#made tr').length === %d && !document.getElementById('player').hidden", 1+len(r.Experiments)))
		browser.Evaluate[bool](t, b, "(location.hash = '#owner-gap', true)")
		b.Until(t, within, "document.getElementById('play-title').textContent.startsWith('8 ') && "+leasesDrawn+" > 0")
		b.AssertFits(t)
		b.Keep(t, "body", fmt.Sprintf("report-%d-%s", width, scheme))
	}
	should.Contain(t, browser.Evaluate[string](t, b, "document.getElementById('beats').textContent"), "has the lock")
	browser.Evaluate[bool](t, b, "(e => { e.value = 0; e.dispatchEvent(new Event('input')); return true; })(document.getElementById('scrub'))")
	should.Be(t, browser.Evaluate[int](t, b, "document.querySelectorAll('#lanes .hold:not(.open)').length"), 0, "leases that have ended at its beginning")
	browser.Evaluate[bool](t, b, "(location.hash = '#innodb-matrix', true)") // it was not run
	b.Until(t, within, "document.getElementById('play-verdict').textContent === 'Not run' && document.getElementById('player').hidden")
	browser.Evaluate[bool](t, b, "(document.getElementById('language').click(), true)")
	b.Until(t, within, "document.getElementById('play-verdict').textContent === '未进行' && document.getElementById('player').hidden")
	b.AssertQuiet(t, "file:")
}

// A trial is played again in the same page: its libraries stand where experiments do.
func TestABrowserReplaysATrial(t *testing.T) {
	began := time.Date(2026, 11, 29, 1, 0, 0, 0, time.UTC)
	held := &history.History{Leases: []history.Lease{{Holder: "first", Asked: began, Granted: began.Add(time.Second), Released: began.Add(2 * time.Second)}}}
	file := filepath.Join(t.TempDir(), "trial.html")
	must.Do(t, report.WriteTrial(file, &trial.Report{
		Libraries: []trial.Library{{Name: "redislock", Server: "redis"}},
		Questions: []trial.Question{{Name: "crowd", Asks: "Never two at once?", Chinese: "从不两个？"}},
		Cells:     []trial.Cell{{Library: "redislock", Question: "crowd", Mark: trial.Broken, Says: "two had it", Chinese: "两个", History: held}},
	}))
	b := browser.Open(t)
	b.Show(t, "file://"+file, 1200, high, "light")
	b.Until(t, within, "document.querySelectorAll('#made tr').length === 2 && document.getElementById('play-title').textContent.includes('redislock')")
	b.Until(t, within, "document.querySelector('#parts .tag').textContent === '✗' && document.getElementById('play-source').textContent.startsWith('1 × ✗') && "+leasesDrawn+" > 0")
	b.Keep(t, "body", "trial")
	b.AssertQuiet(t, "file:")
}
