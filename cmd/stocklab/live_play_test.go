package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
)

const (
	parts = "[...document.querySelectorAll('#parts li')]"
	// madeVerdict is what came of the experiment on the page.
	madeVerdict = "document.getElementById('play-verdict').textContent"
)

// An experiment is made on the servers of the page: each part is drawn while it happens, and judged
// by what stocklab lab run judges it by.
func TestAPagePlaysAnExperiment(t *testing.T) {
	url := startLive(t, "embedded")
	b := browser.Open(t, shown)
	b.Show(t, url, 1300, 2400, "light")
	b.Until(t, within, isLive+" && document.getElementById('experiment').options.length > 30")
	browser.Evaluate[bool](t, b, "(e => { e.value = 'watchdog'; e.dispatchEvent(new Event('change')); return true; })(document.getElementById('experiment'))")
	click(t, b, "#make")
	b.Until(t, within, parts+".length === 4 && "+there("#parts .now")+" && "+there("#lanes .two"))
	if status := command(t, url, "sale/start", `{"strategy":"naive","stock":10,"clients":1,"replicas":3,"ttl_s":5}`); status != http.StatusConflict {
		t.Errorf("a sale beside the experiment is answered %d, want 409", status)
	}
	// The narrator has seen the lease end before its holder knew, and a second holder.
	const told = "document.getElementById('beats').textContent"
	b.Until(t, within, told+".includes('Its holder does not know') && "+told+".includes('two holders')")
	if !browser.Evaluate[bool](t, b, "document.getElementById('faults').hidden") {
		t.Error("an experiment can be disturbed by hand")
	}
	b.Keep(t, "body", "live-experiment")
	b.Until(t, within, madeVerdict+" !== ''")
	if got := browser.Evaluate[string](t, b, madeVerdict); got != "Reproduced" {
		t.Errorf("the verdict is %q: %s", got, browser.Evaluate[string](t, b, "document.getElementById('parts').innerText"))
	}
	click(t, b, "#pair")
	b.Until(t, within, "document.getElementById('recording').selectedOptions[0]?.textContent === 'A redis-setnx-owner | B redis-reentrant'")
	scrub(t, b, 0.6)
	if lanes := browser.Evaluate[string](t, b, "document.getElementById('lanes').textContent"); !cmdtest.ContainsAll(lanes, "A replica-1", "A replica-2", "B replica-1", "B replica-2") {
		t.Errorf("side by side the lanes are %q", lanes)
	}
	if two := browser.Evaluate[int](t, b, "document.querySelectorAll('#lanes .two').length"); two != 1 {
		t.Errorf("of failure and remedy %d have two holders at once, want the failure alone", two)
	}
	b.Keep(t, "body", "live-experiment-pair")
	if words := browser.Evaluate[string](t, b, "document.getElementById('player-words').textContent"); !strings.Contains(words, "Found: ") {
		t.Errorf("the replay says %q", words)
	}
	b.Keep(t, "body", "live-experiment-replay")
	click(t, b, "#language")
	b.Until(t, within, told+".includes('看门狗')")
	if words := browser.Evaluate[string](t, b, "document.getElementById('player-words').innerText"); !cmdtest.ContainsAll(words, "个 TTL", "预期: ", "发现: ") ||
		browser.Evaluate[bool](t, b, there("#player-words [lang=en]")) {
		t.Errorf("in Chinese the replay says %q", words)
	}
	const around = "document.getElementById('link').textContent + document.getElementById('marks').textContent"
	if words := browser.Evaluate[string](t, b, around); !strings.HasPrefix(words, "记录") || strings.Contains(words, "critical") {
		t.Errorf("in Chinese the replay has %q", words)
	}
	b.Keep(t, "body", "live-experiment-zh")
	click(t, b, "#back")
	b.Until(t, within, "[...document.querySelectorAll('#form input[type=number]')].every((i) => i.checkValidity()) && document.getElementById('form').elements.namedItem('clients').value > 0")
	assertSellsAfterAnExperiment(t, b)
	assertQuiet(t, b, url)
}

// assertSellsAfterAnExperiment stops an experiment before its end, and sells on replicas that are
// started again.
func assertSellsAfterAnExperiment(t *testing.T, b *browser.Browser) {
	t.Helper()
	b.Until(t, within, "document.getElementById('link').textContent === '实时' && document.getElementById('experiment').selectedOptions[0].textContent.startsWith('10 看门狗')")
	browser.Evaluate[bool](t, b, "(document.getElementById('experiment').value = 'try-lock', true)")
	click(t, b, "#make")
	b.Until(t, within, there("#parts .now"))
	click(t, b, "#end-play")
	b.Until(t, within, madeVerdict+" === '已停止' && document.getElementById('end-play').hidden")
	click(t, b, "#start")
	b.Until(t, within, figure("n-sold")+" > 10 && document.getElementById('played').hidden")
	click(t, b, "#stop")
	b.Until(t, within, "!document.getElementById('verdict').hidden")
}

// command sends a command with its token, and returns the status of the answer.
func command(t *testing.T, url, path, body string) int {
	t.Helper()
	page, token, _ := strings.Cut(url, "#token=")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, page+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // the status is all that is asked for
	return answer.StatusCode
}
