package report_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/stockd/stockd/internal/lab/labtest"
)

// browser is a real one, with what it said and asked for.
type browser struct {
	context.Context
	mutex  sync.Mutex
	errors []string
	asked  []string
}

// openBrowser starts Chromium, or skips where there is none.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	labtest.Need(t, "chromium", path != "", "apt-get install chromium brings it")
	// A test may run as root and in a container, where the sandbox does not.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
	bounded, end := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(end)
	allocator, end := chromedp.NewExecAllocator(bounded, options...)
	t.Cleanup(end)
	tab, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	b := &browser{Context: tab}
	if err := chromedp.Listen(tab, b.listen); err != nil {
		t.Fatal(err)
	}
	for _, enable := range []func() error{
		func() error { _, err := chromedp.Call(tab, network.Enable, network.EnableParams{}); return err },
		func() error { _, err := chromedp.Call(tab, log.Enable, cdp.Empty{}); return err },
	} {
		if err := enable(); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *browser) listen(event any) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		b.errors = append(b.errors, e.Entry.Text)
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.errors = append(b.errors, fmt.Sprint(e.Type, " on the console"))
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, "file:") && !strings.HasPrefix(e.Request.URL, "data:") {
			b.asked = append(b.asked, e.Request.URL)
		}
	}
}

// show opens the page as wide as given, by day or by night.
func (b *browser) show(t *testing.T, path string, width int64, scheme string) {
	t.Helper()
	// It is high, so that a screenshot has a whole part of the page: one of what is
	// outside of the window takes ten times as long.
	if err := chromedp.Do(b, chromedp.EmulateViewport(width, 2000)); err != nil {
		t.Fatal(err)
	}
	_, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(b, chromedp.Navigate("file://"+path)); err != nil {
		t.Fatal(err)
	}
}

func evaluate[T any](t *testing.T, b *browser, script string) T {
	t.Helper()
	value, err := chromedp.Run(b, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return value
}

// keep writes a screenshot where SCREENSHOTS says, to be looked at.
func (b *browser) keep(t *testing.T, selector, name string) {
	t.Helper()
	evaluate[bool](t, b, fmt.Sprintf("(document.querySelector(%q).scrollIntoView({behavior: 'instant'}), true)", selector))
	image, err := chromedp.Run(b, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(image) < 2000 {
		t.Errorf("the screenshot of %s has %d bytes: there is nothing on it", selector, len(image))
	}
	if folder := os.Getenv("SCREENSHOTS"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, name+".png"), image, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

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
	b := openBrowser(t)
	grounds := map[string]bool{}
	for _, width := range []int64{375, 1200} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d %s", width, scheme), func(t *testing.T) {
				b.show(t, path, width, scheme)
				if n := evaluate[int](t, b, "document.querySelectorAll('section.experiment').length"); n != len(r.Experiments) {
					t.Errorf("it has %d sections, want %d", n, len(r.Experiments))
				}
				if got := evaluate[int64](t, b, "document.documentElement.scrollWidth"); got > width {
					t.Errorf("it scrolls to the side: it is %d wide", got)
				}
				for _, script := range []string{tooWide, lettersOutside} {
					if list := evaluate[[]string](t, b, script); len(list) > 0 {
						t.Errorf("%d are wider than the page: %q", len(list), list[:min(5, len(list))])
					}
				}
				grounds[evaluate[string](t, b, "getComputedStyle(document.body).backgroundColor")] = true
				for _, part := range []string{"body", "#oversell", "#short-expiry", "#owner-gap"} {
					b.keep(t, part, fmt.Sprintf("%s-%d-%s", strings.Trim(part, "#"), width, scheme))
				}
			})
		}
	}
	if len(grounds) != 2 {
		t.Errorf("by day and by night the ground is %v, want two colours", grounds)
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if len(b.errors) > 0 {
		t.Errorf("the browser complains: %q", b.errors)
	}
	if len(b.asked) > 0 {
		t.Errorf("the page asks the network for %q", b.asked)
	}
}

func TestTheReportIsReadByKeyboardAndByScreenReaders(t *testing.T) {
	folder, _ := fakeRun(t)
	b := openBrowser(t)
	b.show(t, filepath.Join(folder, "report.html"), 375, "light")
	if err := chromedp.Do(b, chromedp.KeyEvent("\t")); err != nil {
		t.Fatal(err)
	}
	const focus = "(e => e.textContent + ' ' + (e.getBoundingClientRect().left >= 0) + ' ' + getComputedStyle(e).outlineStyle)(document.activeElement)"
	if got := evaluate[string](t, b, focus); got != "Skip to the experiments true solid" {
		t.Errorf("the first stop of the keyboard is %q, want the link that skips, to be seen, with an outline", got)
	}
	if err := chromedp.Do(b, chromedp.KeyEvent("\r")); err != nil {
		t.Fatal(err)
	}
	if got := evaluate[string](t, b, "document.activeElement.id"); got != "main" {
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
		if n := evaluate[int](t, b, script); n != 0 {
			t.Errorf("there are %d %s", n, what)
		}
	}
}
