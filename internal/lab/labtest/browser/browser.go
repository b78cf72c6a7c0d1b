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
)

// Browser is a tab, with what it complained of and asked for.
type Browser struct {
	context.Context

	mu     sync.Mutex
	errors []string
	asked  []string
}

// Open starts Chromium for some minutes at most, or skips where there is none.
func Open(t *testing.T, within time.Duration) *Browser {
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
	bounded, end := context.WithTimeout(t.Context(), within)
	t.Cleanup(end)
	allocator, end := chromedp.NewExecAllocator(bounded, options...)
	t.Cleanup(end)
	tab, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	b := &Browser{Context: tab}
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

// scratch is a folder for what the browser leaves behind when it is killed. A process of its own
// may still write there at the end of the test.
func scratch(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "stockd-browser-") //nolint:usetesting // its end would fail the test
	if err != nil {
		t.Fatal(err)
	}
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

// Errors are what it complained of.
func (b *Browser) Errors() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.errors)
}

// Asked are the addresses that it asked for and that begin with none of the given words.
func (b *Browser) Asked(except ...string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.asked), func(url string) bool {
		return slices.ContainsFunc(except, func(prefix string) bool { return strings.HasPrefix(url, prefix) })
	})
}

// Show opens a page in a window of a size, by day or by night.
func (b *Browser) Show(t *testing.T, url string, width, height int64, scheme string) {
	t.Helper()
	b.Resize(t, width, height, scheme)
	if err := chromedp.Do(b, chromedp.Navigate(url)); err != nil {
		t.Fatal(err)
	}
}

// Resize changes the window of the page that is open.
func (b *Browser) Resize(t *testing.T, width, height int64, scheme string) {
	t.Helper()
	if err := chromedp.Do(b, chromedp.EmulateViewport(width, height)); err != nil {
		t.Fatal(err)
	}
	_, err := chromedp.Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Press presses a key.
func (b *Browser) Press(t *testing.T, key string) {
	t.Helper()
	if err := chromedp.Do(b, chromedp.KeyEvent(key)); err != nil {
		t.Fatal(err)
	}
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
		t.Fatalf("%s did not come true within %s; the browser says %q, and the page\n%s", script, within, b.Errors(),
			Evaluate[string](t, b, "document.body.innerText.slice(0, 3000)"))
	}
}

// Keep takes a screenshot from an element on, and writes it where SCREENSHOTS says, to be
// looked at.
func (b *Browser) Keep(t *testing.T, selector, name string) {
	t.Helper()
	Evaluate[bool](t, b, fmt.Sprintf("(document.querySelector(%q).scrollIntoView({behavior: 'instant'}), true)", selector))
	image, err := chromedp.Run(b, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(image) < 2000 {
		t.Errorf("the screenshot of %s has %d bytes: there is nothing on it", selector, len(image))
	}
	if folder := os.Getenv("SCREENSHOTS"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, name+".png"), image, 0o644); err != nil { //nolint:gosec // the folder is the caller's choice
			t.Fatal(err)
		}
	}
}
