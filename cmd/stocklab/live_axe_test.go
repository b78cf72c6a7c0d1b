package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest/browser"
	"github.com/stockd/stockd/internal/must"
)

// axe is the script of axe-core, which npm fetches. The test is skipped where npm cannot.
func axe(t *testing.T) string {
	t.Helper()
	const version, sum = "4.14.1", "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pack := exec.CommandContext(ctx, "npm", "pack", "--silent", "axe-core@"+version)
	pack.Dir = t.TempDir()
	if out, err := pack.CombinedOutput(); err != nil {
		t.Skipf("npm cannot fetch axe-core %s: %v\n%s", version, err, out)
	}
	script := must.Get(exec.CommandContext(ctx, "tar", "-xzOf", filepath.Join(pack.Dir, "axe-core-"+version+".tgz"), "package/axe.min.js").Output())(t)
	if got := fmt.Sprintf("%x", sha256.Sum256(script)); got != sum {
		t.Fatalf("the script has the checksum %s", got)
	}
	return string(script)
}

// assertAccessible has axe look at the page as it is.
func assertAccessible(t *testing.T, b *browser.Browser, script, state string) {
	t.Helper()
	browser.Evaluate[bool](t, b, script+"; true")
	browser.Evaluate[bool](t, b, `(window.found = null, axe.run(document, {resultTypes: ['violations']}).then(r => { window.found = r; }), true)`)
	b.Until(t, within, "window.found !== null")
	// What a page without violations passes tells that axe has looked at it.
	if n := browser.Evaluate[int](t, b, "window.found.passes.length"); n < 10 {
		t.Errorf("%s: axe passes %d rules only", state, n)
	}
	const serious = `window.found.violations.filter(v => ['serious', 'critical'].includes(v.impact))
		.map(v => v.id + ': ' + v.help + ': ' + v.nodes.map(n => n.target.join(' ')).slice(0, 3).join(', '))`
	for _, violation := range browser.Evaluate[[]string](t, b, serious) {
		t.Errorf("%s: %s", state, violation)
	}
}

func TestAxeFindsNothingSeriousOnThePage(t *testing.T) {
	t.Parallel()
	script := axe(t)
	url, b := openLive(t, "light", "--servers=embedded")
	assertAccessible(t, b, script, "before a sale")
	set(t, b, "strategy", "mutex")
	set(t, b, "stock", 100)
	click(t, b, "#start")
	b.Until(t, within, isOver+" && !document.getElementById('verdict').hidden")
	b.Resize(t, 1300, 2400, "dark")
	assertAccessible(t, b, script, "after it, in the dark")
	openTrace(t, b, "document.querySelector('#trace .step.read') !== null")
	assertAccessible(t, b, script, "the trace of a lease")
	click(t, b, "#trace-close")
	click(t, b, "#replay")
	b.Until(t, within, "!document.getElementById('player').hidden")
	assertAccessible(t, b, script, "in a replay")
	b.Resize(t, 390, 2400, "light")
	click(t, b, "#language")
	b.Until(t, within, "document.documentElement.lang === 'zh-CN'")
	assertAccessible(t, b, script, "on a phone, in Chinese")
	click(t, b, "#back")
	browser.Evaluate[bool](t, b, "(document.getElementById('experiment').value = 'reentrancy', true)")
	click(t, b, "#make")
	b.Until(t, within, madeVerdict+" === '已复现'")
	assertAccessible(t, b, script, "after an experiment")
	click(t, b, "#pair")
	b.Until(t, within, "document.getElementById('player-words').classList.contains('pair')")
	assertAccessible(t, b, script, "a failure beside its remedy")
	page, _, _ := strings.Cut(url, "#")
	b.Show(t, page+"buy", 390, 800, "dark")
	b.Until(t, within, "!document.getElementById('join').hidden")
	assertAccessible(t, b, script, "the phone of a buyer")
	browser.Evaluate[bool](t, b, "(document.getElementById('name').value = 'Ann', document.querySelector('#join button').click(), true)")
	b.Until(t, within, "!document.getElementById('shop').hidden")
	click(t, b, "#buy")
	b.Until(t, within, "document.getElementById('got').textContent !== '' && !document.getElementById('buy').disabled")
	assertAccessible(t, b, script, "the phone of a buyer that was answered")
	b.Show(t, page+"?lang=en", 390, 2400, "light")
	b.Until(t, within, isLive+" && !document.getElementById('reader').hidden")
	assertAccessible(t, b, script, "a reader without the token")
	_, flags := startOthers(t)
	b.Show(t, startLive(t, flags...), 390, 2400, "dark")
	b.Until(t, within, isLive+" && !document.getElementById('guest').hidden")
	assertAccessible(t, b, script, "replicas of others")
}
