package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/testlog"
)

// pages is one Chromium, in which each test has a tab of its own with the page of a stocklab live.
type pages struct {
	chromium *browser.Browser
	axe      string // its script; empty where npm cannot fetch it
	url      string
}

// pageTest is a test of a page that sells for others, too.
type pageTest struct {
	name string
	test func(p pages, t *testing.T)
}

// TestThePage has those share servers that can. Never are two pages open: it is to draw them that takes time, and they
// are drawn for as long as they are open.
func TestThePage(t *testing.T) {
	t.Parallel()
	p := pages{chromium: browser.Open(t)}
	t.Run("axe is there", func(t *testing.T) { p.axe = axe(t) })
	p.share(t, []string{"--servers=embedded"}, []pageTest{
		{"the story needs nothing but Next", pages.story},
		{"a sale that oversells", pages.oversells},
		{"the waiting room", pages.waitingRoom},
		{"two sales are compared", pages.compares},
		{"a reader without the token", pages.reader},
	})
	p.share(t, []string{"--servers=embedded"}, []pageTest{
		{"the trace of a lease", pages.trace}, {"two holders", pages.twoHolders}, {"an experiment", pages.experiment},
	})
	p.share(t, []string{"--servers=local,redis=none,zookeeper=none,etcd=none", "--proxies"}, []pageTest{
		{"replicas are added and removed", pages.resizes}, {"the way to a server is slowed and cut", pages.faults},
	})
	for _, alone := range []pageTest{
		{"leases are lost by a failover and by clocks", pages.losesLeases}, {"a class buys with its phones", pages.class}, {"replicas of others", pages.guest},
	} {
		t.Run(alone.name, func(t *testing.T) { alone.test(p, t) })
	}
}

// share runs tests on one page. After one that fails the others do not know what it has left.
func (p pages) share(t *testing.T, flags []string, tests []pageTest) {
	t.Helper()
	t.Run(strings.Join(flags, " ")+" for "+tests[0].name, func(t *testing.T) {
		p.url = startLive(t, flags...)
		for _, one := range tests {
			if !t.Run(one.name, func(t *testing.T) { one.test(p, t) }) {
				return
			}
		}
	})
}

// show opens the page. In the end the browser has complained of nothing.
func (p pages) show(t *testing.T, theme string) *browser.Browser {
	t.Helper()
	b := p.chromium.Tab(t)
	b.Show(t, p.url, 1300, 2400, theme)
	b.Until(t, within, isLive)
	t.Cleanup(func() { b.AssertQuiet(t, p.url) })
	return b
}

// open shows the page, and chooses what it begins with on new servers, but for the wishes of a test.
func (p pages) open(t *testing.T, theme string, wishes map[string]any) *browser.Browser {
	t.Helper()
	b := p.show(t, theme)
	setAll(t, b, map[string]any{
		"strategy": "naive", "group": false, "fence": false, "stock": 1000, "clients": 50, "replicas": 3, "rate": 0, "work_ms": 0, "ttl_s": 5, "room": 0,
	})
	setAll(t, b, wishes)
	return b
}

// start begins a sale, and returns when the last one is shown no more.
func start(t *testing.T, b *browser.Browser) {
	t.Helper()
	click(t, b, "#start")
	b.Until(t, within, "document.getElementById('verdict').hidden")
}

// setAll chooses in the form of the page.
func setAll(t *testing.T, b *browser.Browser, fields map[string]any) {
	t.Helper()
	for field, value := range fields {
		set(t, b, field, value)
	}
}

// startLive runs stocklab live, and returns the address that it prints.
func startLive(t *testing.T, flags ...string) string {
	t.Helper()
	if strings.HasPrefix(flags[0], "--servers=local") {
		cmdtest.NeedLocal(t)
	}
	live := exec.Command(os.Args[0], append([]string{"live"}, flags...)...)
	live.Env = cmdtest.Environment()
	said := &testlog.Lines{}
	live.Stderr = said
	out := must.Get(live.StdoutPipe())(t)
	must.Do(t, live.Start())
	t.Cleanup(func() {
		must.Do(t, live.Process.Signal(syscall.SIGINT))
		should.Fail(t, live.Wait(), nil, "it ended with", said.String())
	})
	lines := bufio.NewScanner(out) // it ends with the process
	if !lines.Scan() {
		t.Fatalf("it printed nothing:\n%s", said.String())
	}
	_, url, ok := strings.Cut(lines.Text(), "stocklab live: ")
	if !ok {
		t.Fatalf("it printed %q", lines.Text())
	}
	return url
}

// within is how long a condition of the page may take on a machine that is busy.
const within = 90 * time.Second

// set chooses in the form of the page.
func set(t *testing.T, b *browser.Browser, field string, value any) {
	t.Helper()
	script := fmt.Sprintf(`((e, v) => { if (e.type === 'checkbox') e.checked = v; else e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); return true; })(document.querySelector('#form [name=%s]'), %#v)`, field, value)
	browser.Evaluate[bool](t, b, script)
}

func click(t *testing.T, b *browser.Browser, selector string) {
	t.Helper()
	b.Until(t, within, fmt.Sprintf("(e => Boolean(e && !e.hidden && !e.disabled))(document.querySelector(%q))", selector))
	browser.Evaluate[bool](t, b, fmt.Sprintf("(document.querySelector(%q).click(), true)", selector))
}

// figure is a number of the page, as it is shown.
func figure(id string) string {
	return fmt.Sprintf("Number(document.getElementById(%q).textContent.replace(/\\D/g, ''))", id)
}

const (
	isLive = "document.getElementById('link').textContent === 'live'"
	isOver = "document.getElementById('n-phase').textContent === 'over'"
	// overlaps are the grants while another holder had the lock, in the words above the lanes.
	overlaps = `Number(/ (\d+) of them/.exec(document.getElementById('lanes-says').textContent)?.[1] ?? 0)`
	judged   = "document.getElementById('verdict-words').textContent"
)

// machine is the button of a replica or a server.
func machine(name, action string) string {
	return fmt.Sprintf("[data-machine=%q][data-action=%q]", name, action)
}

func there(selector string) string {
	return fmt.Sprintf("Boolean(document.querySelector(%q))", selector)
}

func (p pages) oversells(t *testing.T) {
	b := p.open(t, "light", map[string]any{"stock": 2000}) // more than naive sells out before the switch
	start(t, b)
	b.Until(t, within, figure("n-over")+" > 0")
	b.Keep(t, "body", "live-naive")

	click(t, b, machine("replica-2", "kill"))
	b.Until(t, within, there(machine("replica-2", "start")))
	click(t, b, machine("replica-2", "start"))
	b.Until(t, within, there(machine("replica-2", "kill")))
	should.Contain(t, browser.Evaluate[string](t, b, "document.getElementById('marks').textContent"), "replica-2 killed", "replica-2 started again")

	set(t, b, "strategy", "sql-conditional")
	click(t, b, "#switch")
	b.Until(t, within, isOver)
	b.Keep(t, "body", "live-verdict")
	if got := browser.Evaluate[string](t, b, judged); !strings.Contains(got, "naive, then sql-conditional: oversold by") {
		t.Errorf("the verdict is %q", got)
	}
	setAll(t, b, map[string]any{"strategy": "sql-conditional", "stock": 200})
	start(t, b)
	b.Until(t, within, isOver+" && "+judged+" === 'sql-conditional: consistent'")
	if sold, over := browser.Evaluate[int](t, b, figure("n-sold")), browser.Evaluate[int](t, b, figure("n-over")); sold != 200 || over != 0 {
		t.Errorf("sql-conditional sold %d of 200, and oversold %d", sold, over)
	}
}

// The row shows what lost updates left there until it is corrected; then the rest is sold exactly, to those who are admitted.
func (p pages) waitingRoom(t *testing.T) {
	b := p.open(t, "light", map[string]any{"stock": 300, "clients": 40, "work_ms": 50, "room": 20})
	start(t, b)
	b.Until(t, within, "document.getElementById('n-phase').textContent === 'selling'")
	set(t, b, "strategy", "sql-conditional") // before an update is lost
	b.Until(t, within, figure("l-waiting")+" > 0 && "+figure("l-admissions")+" > 0")
	b.Until(t, within, "!document.getElementById('correct').hidden")
	click(t, b, "#switch")
	click(t, b, "#correct")
	b.Until(t, within, "document.getElementById('marks').textContent.includes('corrected from the ledger')")
	b.Keep(t, "body", "live-room")
	b.Until(t, within, isOver)
	if sold, over := browser.Evaluate[int](t, b, figure("n-sold")), browser.Evaluate[int](t, b, figure("n-over")); sold != 300 || over != 0 {
		t.Errorf("sold %d of 300, and oversold %d", sold, over)
	}
}

// A holder that is paused beyond its TTL writes late. Without a fence its write is done;
// with one it is rejected.
func (p pages) twoHolders(t *testing.T) {
	b := p.open(t, "dark", map[string]any{"stock": 5000, "clients": 40, "ttl_s": 1, "strategy": "redis-setnx-ttl"})
	for _, c := range []struct {
		fenced bool
		want   string
	}{
		{false, "updates lost"},
		{true, "redis-setnx-ttl: consistent"},
	} {
		t.Run(fmt.Sprintf("fenced %v", c.fenced), func(t *testing.T) {
			set(t, b, "fence", c.fenced)
			start(t, b)
			b.Until(t, within, figure("n-sold")+" > 3")
			click(t, b, machine("replica-1", "trap"))
			b.Until(t, within, there(machine("replica-1", "resume")))
			// Others sell while the paused one still has the lock.
			b.Until(t, within, there("#lanes .two")+" && "+overlaps+" > 5")
			b.Until(t, within, there("#lanes .note.expired"))
			b.Keep(t, "#lanes-title", fmt.Sprintf("live-two-%v", c.fenced))
			assertKeysChoose(t, b)
			click(t, b, machine("replica-1", "resume"))
			b.Until(t, within, there(machine("replica-1", "trap")))
			click(t, b, "#stop")
			b.Until(t, within, isOver)
			should.Contain(t, browser.Evaluate[string](t, b, judged), c.want)
			if !c.fenced {
				click(t, b, "#replay")
				assertReplays(t, b, c.want)
				click(t, b, "#back")
				b.Until(t, within, isLive)
				p.assertSaved(t, c.want)
			}
		})
	}
}

// scrub shows the moment after a part of a recording.
func scrub(t *testing.T, b *browser.Browser, part float64) {
	t.Helper()
	browser.Evaluate[bool](t, b, fmt.Sprintf("(e => { e.value = e.max * %g; e.dispatchEvent(new Event('input')); return true; })(document.getElementById('scrub'))", part))
}

// assertReplays goes through a recording with two holders, to its end and its verdict.
func assertReplays(t *testing.T, b *browser.Browser, want string) {
	t.Helper()
	const hidden = "document.getElementById('verdict').hidden"
	b.Until(t, within, "!document.getElementById('player').hidden && !"+hidden)
	sold := browser.Evaluate[int](t, b, figure("n-sold"))
	two := false
	for part := 0.05; part < 1; part += 0.05 {
		scrub(t, b, part)
		b.Until(t, within, hidden)
		now := browser.Evaluate[int](t, b, figure("n-sold"))
		if now > sold {
			t.Errorf("%d are sold at %.2f of the recording, and %d in the end", now, part, sold)
		}
		if !two {
			if two = browser.Evaluate[bool](t, b, there("#lanes .two")); two {
				b.Keep(t, "body", "live-replay")
			}
		}
	}
	if !two {
		t.Error("no moment of the recording shows two holders")
	}
	browser.Evaluate[bool](t, b, "(document.getElementById('speed').value = '10', true)")
	scrub(t, b, 0.7)
	click(t, b, "#play")
	b.Until(t, within, "!"+hidden+" && document.getElementById('moment').textContent !== ''")
	should.Contain(t, browser.Evaluate[string](t, b, judged), want)
	should.Be(t, browser.Evaluate[int](t, b, figure("n-sold")), sold, "sold in the replay")
}

// assertSaved opens the saved file of a sale where there is no server.
func (p pages) assertSaved(t *testing.T, want string) {
	t.Helper()
	page, _, _ := strings.Cut(p.url, "#")
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, page+"saved", http.NoBody))(t)
	answer := must.Get(http.DefaultClient.Do(r))(t)
	defer answer.Body.Close() //nolint:errcheck // it was read
	content, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", answer.StatusCode, err)
	}
	file := filepath.Join(t.TempDir(), "saved.html")
	must.Do(t, os.WriteFile(file, content, 0o600))
	b := p.chromium.Tab(t)
	b.Show(t, "file://"+file, 1300, 2400, "light")
	assertReplays(t, b, want)
	should.Be(t, browser.Evaluate[int](t, b, "[...document.querySelectorAll('button, select, input')].filter(e => e.offsetParent && !e.disabled && !e.closest('#player, #lanes-panel, .top')).length"), 0, "controls of a server that can be used in the saved file")
	b.AssertQuiet(t, "file://")
}

// assertKeysChoose goes to the last lease and back by keys.
func assertKeysChoose(t *testing.T, b *browser.Browser) {
	t.Helper()
	press := func(key string) string {
		return browser.Evaluate[string](t, b, fmt.Sprintf(`(document.getElementById('lanes').dispatchEvent(new KeyboardEvent('keydown', {key: %q, cancelable: true})),
			document.getElementById('freeze').getAttribute('aria-pressed') + ' ' + document.getElementById('lease').textContent)`, key))
	}
	should.Contain(t, press("ArrowLeft"), "true replica-", "redis-setnx-ttl", "waited")
	if got := press("Escape"); !strings.HasPrefix(got, "false") {
		t.Errorf("after Escape the lanes are frozen: %q", got)
	}
}

func (p pages) reader(t *testing.T) {
	page, _, _ := strings.Cut(p.url, "#")
	b := p.chromium.Tab(t)
	b.Show(t, page, 390, 2400, "light")
	b.Until(t, within, isLive+" && !document.getElementById('reader').hidden && "+there("#machines button"))
	should.Be(t, browser.Evaluate[int](t, b, "[...document.querySelectorAll('#form button, #form input, #form select, #machines button')].filter(e => !e.disabled).length"), 0, "controls that can be used")
	browser.Evaluate[bool](t, b, "(fetch('sale/start', {method: 'POST', body: '{}'}).then(r => { window.name = String(r.status); }), true)")
	b.Until(t, within, "window.name === '403'")
	b.AssertFits(t)
	click(t, b, "#language")
	b.Until(t, within, "document.documentElement.lang === 'zh-CN' && document.getElementById('sale-title').textContent === '售卖'")
	b.Keep(t, "body", "live-phone")
	p.assertAccessible(t, b, "a reader without the token")
}

// Answers of a server are delayed, lost and cut off by hand, and come again. Nothing is
// oversold by that, and what is lost after the commit is not known.
func (p pages) faults(t *testing.T) {
	b := p.open(t, "light", map[string]any{"strategy": "sql-conditional", "stock": 1000000, "clients": 10, "rate": 50})
	b.Until(t, within, "!document.getElementById('summary').textContent.includes('does not answer')") // as a replica may have found a moment ago
	start(t, b)
	b.Until(t, within, figure("n-sold")+" > 3")
	marked := func(words string) {
		t.Helper()
		b.Until(t, within, fmt.Sprintf("document.getElementById('marks').textContent.includes(%q)", words))
	}
	click(t, b, machine("database", "drop"))
	marked("database has acted, and its answer is lost")
	click(t, b, machine("database", "slow"))
	// A purchase asks the database several times.
	b.Until(t, within, "Number(document.getElementById('chart-latency-says').textContent.match(/p50 ([0-9.]+)/)?.[1]) > 100")
	click(t, b, machine("database", "fast"))
	click(t, b, machine("database", "cut"))
	b.Until(t, within, "Number(document.getElementById('chart-answers-says').textContent.match(/failed ([0-9.]+)/)?.[1]) > 0")
	b.Keep(t, "#faults", "live-links")
	click(t, b, machine("database", "mend"))
	marked("database connected again")
	b.Until(t, within, "Number(document.getElementById('chart-answers-says').textContent.match(/sold ([0-9.]+)/)?.[1]) > 0")
	click(t, b, "#stop")
	b.Until(t, within, isOver+" && "+judged+" === 'sql-conditional: consistent'")
}

// A Redis that fails over before replication forgets who holds the lock, and so do masters whose
// clocks jump: both are seen as two holders.
func (p pages) losesLeases(t *testing.T) {
	if _, err := servers.FindFaketime(); err != nil {
		t.Skip(err)
	}
	p.url = startLive(t, "--servers=local,database=sqlite,zookeeper=none,etcd=none", "--redis-faults")
	b := p.show(t, "light")
	sell := func(strategy string, ttl, work int) {
		t.Helper()
		setAll(t, b, map[string]any{"strategy": strategy, "stock": 100000, "clients": 20, "work_ms": 1000 * work, "ttl_s": ttl})
		start(t, b)
		b.Until(t, within, "document.getElementById('n-phase').textContent === 'selling' && "+figure("n-sold")+" > 0")
	}
	ends := func() {
		t.Helper()
		b.Until(t, within, overlaps+" > 0")
		click(t, b, "#stop")
		b.Until(t, within, isOver)
	}
	sell("redlock", 30, 5) // all three clocks have to jump while one works
	for _, master := range []string{"redlock-1", "redlock-2", "redlock-3"} {
		click(t, b, machine(master, "ahead"))
	}
	ends()
	for _, master := range []string{"redlock-1", "redlock-2", "redlock-3"} {
		click(t, b, machine(master, "right"))
	}
	b.Keep(t, "#faults", "live-spare")
	sell("redis-setnx-owner", 8, 5) // the fail-over has to come while one works
	click(t, b, machine("redis-replica", "lag"))
	// The replica knows the holder of now. When two have sold, that one's lease has run out
	// there, and the holder of then is unknown to it.
	sold := browser.Evaluate[int](t, b, figure("n-sold"))
	b.Until(t, within, fmt.Sprintf("%s > %d", figure("n-sold"), sold+1))
	click(t, b, machine("redis", "kill")) // which nothing has to start again
	b.Until(t, within, there(machine("redis", "start")))
	click(t, b, machine("redis-replica", "promote"))
	ends()
	p.assertReplaced(t, b)
}

// assertReplaced looks at a primary after its replica took over: it says so and can be given nothing to do,
// and what is done to the other one is done to the server that replicas use.
func (p pages) assertReplaced(t *testing.T, b *browser.Browser) {
	t.Helper()
	if browser.Evaluate[bool](t, b, there("[data-machine=redis]")) {
		t.Error("the primary that was replaced has buttons")
	}
	should.Contain(t, browser.Evaluate[string](t, b, "document.getElementById('machines').textContent"), "redis-replica is the primary now")
	should.Be(t, p.command(t, "machines/redis/kill", ""), http.StatusConflict, "a kill of the primary that was replaced is answered with")
	click(t, b, machine("redis-replica", "kill"))
	b.Until(t, within, there(machine("redis-replica", "start")))
	start(t, b) // which starts it again
	b.Until(t, within, figure("n-sold")+" > 0")
	click(t, b, "#stop")
	b.Until(t, within, isOver)
}

// A replica is added while the others sell, and sells, too; one is removed, and answers what
// it has. Idle connections are closed meanwhile, so that a purchase that is sent at that very
// moment may fail: it is no evidence, and the audit is.
func (p pages) resizes(t *testing.T) {
	b := p.open(t, "light", map[string]any{"strategy": "sql-conditional", "stock": 1000000, "clients": 10, "rate": 100, "replicas": 2})
	start(t, b)
	b.Until(t, within, figure("n-sold")+" > 3")
	click(t, b, machine("replica", "add"))
	b.Until(t, within, there(machine("replica-3", "remove"))+" && document.getElementById('marks').textContent.includes('replica-3 sells, too')")
	click(t, b, machine("replica-1", "remove"))
	b.Until(t, within, "document.getElementById('marks').textContent.includes('replica-1 removed')")
	should.Be(t, browser.Evaluate[string](t, b, "document.querySelector('#form [name=replicas]').value"), "2", "replicas in the form")
	click(t, b, "#stop")
	b.Until(t, within, isOver+" && "+judged+" === 'sql-conditional: consistent'")
	const errors = "[...document.querySelectorAll('#verdict-figures div')].map((d) => d.textContent).join(' ')"
	should.Contain(t, browser.Evaluate[string](t, b, errors), "replicas3")
	b.Keep(t, "#faults", "live-resized")
}

// With one click an item is sold twice, and both sales are shown on the same axes.
func (p pages) compares(t *testing.T) {
	b := p.open(t, "dark", map[string]any{"strategy": "mutex", "stock": 60, "clients": 20, "work_ms": 5, "replicas": 1, "against": "replicas"})
	click(t, b, "#start")
	b.Until(t, within, "!document.getElementById('compare').hidden")
	const cells = "[...document.querySelectorAll('#compare-table tr')].map((tr) => [...tr.children].map((c) => c.textContent).join('|'))"
	rows := browser.Evaluate[[]string](t, b, cells)
	if len(rows) < 5 || rows[0] != "|A: mutex, one replica|B: mutex, 3 replicas" || !strings.HasPrefix(rows[1], "Verdict of the audit|consistent|") ||
		!strings.Contains(rows[1], "expected") || !strings.HasPrefix(rows[3], "sold|60|") {
		t.Errorf("the comparison is %q, want a consistent sale beside one that is not", rows)
	}
	should.Be(t, browser.Evaluate[int](t, b, "document.querySelectorAll('#compare-stock .u-legend .u-series').length"), 4, "series of the chart, two of each sale")
	b.Keep(t, "#compare", "live-compare")
}

// One steers, and the phones of a class buy: each in its own name, for real, and without
// steering anything.
func (p pages) class(t *testing.T) {
	port := must.Get(servers.FreePort())(t)
	_, token, ok := strings.Cut(startLive(t, "--servers=embedded", "--listen="+servers.Loopback(port), "--reached-at=shop.example:8090"), "http://shop.example:8090/")
	if !ok {
		t.Fatal("the address that steers is not the one by which the page is reached")
	}
	page := "http://" + servers.Loopback(port) + "/"
	url := page + token
	for host, want := range map[string]int{"shop.example:8090": http.StatusOK, "other.example:8090": http.StatusMisdirectedRequest} {
		request := cmdtest.Ask(t, http.MethodGet, page+"buy")
		request.Host = host
		answer := must.Get(http.DefaultClient.Do(request))(t)
		answer.Body.Close() //nolint:errcheck // it was not read
		should.Be(t, answer.StatusCode, want, "a phone that asks … is answered with", host)
	}
	desk, phone := p.chromium.Tab(t), p.chromium.Tab(t)
	desk.Show(t, url, 1300, 2400, "light")
	desk.Until(t, within, isLive)
	phone.Show(t, page+"buy", 390, 800, "light")
	const answered = "document.getElementById('got').textContent"
	join := func(name string) {
		browser.Evaluate[bool](t, phone, fmt.Sprintf("(document.getElementById('name').value = %q, document.querySelector('#join button').click(), true)", name))
		phone.Until(t, within, "!document.getElementById('shop').hidden")
	}
	phone.Until(t, within, "!document.getElementById('join').hidden")
	p.assertAccessible(t, phone, "the phone of a buyer")
	join("小明")
	press := func(want string) {
		t.Helper()
		// A finger that is too quick is not heard: it presses again.
		phone.Until(t, within, fmt.Sprintf("(document.getElementById('buy').click(), %s === %q)", answered, want))
	}
	press("Nothing is sold now.")
	set(t, desk, "strategy", "sql-conditional")
	click(t, desk, "#class-start")
	desk.Until(t, within, "document.getElementById('n-phase').textContent === 'selling'")
	press("You hold no. 1 of 5.")
	press("Sold out.")
	p.assertAccessible(t, phone, "the phone of a buyer that was answered")
	should.Be(t, browser.Evaluate[string](t, phone, "document.getElementById('mine').textContent"), "You have bought 5. You hold no. 5 of 5.", "the phone says")
	phone.Keep(t, "body", "live-buy")
	desk.Until(t, within, "document.getElementById('buyers').textContent.startsWith('小明 bought 5no. 5 of 5')")
	desk.Until(t, within, "(e => e.offsetParent && e.complete && e.naturalWidth > 0 && e.alt === 'QR code of http://shop.example:8090/buy')(document.getElementById('class-code'))")
	click(t, desk, "#projector")
	desk.Until(t, within, "(e => document.getElementById('controls').offsetParent === null && e.clientWidth > 500)(document.getElementById('class-code'))")
	desk.Keep(t, "body", "live-class")
	click(t, desk, "#class-start") // it is Stop now
	desk.Until(t, within, isOver+" && "+judged+" === 'sql-conditional: consistent'")
	should.Be(t, browser.Evaluate[int](t, desk, figure("n-sold")), 5, "sold by the ledger")
	desk.AssertQuiet(t, url)
	phone.AssertQuiet(t, url)
	// Another phone cannot have the same name, and says so in its language.
	browser.Evaluate[bool](t, phone, "(sessionStorage.clear(), true)")
	phone.Show(t, page+"buy", 390, 800, "light")
	click(t, phone, "#language")
	browser.Evaluate[bool](t, phone, "(document.getElementById('name').value = '小明', document.querySelector('#join button').click(), true)")
	phone.Until(t, within, "document.getElementById('said').textContent.startsWith('这个名字不能用：已有人使用')")
}

// No page is at an address that stands for all of them, and none at a stranger's name.
func TestThePageIsAtTheAddressesOfThisMachine(t *testing.T) {
	hosts, outside, err := hostsOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 5), Port: 8090})
	if err != nil || !slices.Equal(hosts, []string{"127.0.0.5:8090", "localhost:8090"}) || outside != hosts[0] {
		t.Errorf("on one address it is at %q, for others %s (%v)", hosts, outside, err)
	}
	hosts, outside, err = hostsOf(&net.TCPAddr{IP: net.IPv4zero, Port: 8090})
	if err != nil || len(hosts) < 2 || hosts[0] != "127.0.0.1:8090" || hosts[1] != "localhost:8090" || !slices.Contains(hosts, outside) {
		t.Errorf("on all addresses it is at %q, for others %s (%v)", hosts, outside, err)
	}
	for _, host := range hosts[2:] {
		address, err := netip.ParseAddrPort(host)
		if err != nil || address.Addr().IsUnspecified() || address.Addr().IsLoopback() || address.Port() != 8090 || hosts[2] != outside {
			t.Errorf("it is at %q, for others %s (%v)", hosts, outside, err)
		}
	}
}

// On replicas that others run a sale is sold, charted and judged. What needs processes of
// our own is greyed out, with the reason said.
func (p pages) guest(t *testing.T) {
	others, flags := startOthers(t)
	p.url = startLive(t, flags...)
	b := p.open(t, "light", map[string]any{"strategy": "sql-conditional", "stock": 200, "replicas": 2, "ttl_s": 5})
	assertGreyedOut(t, b)
	start(t, b)
	b.Until(t, within, isOver+" && "+judged+" === 'sql-conditional: consistent'")
	if sold, replicas := browser.Evaluate[int](t, b, figure("n-sold")), browser.Evaluate[string](t, b, "document.querySelector('#form [name=replicas]').value"); sold != 200 || replicas != "2" {
		t.Errorf("it sold %d of 200 on %s replicas", sold, replicas)
	}
	b.Until(t, within, "/stock.*version/s.test(document.getElementById('view').innerText) && /redis\\s+not configured/.test(document.getElementById('view').innerText)")
	// Replicas are counted as they come and go.
	const counted = "document.querySelector('#form [name=replicas]').value"
	second := others.Replicas[1]
	must.Do(t, others.Leave(t.Context(), second))
	b.Until(t, within, counted+" === '1' && document.getElementById('marks').textContent.includes('replica-2 answers no more')")
	set(t, b, "strategy", "mutex") // exclusive on one replica alone
	start(t, b)
	b.Until(t, within, isOver+" && "+judged+" === 'mutex: consistent'")
	if !browser.Evaluate[bool](t, b, "document.getElementById('take').hidden") {
		t.Error("it offers to set up three replicas")
	}
	must.Do(t, others.Join(t.Context(), second))
	b.Until(t, within, counted+" === '2' && document.getElementById('marks').textContent.includes('replica-2 answers, too')")
	b.Keep(t, "body", "live-guest")
	click(t, b, "#language")
	b.Until(t, within, "document.getElementById('why-faults').textContent.includes('别人的进程')")
	assertGreyedOut(t, b)
	b.Resize(t, 390, 2400, "dark")
	b.AssertFits(t)
	b.Keep(t, "#lanes-panel", "live-guest-phone")
	p.assertAccessible(t, b, "replicas of others")
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
	should.Be(t, browser.Evaluate[string](t, b, "document.getElementById('lanes').textContent"), "", "what was not measured is shown in the lanes as")
}

const (
	parts = "[...document.querySelectorAll('#parts li')]"
	// madeVerdict is what came of the experiment on the page.
	madeVerdict = "document.getElementById('play-verdict').textContent"
)

// An experiment is made on the servers of the page: each part is drawn while it happens, and judged
// by what stocklab lab run judges it by.
func (p pages) experiment(t *testing.T) {
	b := p.open(t, "light", nil)
	b.Until(t, within, "document.getElementById('experiment').options.length > 30")
	browser.Evaluate[bool](t, b, "(e => { e.value = 'watchdog'; e.dispatchEvent(new Event('change')); return true; })(document.getElementById('experiment'))")
	click(t, b, "#make")
	b.Until(t, within, parts+".length === 4 && "+there("#parts .now")+" && "+there("#lanes .two"))
	should.Be(t, p.command(t, "sale/start", `{"strategy":"naive","stock":10,"clients":1,"replicas":3,"ttl_s":5}`), http.StatusConflict, "a sale beside the experiment is answered")
	// The narrator has seen the lease end before its holder knew, and a second holder.
	const told = "document.getElementById('beats').textContent"
	b.Until(t, within, told+".includes('Its holder does not know') && "+told+".includes('two holders')")
	if !browser.Evaluate[bool](t, b, "document.getElementById('faults').hidden") {
		t.Error("an experiment can be disturbed by hand")
	}
	b.Keep(t, "body", "live-experiment")
	b.Until(t, within, madeVerdict+" !== ''")
	should.Be(t, browser.Evaluate[string](t, b, madeVerdict), "Reproduced", "the verdict is", browser.Evaluate[string](t, b, "document.getElementById('parts').innerText"))
	b.Until(t, within, "document.getElementById('play-why').innerText.includes('when a renewal fails')")
	b.Keep(t, "#played", "live-experiment-why")
	p.assertAccessible(t, b, "after an experiment")
	click(t, b, "#pair")
	b.Until(t, within, "document.getElementById('recording').selectedOptions[0]?.textContent === 'A redis-setnx-owner | B redis-reentrant'")
	scrub(t, b, 0.6)
	should.Contain(t, browser.Evaluate[string](t, b, "document.getElementById('lanes').textContent"), "A replica-1", "A replica-2", "B replica-1", "B replica-2")
	should.Be(t, browser.Evaluate[int](t, b, "document.querySelectorAll('#lanes .two').length"), 1, "of failure and remedy, those with two holders at once")
	b.Keep(t, "body", "live-experiment-pair")
	should.Contain(t, browser.Evaluate[string](t, b, "document.getElementById('player-words').textContent"), "Found: ")
	b.Keep(t, "body", "live-experiment-replay")
	click(t, b, "#language")
	b.Until(t, within, told+".includes('看门狗')")
	should.Contain(t, browser.Evaluate[string](t, b, "document.getElementById('player-words').innerText"), "个 TTL", "预期: ", "发现: ")
	should.Be(t, browser.Evaluate[bool](t, b, there("#player-words [lang=en]")), false, "in Chinese the replay has English words")
	const around = "document.getElementById('link').textContent + document.getElementById('marks').textContent"
	if words := browser.Evaluate[string](t, b, around); !strings.HasPrefix(words, "记录") || strings.Contains(words, "critical") {
		t.Errorf("in Chinese the replay has %q", words)
	}
	b.Keep(t, "body", "live-experiment-zh")
	p.assertAccessible(t, b, "a failure beside its remedy, in Chinese")
	click(t, b, "#back")
	b.Until(t, within, "[...document.querySelectorAll('#form input[type=number]')].every((i) => i.checkValidity()) && document.getElementById('form').elements.namedItem('clients').value > 0")
	assertSellsAfterAnExperiment(t, b)
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
func (p pages) command(t *testing.T, path, body string) int {
	t.Helper()
	page, token, _ := strings.Cut(p.url, "#token=")
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, page+path, strings.NewReader(body)))(t)
	r.Header.Set("Authorization", "Bearer "+token)
	answer := must.Get(http.DefaultClient.Do(r))(t)
	defer answer.Body.Close() //nolint:errcheck // the status is all that is asked for
	return answer.StatusCode
}

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

// renewedAndTraced is true of the trace of a lease that was renewed, with the steps of a request that was sold.
const renewedAndTraced = `[...document.querySelectorAll('#trace tr')].some(row => row.textContent.startsWith('renewed')) && document.querySelector('#trace .step.commit') !== null`

func (p pages) trace(t *testing.T) {
	b := p.open(t, "light", map[string]any{"stock": 12, "clients": 6, "ttl_s": 1, "work_ms": 700, "strategy": "redis-reentrant"})
	p.assertAccessible(t, b, "before a sale")
	start(t, b)
	b.Until(t, within, there("#lanes .note.renewed"))
	b.Until(t, within, isOver)
	said := openTrace(t, b, renewedAndTraced)
	should.Contain(t, said, "redis-reentrant, token", "request ", "goods", "acquire", "read", "work", "write", "commit", "release", "renewed", "ms were left")
	b.Keep(t, "#lanes-title", "live-trace")
	b.Resize(t, 390, 2400, "dark")
	b.Keep(t, "#lanes-title", "live-trace-phone")
	p.assertAccessible(t, b, "the trace of a lease, after its sale, on a phone in the dark")
	b.AssertFits(t)
	assertTraceByKeys(t, b)
	click(t, b, "#replay")
	b.Until(t, within, "!document.getElementById('player').hidden")
	scrub(t, b, 0.99)
	p.assertAccessible(t, b, "in a replay")
	should.Contain(t, openTrace(t, b, renewedAndTraced), "renewed", "commit")
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

// The first two sales of the story; the proof has all ten, which take minutes.
func (p pages) story(t *testing.T) {
	b := p.show(t, "light")
	followStory(t, b, false, true)
	click(t, b, "#tour-next")
	click(t, b, "#tour-next") // in mid-sale
	b.Until(t, within, "document.getElementById('tour-title').textContent.includes('4 of 10') && "+figure("n-over")+" > 0")
	click(t, b, "#tour-skip")
	click(t, b, "#stop")
	b.Until(t, within, isOver)
}

// followStory follows the story by Next alone. Where a sale is to fail it is not consistent, and elsewhere it is.
func followStory(t *testing.T, b *browser.Browser, sales ...bool) {
	t.Helper()
	for i, fails := range sales {
		click(t, b, "#tour-next")
		b.Until(t, within, fmt.Sprintf("document.getElementById('tour-title').textContent === 'The story, %d of 10' && document.getElementById('tour-verdict').textContent !== ''", i+1))
		if got := browser.Evaluate[string](t, b, "document.getElementById('tour-verdict').textContent"); strings.HasPrefix(got, "consistent") == fails || i == 0 && strings.Contains(got, "not expected") {
			t.Errorf("sale %d is %s", i+1, browser.Evaluate[string](t, b, "document.getElementById('verdict').innerText"))
		}
	}
}

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
func (p pages) assertAccessible(t *testing.T, b *browser.Browser, state string) {
	t.Helper()
	if p.axe == "" {
		return
	}
	browser.Evaluate[bool](t, b, p.axe+"; true")
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
