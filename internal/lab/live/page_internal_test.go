package live

import (
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd"
	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
)

const (
	// patience is how long a condition of the page may take on a machine that is busy.
	patience = 60 * time.Second
	isLive   = "document.getElementById('link').textContent === 'live'"
	back     = "!document.getElementById('player').hidden && (document.getElementById('back').click(), true)"
)

// openPage opens the page of a session without servers, whose state a test publishes. What the page
// posts is kept in the browser, and reaches no handler.
func openPage(t *testing.T, width int64) (b *browser.Browser, h *Handler, server *httptest.Server) {
	t.Helper()
	server = desk(t)
	h = served(server)
	h.session.hub.look(func(state *State) {
		state.Servers, state.Machines = map[string]servers.Info{"database": {Name: "a database"}}, []Machine{}
		for _, name := range []string{"naive", "mutex"} {
			state.Strategies = append(state.Strategies, service.Description{Name: name, Available: true, Needs: []string{}})
		}
		began{Sale{Phase: Idle, Settings: defaults(), Modes: []Mode{}}}.apply(state)
	})
	b = browser.Open(t)
	b.Show(t, server.URL+"/#token=secret", width, 1600, "light")
	b.Until(t, patience, isLive)
	browser.Evaluate[bool](t, b, `(window.posted = [], window.fetch = ((ask) => (path, how) => how?.method === 'POST' ? (posted.push(path), Promise.resolve(new Response('{}'))) : ask(path, how))(window.fetch), true)`)
	return b, h, server
}

func at(seconds float64) Millis { return Millis(1e12 + 1000*seconds) }

func publishSale(h *Handler, phase Phase, item int64, modes ...Mode) Sale {
	s := Sale{Phase: phase, Settings: defaults(), Item: item, Modes: modes}
	if phase == Ended {
		s.Verdict = &Verdict{Words: "consistent"}
		s.Verdict.Strategy, s.Verdict.Clean = "naive", true
	}
	h.session.hub.publish(s)
	return s
}

func TestAPageThatComesBackShowsNoStoryOfAnExperimentThatIsNoMore(t *testing.T) {
	b, h, server := openPage(t, 1300)
	hub := h.session.hub
	hub.publish(began{Sale{Phase: Playing, Settings: defaults(), Item: 1, Modes: []Mode{}}})
	hub.publish(&Play{Result: experiments.Result{Experiment: experiments.Experiment{Name: "one"}}, Parts: []PlayPart{{PartResult: experiments.PartResult{Part: experiments.Part{Name: "a"}, Tries: 1}}}})
	hub.publish(Mark{At: at(0), Who: "replica-1", What: "did something"})
	b.Until(t, patience, "!document.getElementById('story').hidden")
	server.CloseClientConnections()
	hub.publish((*Play)(nil)) // a sale begins while the page is away, and for long
	hub.publish(began{Sale{Phase: Selling, Settings: defaults(), Item: 2, Modes: []Mode{}}})
	sell(hub, 0, maxMessages)
	b.Until(t, patience, "document.getElementById('n-phase').textContent === 'selling' && "+isLive)
	if !browser.Evaluate[bool](t, b, "document.getElementById('story').hidden") {
		t.Error("beside a sale the page tells what happened in an experiment")
	}
}

func TestOnlyAPurchaseWithAFailpointIsOfferedToBePaused(t *testing.T) {
	b, h, server := openPage(t, 1300)
	h.session.hub.look(func(state *State) { state.WithoutFailpoint = withoutFailpoint() })
	b.Show(t, server.URL+"/?again#token=secret", 1300, 1600, "light")
	h.session.hub.publish(machines{{Name: "replica-1", Kind: "replica", Status: running}})
	offered := func(strategy string) bool {
		t.Helper()
		s := publishSale(h, Selling, 1, Mode{Strategy: strategy})
		h.session.hub.publish(Mark{At: at(0), What: "sell", Detail: s.Modes[0].Strategy})
		b.Until(t, patience, fmt.Sprintf("document.getElementById('marks').textContent.includes(%q)", strategy))
		b.Until(t, patience, "Boolean(document.querySelector('[data-machine=replica-1][data-action=pause]'))")
		return browser.Evaluate[bool](t, b, "Boolean(document.querySelector('[data-machine=replica-1][data-action=trap]'))")
	}
	for strategy, want := range map[string]bool{"redis-stock": false, "sql-procedure": false, "mutex": true} {
		should.Be(t, offered(strategy), want, "while … sells, a pause in mid-purchase is offered", strategy)
	}
}

func TestWhereNoProcessCanBePausedThePageSaysWhyAndOffersTheRest(t *testing.T) {
	b, h, server := openPage(t, 1300)
	h.session.hub.look(func(state *State) {
		state.CannotPause = true
		state.Machines = []Machine{{Name: "replica-1", Kind: "replica", Status: running}}
		began{Sale{Phase: Selling, Settings: defaults(), Item: 1, Modes: []Mode{{Strategy: "mutex"}}}}.apply(state)
	})
	b.Show(t, server.URL+"/?again#token=secret", 1300, 1600, "light")
	b.Until(t, patience, isLive)
	got := browser.Evaluate[string](t, b, "[...document.querySelectorAll('#machines button:disabled[aria-describedby=why-pause]')].map((e) => e.dataset.action).join() + ' ' + !document.getElementById('why-pause').hidden + ' ' + document.querySelector('[data-action=kill]').disabled")
	should.Be(t, got, "pause,trap true false", "greyed out")
}

func TestOnAPhoneTheNumbersStayInSightAndTheLanguageIsKept(t *testing.T) {
	b, h, server := openPage(t, 390)
	b.Resize(t, 390, 844, "light")
	for _, at := range []string{"#strategy", "#start", "#code-panel"} {
		browser.Evaluate[bool](t, b, fmt.Sprintf("(document.querySelector(%q).scrollIntoView(), true)", at))
		if y := browser.Evaluate[float64](t, b, "document.getElementById('n-stock').getBoundingClientRect().bottom"); y < 0 || y > 200 {
			t.Errorf("beside %s the numbers end at %.0f of 844 pixels", at, y)
		}
	}
	h.session.hub.publish(Mark{At: at(0), Who: "a"})
	h.session.hub.publish(Mark{At: at(-0.04), Who: "b"})
	h.session.hub.publish(recorded{Lanes{Until: at(0), Granted: 1}, []Lease{}})
	b.Until(t, patience, "document.getElementById('lanes-says').textContent.startsWith('1 lease granted') && document.getElementById('marks').textContent.includes(' 0.0 s b')")
	browser.Evaluate[bool](t, b, "(document.getElementById('language').click(), true)")
	for _, path := range []string{"/?again", "/buy"} {
		b.Show(t, server.URL+path, 390, 844, "light")
		b.Until(t, patience, "document.documentElement.lang === 'zh-CN'")
	}
}

func TestLibrariesOnTrialAreShownInBothLanguages(t *testing.T) {
	b, _, _ := openPage(t, 1200)
	browser.Evaluate[bool](t, b, "(document.querySelector('#trial summary').click(), true)")
	b.Until(t, patience, "document.getElementById('libraries').textContent.includes('redislock') && document.getElementById('libraries').textContent.includes('no two of 160 leases')")
	browser.Evaluate[bool](t, b, "(document.getElementById('language').click(), true)")
	b.Until(t, patience, "document.getElementById('libraries').textContent.includes('未承诺')")
	b.Until(t, patience, "document.getElementById('libraries').textContent.includes('160 次持锁没有重叠')")
}

func TestOnlyPartsThatWereMadeAreOfferedForReplay(t *testing.T) {
	b, h, _ := openPage(t, 1300)
	hub := h.session.hub
	play := &Play{Result: experiments.Result{Experiment: experiments.Experiment{Name: "one"}}, Parts: []PlayPart{{PartResult: experiments.PartResult{Part: experiments.Part{Name: "a"}, Tries: 1}}, {PartResult: experiments.PartResult{Part: experiments.Part{Name: "b", Remedy: true}}}}}
	offered := func() string {
		t.Helper()
		hub.publish(play)
		hub.publish(Sale{Phase: Ended, Settings: defaults(), Item: 1, Modes: []Mode{}})
		hub.publish(Mark{At: at(0), What: "end", Detail: fmt.Sprint(play.Parts)})
		b.Until(t, patience, fmt.Sprintf("document.getElementById('marks').textContent.includes(%q)", fmt.Sprint(play.Parts)))
		return browser.Evaluate[string](t, b, "['replay', 'save', 'pair'].filter((id) => !document.getElementById(id).hidden).join(' ')")
	}
	hub.publish(began{Sale{Phase: Playing, Settings: defaults(), Item: 1, Modes: []Mode{}}})
	should.Be(t, offered(), "", "what is offered of an experiment that was stopped in its first part")
	play.Parts[0].Over = true
	play.Parts[1].Tries = 1
	should.Be(t, offered(), "replay save", "of one that was stopped in its remedy")
	play.Parts[1].Over, play.Verdict = true, experiments.Reproduced
	should.Be(t, offered(), "replay save pair", "of one that was made")
}

func TestAPageThatWasTurnedAwayComesBack(t *testing.T) {
	b, h, server := openPage(t, 1300)
	h.readers.Add(maxReaders)
	server.CloseClientConnections()
	b.Until(t, patience, "document.getElementById('link').classList.contains('bad')")
	time.Sleep(5 * time.Second) // the browser has tried again by then, and got 503
	h.readers.Add(-maxReaders)
	b.Until(t, 20*time.Second, isLive)
}

func TestTheSecondSaleBeginsThoughThePageMissedTheEndOfTheFirst(t *testing.T) {
	b, h, _ := openPage(t, 1300)
	hub := h.session.hub
	browser.Evaluate[bool](t, b, "(document.getElementById('against').value = 'group', [1, 2].forEach(() => document.getElementById('start').click()), true)") // twice is once
	hub.publish(began{Sale{Phase: Selling, Settings: defaults(), Item: 1, Modes: []Mode{{Strategy: "naive"}}}})
	hub.publish(Point{At: at(0), Seen: at(0), Stock: 1000, Seconds: 1})
	b.Until(t, patience, "posted.length === 1 && !document.getElementById('replay').hidden")
	browser.Evaluate[bool](t, b, "(document.getElementById('replay').click(), true)")
	b.Until(t, patience, "!document.getElementById('player').hidden")
	publishSale(h, Ended, 1, Mode{Strategy: "naive"})
	b.Until(t, patience, back)
	b.Until(t, patience, "document.getElementById('n-phase').textContent === 'over' && "+isLive)
	b.Until(t, 10*time.Second, "posted.join() === 'sale/start,sale/start'")
	hub.publish(began{Sale{Phase: Selling, Settings: defaults(), Item: 2, Modes: []Mode{{Strategy: "naive"}}}})
	hub.publish(Point{At: at(1), Seen: at(1), Stock: 1000, Seconds: 1})
	publishSale(h, Ended, 2, Mode{Strategy: "naive"})
	b.Until(t, 10*time.Second, "!document.getElementById('compare').hidden && posted.length === 2")
}

func TestAPageThatIsLoadedAfterASwitchHasTheStrategyOfNow(t *testing.T) {
	b, h, server := openPage(t, 1300)
	publishSale(h, Selling, 1, Mode{Strategy: "naive"}, Mode{Strategy: "mutex", Group: true})
	b.Show(t, server.URL+"/?again#token=secret", 1300, 1600, "light")
	b.Until(t, patience, isLive)
	should.Be(t, browser.Evaluate[string](t, b, "document.getElementById('strategy').value + ' ' + document.querySelector('#form [name=group]').checked"), "mutex true", "it has")
	if !browser.Evaluate[bool](t, b, "document.getElementById('switch').hidden") {
		t.Error("it offers to switch to a strategy that the reader has not chosen")
	}
}

// Before its first sale nothing is known of the lock of a strategy.
func TestAStrategyIsSaidToRecordNoLockWhenItHasSold(t *testing.T) {
	b, h, _ := openPage(t, 1300)
	hub := h.session.hub
	hub.publish(machines{{Name: "replica-1", Kind: "replica", Status: running}})
	publishSale(h, Selling, 1, Mode{Strategy: "naive"})
	point := func(seconds float64, sold int) {
		t.Helper()
		hub.publish(Point{At: at(seconds), Seen: at(seconds), Stock: int64(1000 - sold), Seconds: 1, Answers: Answers{Sold: sold}})
		b.Until(t, patience, fmt.Sprintf("document.getElementById('n-stock').textContent.replace(/\\D/g, '') === '%d'", 1000-sold))
	}
	// Two changes of the language draw the page anew at once.
	const says = "(document.getElementById('language').click(), document.getElementById('language').click(), document.getElementById('lanes-says').textContent)"
	point(0, 0)
	point(0.5, 3)
	should.Be(t, browser.Evaluate[string](t, b, says), "", "half a second after the first sale the page says")
	point(2, 5)
	b.Until(t, patience, "document.getElementById('lanes-says').textContent.includes('naive records no lock')")
	hub.publish(began{Sale{Phase: Selling, Settings: defaults(), Item: 2, Modes: []Mode{{Strategy: "mutex"}}}})
	point(3, 7)
	point(5, 9)
	hub.publish(recorded{Lanes{Until: at(5), Granted: 1}, []Lease{{ID: "1", Holder: "replica-1", Lock: "mutex", Asked: at(3), Granted: at(3)}}})
	b.Until(t, patience, "document.getElementById('lanes-says').textContent.includes('1')")
	if got := browser.Evaluate[string](t, b, says); strings.Contains(got, "no lock") {
		t.Errorf("beside a lease the page says %q", got)
	}
}

func TestAPhoneThatIsPressedTwiceJoinsOnce(t *testing.T) {
	server := desk(t)
	b := browser.Open(t)
	b.Show(t, server.URL+"/buy", 390, 800, "light")
	b.Until(t, patience, "document.getElementById('language').textContent === '中文' && document.getElementById('shop').hidden")
	browser.Evaluate[bool](t, b, `(window.answers = 0, window.fetch = ((ask) => (...how) => ask(...how).finally(() => { answers++; }))(window.fetch), document.getElementById('name').value = '小明',
		document.querySelector('#join button').click(), document.querySelector('#join button').click(), true)`)
	b.Until(t, patience, "!document.getElementById('shop').hidden")
	time.Sleep(time.Second) // a second request would be answered by now
	should.Be(t, browser.Evaluate[string](t, b, "answers + document.getElementById('said').textContent"), "1", "the phone asks and says")
}

// leasesOf is a recording of a part whose replicas hold one lock from and to these milliseconds.
func leasesOf(name string, remedy bool, start time.Time, held ...[2]int) Recording {
	h := new(history.History)
	for i, times := range held {
		at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
		h.Leases = append(h.Leases, history.Lease{
			ID: fmt.Sprint(i), Holder: fmt.Sprintf("replica-%d", i+1), Lock: "redis-lua", Token: uint64(i + 1),
			Asked: at(times[0]), Granted: at(times[0]), Released: at(times[1]),
		})
	}
	r := OfHistory(name, h)
	made := experiments.PartResult{Part: experiments.Part{Name: name, Does: "sells", Expect: "two holders", Remedy: remedy}, Tries: 1, Finding: checker.Finding{Says: "so it was"}}
	r.Part = &PlayPart{PartResult: made, Over: true}
	return r
}

// A failure and its remedy may use the same lock, with the same holders: side by side each has its own, and
// only the two holders of one of them are two holders.
func TestAFailureAndItsRemedyHaveLocksOfTheirOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "saved.html")
	f := must.Get(os.Create(file))(t)
	start := time.Now()
	must.Do(t, Save(f,
		leasesOf("unfenced", false, start, [2]int{0, 1000}, [2]int{500, 1500}),
		leasesOf("fenced", true, start.Add(time.Hour), [2]int{0, 700}, [2]int{800, 1500})), f.Close())
	b := browser.Open(t)
	b.Show(t, "file://"+file, 1300, 2400, "light")
	b.Until(t, patience, "document.getElementById('recording').selectedOptions[0]?.textContent === 'A unfenced | B fenced' && document.querySelectorAll('#lanes .hold').length > 0")
	const lanes = "[...document.querySelectorAll('#lanes .lane')].map((e) => e.textContent)"
	should.Equal(t, browser.Evaluate[[]string](t, b, lanes), []string{"A replica-1", "A replica-2", "B replica-1", "B replica-2"}, "the lanes are")
	should.Be(t, browser.Evaluate[int](t, b, "document.querySelectorAll('#lanes .hold').length"), 4, "leases, two of each")
	// Its rectangle reaches from the first lane to the second.
	const two = "[...document.querySelectorAll('#lanes rect.two')].map((e) => `from ${e.getAttribute('y')}, ${e.getAttribute('height')} high`)"
	should.Equal(t, browser.Evaluate[[]string](t, b, two), []string{"from 4, 82 high"}, "two holders are drawn")
	b.AssertQuiet(t, "file:")
}

// Each line of two sales that are compared has the figures of its own sale, counted from its own begin.
func TestTheLinesOfTwoSalesAreNotMixed(t *testing.T) {
	b := browser.Open(t)
	b.Show(t, desk(t).URL+"/", 1300, 2400, "light")
	browser.Evaluate[bool](t, b, `(Promise.all(['compare', 'words'].map((name) => import('/' + name + '.js'))).then(([{ Compare }, { t }]) => {
		const compare = new Compare(t);
		const sale = (strategy, sold) => ({ modes: [{ strategy }], verdict: { strategy, replicas: 3, stock: 10, sold, left: 10 - sold, oversold: 0, lost: 0, clean: true, per_second: 5, p50_ms: 1, p99_ms: 2 } });
		const point = (at, sold) => ({ at, seen: at, sold, stock: 10 - sold, seconds: 2, answers: { sold: sold * 2, rejected: 0, failed: 0 } });
		compare.add(sale('left out', 1), [point(1, 1)], 1);
		compare.add(sale('first', 5), [point(1000, 3), point(2000, 5)], 1000);
		compare.add(sale('second', 9), [point(500000, 7), point(502000, 9)], 500000);
		document.getElementById('compare').hidden = false;
		compare.draw();
		window.drawn = compare.charts.plots.flatMap((p) => p.series.slice(1).map((s, i) => s.label + ': ' + p.data[0].map((x, k) => [x, p.data[i + 1][k]]).filter(([, y]) => y != null).map((xy) => xy.join(' s ')).join(', ')));
		window.heads = [...document.querySelectorAll('#compare-table th[scope=col]')].map((th) => th.textContent);
	}), true)`)
	b.Until(t, patience, "Boolean(window.heads)")
	want := []string{
		"A sold: 0 s 3, 1 s 5", "A left: 0 s 7, 1 s 5", "B sold: 0 s 7, 2 s 9", "B left: 0 s 3, 2 s 1",
		"A sold: 0 s 3, 1 s 5", "A out of stock: 0 s 0, 1 s 0", "A failed: 0 s 0, 1 s 0", "B sold: 0 s 7, 2 s 9", "B out of stock: 0 s 0, 2 s 0", "B failed: 0 s 0, 2 s 0",
	}
	should.Equal(t, browser.Evaluate[[]string](t, b, "window.drawn"), want, "the lines are")
	should.Equal(t, browser.Evaluate[[]string](t, b, "window.heads"), []string{"A: first, 3 replicas", "B: second, 3 replicas"}, "the columns are")
}

// Each moment of the narration is one that the page looks for, by the same name.
func TestThePageFindsTheMomentsOfTheNarration(t *testing.T) {
	script := must.Get(fs.ReadFile(page, "page/story.js"))(t)
	for _, line := range experiments.Narration() {
		if line.Moment != "" && !strings.Contains(string(script), "'"+line.Moment+"'") {
			t.Errorf("the page never finds %q", line.Moment)
		}
	}
}

// What is shown is where a reader would look for it: the lines of the file are those of the text.
func TestEveryStrategyHasItsOwnLines(t *testing.T) {
	for _, entry := range strategy.Registry() {
		list := must.Get(listings(entry.Name))(t)
		file := strings.ReplaceAll(entry.Name, "-", "_") + ".go"
		if !strings.HasSuffix(list[0].Path, "/"+file) && !strings.Contains(list[0].Text, `"`+entry.Name+`"`) {
			t.Errorf("the first listing of %s neither names it nor is of %s", entry.Name, file)
		}
		for _, l := range list {
			content := must.Get(stockd.Sources.ReadFile(l.Path))(t)
			lines := strings.SplitAfter(string(content), "\n")
			if l.Text == "" || !strings.HasPrefix(strings.Join(lines[l.Line-1:], ""), l.Text) {
				t.Errorf("%s: %s does not have this text from line %d", entry.Name, l.Path, l.Line)
			}
		}
	}
}
