package report_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/trial"
	"github.com/stockd/stockd/internal/must"
)

const (
	// high is a window that has a whole part of the page: a screenshot of what is outside of
	// the window takes ten times as long.
	high   = 2000
	within = time.Minute
	// tooWide are the elements that reach beyond the right edge, but for those in a
	// box that scrolls.
	tooWide = `[...document.querySelectorAll('body *')]
		.filter(e => !e.closest('.scroll, pre, svg, .skip, .unseen, .chart') && e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
		.map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60))`
	leasesDrawn = "document.querySelectorAll('#lanes .hold').length"
)

// The report needs no server: it has a table of the experiments, and plays the one that is chosen.
func TestABrowserShowsTheReportOnAPhoneAndOnADesk(t *testing.T) {
	folder, r := fakeRun(t)
	b := browser.Open(t, 3*time.Minute)
	for width, scheme := range map[int64]string{375: "light", 1200: "dark"} {
		b.Show(t, "file://"+filepath.Join(folder, "report.html"), width, high, scheme)
		b.Until(t, within, fmt.Sprintf("document.querySelectorAll('#made tr').length === %d && !document.getElementById('player').hidden", 1+len(r.Experiments)))
		browser.Evaluate[bool](t, b, "(location.hash = '#owner-gap', true)")
		b.Until(t, within, "document.getElementById('play-title').textContent.startsWith('8 ') && "+leasesDrawn+" > 0")
		if list := browser.Evaluate[[]string](t, b, tooWide); len(list) > 0 {
			t.Errorf("%d are wider than the page: %q", len(list), list[:min(5, len(list))])
		}
		b.Keep(t, "body", fmt.Sprintf("report-%d-%s", width, scheme))
	}
	if told := browser.Evaluate[string](t, b, "document.getElementById('beats').textContent"); !strings.Contains(told, "has the lock") {
		t.Errorf("the story is %q", told)
	}
	browser.Evaluate[bool](t, b, "(e => { e.value = 0; e.dispatchEvent(new Event('input')); return true; })(document.getElementById('scrub'))")
	if ended := browser.Evaluate[int](t, b, "document.querySelectorAll('#lanes .hold:not(.open)').length"); ended != 0 {
		t.Errorf("at its beginning %d leases have ended", ended)
	}
	browser.Evaluate[bool](t, b, "(location.hash = '#innodb-matrix', true)") // it was not run
	b.Until(t, within, "document.getElementById('play-verdict').textContent === 'Not run' && document.getElementById('player').hidden")
	browser.Evaluate[bool](t, b, "(document.getElementById('language').click(), true)")
	b.Until(t, within, "document.getElementById('play-verdict').textContent === '未进行' && document.getElementById('player').hidden")
	if errors := b.Errors(); len(errors) > 0 {
		t.Errorf("the browser complains: %q", errors)
	}
	if asked := b.Asked("file:", "data:"); len(asked) > 0 {
		t.Errorf("the page asks the network for %q", asked)
	}
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
	b := browser.Open(t, time.Minute)
	b.Show(t, "file://"+file, 1200, high, "light")
	b.Until(t, within, "document.querySelectorAll('#made tr').length === 2 && document.getElementById('play-title').textContent.includes('redislock')")
	b.Until(t, within, "document.querySelector('#parts .tag').textContent === '✗' && document.getElementById('play-source').textContent.startsWith('1 × ✗') && "+leasesDrawn+" > 0")
	b.Keep(t, "body", "trial")
	if errors := b.Errors(); len(errors) > 0 {
		t.Errorf("the browser complains: %q", errors)
	}
}
