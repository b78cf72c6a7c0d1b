// Package browser opens pages in a real Chromium, for tests.
package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"github.com/stockd/stockd/internal/must"
)

// Browser is a tab, with what it complained of and asked for.
type Browser struct {
	context.Context

	mu     sync.Mutex
	errors []string
	asked  []string
}

// lives bounds a Chromium: a test that hangs leaves none.
const lives = 20 * time.Minute

// Open starts Chromium, or skips where there is none. Each test that it is for has a tab of its own.
func Open(t *testing.T) *Browser {
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Env("TMPDIR="+scratch(t)))
	bounded, end := context.WithTimeout(t.Context(), lives)
	t.Cleanup(end)
	allocator, end := chromedp.NewExecAllocator(bounded, options...)
	t.Cleanup(end)
	return show(allocator, t)
}

// Tab opens another tab, which knows nothing of what the others have stored.
func (b *Browser) Tab(t *testing.T) *Browser {
	t.Helper()
	return show(b.Context, t, chromedp.WithNewBrowserContext())
}

func show(parent context.Context, t *testing.T, options ...chromedp.ContextOption) *Browser {
	t.Helper()
	tab, end := chromedp.NewContext(parent, options...)
	t.Cleanup(end)
	b := &Browser{Context: tab}
	must.Do(t, chromedp.Listen(tab, b.listen))
	must.Get(chromedp.Call(tab, network.Enable, network.EnableParams{}))(t)
	must.Get(chromedp.Call(tab, log.Enable, cdp.Empty{}))(t)
	return b
}

// scratch is a folder for what the browser leaves behind when it is killed. A process of its own
// may still write there at the end of the test.
func scratch(t *testing.T) string {
	t.Helper()
	folder := must.Get(os.MkdirTemp("", "stockd-browser-"))(t) //nolint:usetesting // its end would fail the test
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		b.errors = append(b.errors, e.Entry.Text)
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description // with its stack
		}
		b.errors = append(b.errors, text)
	case *runtime.EventConsoleAPICalled:
		b.errors = append(b.errors, fmt.Sprint(e.Type, " on the console"))
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	}
}

// AssertQuiet fails where the browser has complained, or asked for anything but what a page has and what is below an address.
func (b *Browser) AssertQuiet(t *testing.T, address string) {
	t.Helper()
	if errors := b.complaints(); len(errors) > 0 {
		t.Errorf("the browser complains: %q", errors)
	}
	own, _, _ := strings.Cut(address, "#")
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, asked := range b.asked {
		if !strings.HasPrefix(asked, own) && !strings.HasPrefix(asked, "data:") {
			t.Errorf("the page asks for %q", asked)
		}
	}
}

func (b *Browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.errors)
}

// AssertFits fails where elements reach beyond the right edge, but for those in a box that scrolls.
func (b *Browser) AssertFits(t *testing.T) {
	t.Helper()
	const tooWide = `[...document.querySelectorAll('body *')]
		.filter(e => !e.closest('.scroll, pre, svg, .skip, .unseen, .chart') && e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
		.map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60))`
	if list := Evaluate[[]string](t, b, tooWide); len(list) > 0 {
		t.Errorf("%d are wider than the page: %q", len(list), list[:min(5, len(list))])
	}
}

// Show opens a page in a window of a size, by day or by night.
func (b *Browser) Show(t *testing.T, url string, width, height int64, scheme string) {
	t.Helper()
	b.Resize(t, width, height, scheme)
	must.Do(t, chromedp.Do(b, chromedp.Navigate(url)))
}

// Resize changes the window of the page that is open.
func (b *Browser) Resize(t *testing.T, width, height int64, scheme string) {
	t.Helper()
	must.Do(t, chromedp.Do(b, chromedp.EmulateViewport(width, height)))
	_, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	must.Do(t, err)
}

// Press presses a key.
func (b *Browser) Press(t *testing.T, key string) {
	t.Helper()
	must.Do(t, chromedp.Do(b, chromedp.KeyEvent(key)))
}

// Evaluate is the value of a script.
func Evaluate[T any](t *testing.T, b *Browser, script string) T {
	t.Helper()
	value, err := chromedp.Run(b, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return value
}

// Until waits for a script to be true.
func (b *Browser) Until(t *testing.T, within time.Duration, script string) {
	t.Helper()
	for end := time.Now().Add(within); !Evaluate[bool](t, b, script); time.Sleep(50 * time.Millisecond) {
		if time.Now().Before(end) {
			continue
		}
		t.Fatalf("%s did not come true within %s; the browser says %q, and the page\n%s", script, within, b.complaints(),
			Evaluate[string](t, b, "document.body.innerText.slice(0, 3000)"))
	}
}

// Keep takes a screenshot from an element on where SCREENSHOTS names a folder for it, to be looked at.
func (b *Browser) Keep(t *testing.T, selector, name string) {
	t.Helper()
	folder := os.Getenv("SCREENSHOTS")
	if folder == "" {
		return
	}
	Evaluate[bool](t, b, fmt.Sprintf("(document.querySelector(%q).scrollIntoView({behavior: 'instant'}), true)", selector))
	image := must.Get(chromedp.Run(b, chromedp.CaptureScreenshot()))(t)
	must.Do(t, os.WriteFile(filepath.Join(folder, name+".png"), image, 0o644)) //nolint:gosec // the folder is the caller's choice
}
