package live

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/labtest/browser"
)

const (
	pairShown  = 4 * time.Minute
	pairWithin = time.Minute
)

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
	r.Part = &PlayPart{Name: name, Does: "sells", Expect: "two holders", Remedy: remedy, Try: 1, Over: true, Says: "so it was"}
	return r
}

// A failure and its remedy may use the same lock, with the same holders: side by side each has its own, and
// only the two holders of one of them are two holders.
func TestAFailureAndItsRemedyHaveLocksOfTheirOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "saved.html")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	err = Save(f,
		leasesOf("unfenced", false, start, [2]int{0, 1000}, [2]int{500, 1500}),
		leasesOf("fenced", true, start.Add(time.Hour), [2]int{0, 700}, [2]int{800, 1500}))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b := browser.Open(t, pairShown)
	b.Show(t, "file://"+file, 1300, 2400, "light")
	b.Until(t, pairWithin, "document.getElementById('recording').selectedOptions[0]?.textContent === 'A unfenced | B fenced' && document.querySelectorAll('#lanes .hold').length > 0")
	const lanes = "[...document.querySelectorAll('#lanes .lane')].map((e) => e.textContent)"
	if got := browser.Evaluate[[]string](t, b, lanes); !slices.Equal(got, []string{"A replica-1", "A replica-2", "B replica-1", "B replica-2"}) {
		t.Errorf("the lanes are %q", got)
	}
	if bars := browser.Evaluate[int](t, b, "document.querySelectorAll('#lanes .hold').length"); bars != 4 {
		t.Errorf("there are %d leases, want two of each", bars)
	}
	// Its rectangle reaches from the first lane to the second.
	const two = "[...document.querySelectorAll('#lanes rect.two')].map((e) => `from ${e.getAttribute('y')}, ${e.getAttribute('height')} high`)"
	if got := browser.Evaluate[[]string](t, b, two); !slices.Equal(got, []string{"from 4, 82 high"}) {
		t.Errorf("two holders are drawn %q, want those of A once", got)
	}
	if errors := b.Errors(); len(errors) > 0 {
		t.Errorf("the browser complains: %q", errors)
	}
}

// The page draws two holders where the checker finds them.
func TestThePageSeesTheTwoHoldersOfTheChecker(t *testing.T) {
	b := browser.Open(t, pairShown)
	b.Show(t, desk(t).URL+"/", 1300, 800, "light")
	browser.Evaluate[bool](t, b, `(import('/lanes.js').then(({ twoHolders }) => {
		const a = { holder: 'a', lock: 'l', name: 'n', granted: 1, released: 5 };
		window.found = [
			[a, { ...a, granted: 3 }], [a, { ...a, granted: 5 }], [{ ...a, token: 7 }, { ...a, token: 7, granted: 3 }],
			[a, { ...a, lock: 'm', granted: 3 }], [a, { ...a, name: 'o', granted: 3 }],
			[{ ...a, shared: true }, { ...a, shared: true, granted: 3 }], [{ ...a, shared: true }, { ...a, granted: 3 }],
		].map((pair) => twoHolders(pair, 9).length);
	}), true)`)
	b.Until(t, pairWithin, "Boolean(window.found)")
	if got, want := browser.Evaluate[[]int](t, b, "window.found"), []int{1, 0, 0, 0, 0, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("two holders of: one replica; one after the other; one token; two locks; two names; readers; a reader and a writer: %v, want %v", got, want)
	}
}

// Each line of two sales that are compared has the figures of its own sale, counted from its own begin.
func TestTheLinesOfTwoSalesAreNotMixed(t *testing.T) {
	b := browser.Open(t, pairShown)
	b.Show(t, desk(t).URL+"/", 1300, 2400, "light")
	browser.Evaluate[bool](t, b, `(Promise.all(['compare', 'words', 'panels'].map((name) => import('/' + name + '.js'))).then(([{ Compare }, { t }, { element }]) => {
		const compare = new Compare(t, element);
		const sale = (strategy, sold) => ({ modes: [{ strategy }], verdict: { strategy, replicas: 3, stock: 10, sold, left: 10 - sold, oversold: 0, lost: 0, clean: true, per_second: 5, p50_ms: 1, p99_ms: 2 } });
		const point = (at, sold) => ({ at, seen: at, sold, stock: 10 - sold, seconds: 2, answers: { sold: sold * 2 } });
		compare.add(sale('left out', 1), [point(1, 1)], 1);
		compare.add(sale('first', 5), [point(1000, 3), point(2000, 5)], 1000);
		compare.add(sale('second', 9), [point(500000, 7), point(502000, 9)], 500000);
		document.getElementById('compare').hidden = false;
		compare.draw();
		window.drawn = compare.plots.flatMap((p) => p.series.slice(1).map((s, i) => s.label + ': ' + p.data[0].map((x, k) => [x, p.data[i + 1][k]]).filter(([, y]) => y != null).map((xy) => xy.join(' s ')).join(', ')));
		window.heads = [...document.querySelectorAll('#compare-table th[scope=col]')].map((th) => th.textContent);
	}), true)`)
	b.Until(t, pairWithin, "Boolean(window.heads)")
	want := []string{
		"A sold: 0 s 3, 1 s 5", "A left: 0 s 7, 1 s 5", "B sold: 0 s 7, 2 s 9", "B left: 0 s 3, 2 s 1",
		"A sold: 0 s 3, 1 s 5", "B sold: 0 s 7, 2 s 9",
	}
	if got := browser.Evaluate[[]string](t, b, "window.drawn"); !slices.Equal(got, want) {
		t.Errorf("the lines are %q, want %q", got, want)
	}
	if got := browser.Evaluate[[]string](t, b, "window.heads"); !slices.Equal(got, []string{"A: first, 3 replicas", "B: second, 3 replicas"}) {
		t.Errorf("the columns are %q", got)
	}
}
