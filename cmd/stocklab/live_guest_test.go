package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
	"github.com/stockd/stockd/internal/lab/servers"
)

// On replicas that others run a sale is sold, charted and judged. What needs processes of
// our own is greyed out, with the reason said.
func TestAPageShowsReplicasOfOthers(t *testing.T) {
	url, others := startLiveOnOthers(t)
	b := browser.Open(t, shown)
	b.Show(t, url, 1300, 2400, "light")
	b.Until(t, within, isLive)
	assertGreyedOut(t, b)
	set(t, b, "strategy", "sql-conditional")
	set(t, b, "stock", 200)
	click(t, b, "#start")
	b.Until(t, within, isOver+" && "+judged+" === 'sql-conditional: consistent'")
	if sold, replicas := browser.Evaluate[int](t, b, figure("n-sold")), browser.Evaluate[string](t, b, "document.querySelector('#form [name=replicas]').value"); sold != 200 || replicas != "2" {
		t.Errorf("it sold %d of 200 on %s replicas", sold, replicas)
	}
	b.Until(t, within, "/stock.*version/s.test(document.getElementById('view').innerText) && /redis\\s+not configured/.test(document.getElementById('view').innerText)")
	// Replicas are counted as they come and go.
	const counted = "document.querySelector('#form [name=replicas]').value"
	second := others.Replicas[1]
	if err := others.Leave(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	b.Until(t, within, counted+" === '1' && document.getElementById('marks').textContent.includes('replica-2 answers no more')")
	set(t, b, "strategy", "mutex") // exclusive on one replica alone
	click(t, b, "#start")
	b.Until(t, within, isOver+" && "+judged+" === 'mutex: consistent'")
	if !browser.Evaluate[bool](t, b, "document.getElementById('take').hidden") {
		t.Error("it offers to set up three replicas")
	}
	if err := others.Join(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	b.Until(t, within, counted+" === '2' && document.getElementById('marks').textContent.includes('replica-2 answers, too')")
	b.Keep(t, "body", "live-guest")
	click(t, b, "#language")
	b.Until(t, within, "document.getElementById('why-faults').textContent.includes('别人的进程')")
	assertGreyedOut(t, b)
	b.Resize(t, 390, 2400, "dark")
	if wide := browser.Evaluate[[]string](t, b, tooWide); len(wide) > 0 {
		t.Errorf("on a phone these are wider than the page: %q", wide)
	}
	b.Keep(t, "#lanes-panel", "live-guest-phone")
	assertQuiet(t, b, url)
}

// startLiveOnOthers runs stocklab live on two replicas that it has not started.
func startLiveOnOthers(t *testing.T) (url string, others *cluster.Cluster) {
	t.Helper()
	l := startLabOf(t, servers.Choice{Mode: servers.Embedded, Redis: servers.None, Etcd: servers.None}, cluster.Options{Replicas: 2})
	there := l.cluster.Client()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(there.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return startLive(t, "", "--url="+there.URL, "--admin-url="+there.AdminURL, "--token-file="+token), l.cluster
}

// assertGreyedOut looks for what replicas of others cannot do: it is there, cannot be used, and its
// reason is on the page and said with the control.
func assertGreyedOut(t *testing.T, b *browser.Browser) {
	t.Helper()
	const greyed = `['#form [name=replicas]', '#form [name=work_ms]', '#form [name=ttl_s]', '#experiment', '#make', '#window', '#freeze',
		'[data-machine=replica-1][data-action=kill]', '[data-machine=replica-1][data-action=pause]', '[data-machine=replica-1][data-action=trap]',
		'[data-machine=replica-1][data-action=remove]', '[data-machine=replica][data-action=add]'].filter((selector) => {
		const e = document.querySelector(selector);
		const why = (e?.getAttribute('aria-describedby') ?? '').split(' ').map((id) => document.getElementById(id)).find((p) => p?.id.startsWith('why-'));
		return !(e?.disabled && e.offsetParent && why?.offsetParent && why.textContent.length > 20);
	})`
	if got := browser.Evaluate[[]string](t, b, greyed); len(got) > 0 {
		t.Errorf("these are not greyed out with a reason: %q", got)
	}
	if !browser.Evaluate[bool](t, b, "document.querySelector('#against [value=replicas]').disabled && !document.querySelector('#against [value=group]').disabled && !document.getElementById('start').disabled") {
		t.Error("a comparison of numbers of replicas is offered, or what can be done is not")
	}
	if drawn := browser.Evaluate[string](t, b, "document.getElementById('lanes').textContent"); drawn != "" {
		t.Errorf("the lanes show %q, which was not measured", drawn)
	}
}
