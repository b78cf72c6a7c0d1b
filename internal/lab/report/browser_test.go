package report_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest/browser"
)

// high is a window that has a whole part of the page: a screenshot of what is outside of
// the window takes ten times as long.
const high = 2000

// tooWide are the elements that reach beyond the right edge, but for those in a
// box that scrolls.
const tooWide = `[...document.querySelectorAll('body *')]
	.filter(e => !e.closest('.scroll, pre, svg, .skip, .unseen') && e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
	.map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60))`

// lettersOutside are the letters of pictures that reach beyond an edge.
const lettersOutside = `[...document.querySelectorAll('main svg text')]
	.filter(e => { const r = e.getBoundingClientRect(); return r.left < -0.5 || r.right > document.documentElement.clientWidth + 0.5 })
	.map(e => e.textContent)`

func TestABrowserShowsTheReportOnAPhoneAndOnADesk(t *testing.T) {
	folder, r := fakeRun(t)
	path := filepath.Join(folder, "report.html")
	b := browser.Open(t, 2*time.Minute)
	grounds := map[string]bool{}
	for width, scheme := range map[int64]string{375: "light", 1200: "dark"} {
		t.Run(fmt.Sprintf("%d %s", width, scheme), func(t *testing.T) {
			b.Show(t, "file://"+path, width, high, scheme)
			if n := browser.Evaluate[int](t, b, "document.querySelectorAll('section.experiment').length"); n != len(r.Experiments) {
				t.Errorf("it has %d sections, want %d", n, len(r.Experiments))
			}
			if got := browser.Evaluate[int64](t, b, "document.documentElement.scrollWidth"); got > width {
				t.Errorf("it scrolls to the side: it is %d wide", got)
			}
			for _, script := range []string{tooWide, lettersOutside} {
				if list := browser.Evaluate[[]string](t, b, script); len(list) > 0 {
					t.Errorf("%d are wider than the page: %q", len(list), list[:min(5, len(list))])
				}
			}
			grounds[browser.Evaluate[string](t, b, "getComputedStyle(document.body).backgroundColor")] = true
			for _, part := range []string{"body", "#oversell", "#short-expiry", "#owner-gap"} {
				b.Keep(t, part, fmt.Sprintf("%s-%d-%s", strings.Trim(part, "#"), width, scheme))
			}
		})
	}
	if len(grounds) != 2 {
		t.Errorf("by day and by night the ground is %v, want two colours", grounds)
	}
	if errors := b.Errors(); len(errors) > 0 {
		t.Errorf("the browser complains: %q", errors)
	}
	if asked := b.Asked("file:", "data:"); len(asked) > 0 {
		t.Errorf("the page asks the network for %q", asked)
	}
}

func TestTheReportIsReadByKeyboardAndByScreenReaders(t *testing.T) {
	folder, _ := fakeRun(t)
	b := browser.Open(t, 2*time.Minute)
	b.Show(t, "file://"+filepath.Join(folder, "report.html"), 375, high, "light")
	b.Press(t, "\t")
	const focus = "(e => e.textContent + ' ' + (e.getBoundingClientRect().left >= 0) + ' ' + getComputedStyle(e).outlineStyle)(document.activeElement)"
	if got := browser.Evaluate[string](t, b, focus); got != "Skip to the experiments true solid" {
		t.Errorf("the first stop of the keyboard is %q, want the link that skips, to be seen, with an outline", got)
	}
	b.Press(t, "\r")
	if got := browser.Evaluate[string](t, b, "document.activeElement.id"); got != "main" {
		t.Errorf("it skips to %q, want main", got)
	}
	for what, script := range map[string]string{
		"pictures without a title and a description": `[...document.querySelectorAll('svg[role=img]')]
			.filter(s => s.getAttribute('aria-labelledby').split(' ').some(id => !document.getElementById(id)?.textContent)).length`,
		"links that lead nowhere": `[...document.querySelectorAll('a[href^="#"]')]
			.filter(a => !document.getElementById(decodeURIComponent(a.getAttribute('href').slice(1)))).length`,
		"ids that are there twice":             `(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))`,
		"boxes that scroll and no key gets to": `[...document.querySelectorAll('.scroll, pre')].filter(e => e.tabIndex < 0).length`,
		"verdicts without a word": `[...document.querySelectorAll('.verdict, .state')]
			.filter(e => !/reproduced|not run|as expected/.test(e.textContent)).length`,
		"headings that skip a level": `(h => h.filter((e, i) => i > 0 && e.tagName[1] - h[i - 1].tagName[1] > 1).length)([...document.querySelectorAll('h1, h2, h3, h4')])`,
	} {
		if n := browser.Evaluate[int](t, b, script); n != 0 {
			t.Errorf("there are %d %s", n, what)
		}
	}
}

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
