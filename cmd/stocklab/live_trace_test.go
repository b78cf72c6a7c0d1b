package main

import (
	"fmt"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
)

// openTrace shows the trace of a lease of which a script is true, by the pointer, and returns its text.
func openTrace(t *testing.T, b *browser.Browser, script string) string {
	t.Helper()
	b.Until(t, within, fmt.Sprintf(`[...document.querySelectorAll('#lanes .hold')].some(bar => {
		const at = {bubbles: true, clientX: 1, clientY: 1};
		bar.dispatchEvent(new PointerEvent('pointerdown', at));
		bar.dispatchEvent(new PointerEvent('pointerup', at));
		return %s;
	})`, script))
	return browser.Evaluate[string](t, b, "document.getElementById('trace').innerText")
}

// renewedAndTraced is true of the trace of a lease that was renewed, with the steps of its request.
const renewedAndTraced = `[...document.querySelectorAll('#trace tr')].some(row => row.textContent.startsWith('renewed')) && document.querySelector('#trace .step.read') !== null`

func TestAPageShowsTheTraceOfALease(t *testing.T) {
	url := startLive(t, "embedded")
	b := browser.Open(t, shown)
	b.Show(t, url, 1300, 2400, "light")
	b.Until(t, within, isLive)
	for field, value := range map[string]any{"stock": 12, "clients": 6, "ttl_s": 1, "work_ms": 700, "strategy": "redis-reentrant"} {
		set(t, b, field, value)
	}
	click(t, b, "#start")
	b.Until(t, within, there("#lanes .note.renewed"))
	b.Until(t, within, isOver)
	said := openTrace(t, b, renewedAndTraced)
	if !cmdtest.ContainsAll(said, "redis-reentrant, token", "request ", "goods", "acquire", "read", "work", "write", "commit", "release", "renewed", "ms were left") {
		t.Errorf("the trace says %q", said)
	}
	b.Keep(t, "#lanes-title", "live-trace")
	b.Resize(t, 390, 2400, "dark")
	b.Keep(t, "#lanes-title", "live-trace-phone")
	if wide := browser.Evaluate[[]string](t, b, tooWide); len(wide) > 0 {
		t.Errorf("on a phone these are too wide: %q", wide)
	}
	assertTraceByKeys(t, b)
	click(t, b, "#replay")
	b.Until(t, within, "!document.getElementById('player').hidden")
	scrub(t, b, 0.99)
	if said := openTrace(t, b, renewedAndTraced); !cmdtest.ContainsAll(said, "renewed", "commit") {
		t.Errorf("replayed, the trace says %q", said)
	}
	assertQuiet(t, b, url)
}

// assertTraceByKeys closes the trace and opens that of another lease.
func assertTraceByKeys(t *testing.T, b *browser.Browser) {
	t.Helper()
	b.Press(t, "\x1b")
	b.Until(t, within, "document.getElementById('trace').hidden && document.activeElement.id === 'lanes'")
	for _, key := range []string{"\u0302", "\r"} { // the arrow to the left, and Enter
		b.Press(t, key)
	}
	b.Until(t, within, "!document.getElementById('trace').hidden && document.activeElement.id === 'trace-title'")
}
