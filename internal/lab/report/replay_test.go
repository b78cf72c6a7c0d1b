package report_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest/browser"
)

// A page that plays an experiment again needs no server, and shows what was there at a moment.
func TestAnExperimentIsPlayedAgain(t *testing.T) {
	folder, r := fakeRun(t)
	b := browser.Open(t, 2*time.Minute)
	b.Show(t, "file://"+filepath.Join(folder, "report.html"), 1200, high, "light")
	if n := browser.Evaluate[int](t, b, "document.querySelectorAll('a[href^=replay-]').length"); n == 0 || n > len(r.Experiments) {
		t.Fatalf("the report leads to %d replays of %d experiments", n, len(r.Experiments))
	}
	replay := browser.Evaluate[string](t, b, "document.querySelector('#owner-gap a[href^=replay-]').getAttribute('href')")
	b.Show(t, "file://"+filepath.Join(folder, replay), 375, high, "dark")
	const bars = "document.querySelectorAll('#lanes .hold').length"
	b.Until(t, time.Minute, "!document.getElementById('player').hidden && "+bars+" > 0")
	if words := browser.Evaluate[int](t, b, "document.querySelectorAll('#player-words p').length"); words%3 != 0 || words == 0 {
		t.Errorf("there are %d paragraphs, want what is done, expected and found", words)
	}
	if told := browser.Evaluate[string](t, b, "document.getElementById('beats').textContent"); !strings.Contains(told, "has the lock") {
		t.Errorf("the story is %q", told)
	}
	if got := browser.Evaluate[int64](t, b, "document.documentElement.scrollWidth"); got > 375 {
		t.Errorf("it scrolls to the side: it is %d wide", got)
	}
	b.Keep(t, "body", "replay-375-dark")
	browser.Evaluate[bool](t, b, "(e => { e.value = 0; e.dispatchEvent(new Event('input')); return true; })(document.getElementById('scrub'))")
	if open := browser.Evaluate[int](t, b, "document.querySelectorAll('#lanes .hold:not(.open)').length"); open != 0 {
		t.Errorf("at its beginning %d leases have ended", open)
	}
	if errors := b.Errors(); len(errors) > 0 {
		t.Errorf("the browser complains: %q", errors)
	}
	if asked := b.Asked("file:", "data:"); len(asked) > 0 {
		t.Errorf("the page asks the network for %q", asked)
	}
}
