package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
)

// A picture of steps has so many requests at most, and so many steps of one.
const (
	mostTraces = 10
	mostSteps  = 40
	// leastStep is the part of the time at which the shortest step is drawn: some matter for when
	// they were, however short.
	leastStep = 250
)

// stepKinds are the kinds of steps that are drawn, with what they are in.
func stepKinds() map[history.StepKind]string {
	return map[history.StepKind]string{
		history.StepPurchase: "purchase", history.StepAcquire: "wait", history.StepConnect: "connect", history.StepBegin: "begin", history.StepRead: "read",
		history.StepWork: "work", history.StepWrite: "write", history.StepCommit: "commit", history.StepRollback: "rollback", history.StepRelease: "release",
	}
}

// stepKeys are their legend, those at the back first.
func stepKeys() []Key {
	return []Key{
		{Class: "purchase", Words: "none of the steps below: it waits for its turn or for a connection"},
		{Class: "wait", Words: "acquire: it waits for the lock"},
		{Class: "connect", Words: "connects"},
		{Class: "begin", Words: "begins"},
		{Class: "work", Words: "works"},
		{Class: "read", Words: "reads"},
		{Class: "write", Words: "writes"},
		{Class: "commit", Words: "commits"},
		{Class: "rollback", Words: "rolls back"},
		{Class: "release", Words: "releases the lock"},
	}
}

// Steps draw what requests that were under way together did when. It is nil where none was traced.
func Steps(h *history.History) *Picture {
	if len(h.Traces) == 0 {
		return nil
	}
	of := typical(h.Traces)
	list := together(h.Traces, of)
	window := nearer(list, of)
	c := newClock(window.from, window.from, window.to)
	p := &Picture{Title: "What each request did"}
	list = slices.DeleteFunc(list, func(t history.Trace) bool { return !extentOf(t).meets(window) })
	lanes := make([]lane, 0, len(list))
	for i, t := range list {
		lanes = append(lanes, stepLane(i, t, window))
	}
	p.Desc = fmt.Sprintf("%s of %d that were traced, for %s; the longest has %s.", Plural(len(list), "request", "requests"), len(h.Traces),
		Duration(window.to.Sub(window.from).Round(time.Microsecond)), Plural(len(of.Steps), "step", "steps"))
	if begin := extentOf(list...).from; begin.Before(window.from) {
		p.notef("What was before, for %s, is not drawn.", Duration(window.from.Sub(begin).Round(time.Microsecond)))
	}
	p.lanes(c, lanes, nil, stepKeys())
	return p
}

// typical is the request that had most steps; of several, that of median length.
func typical(traces []history.Trace) history.Trace {
	most := slices.MaxFunc(traces, func(a, b history.Trace) int { return cmp.Compare(len(a.Steps), len(b.Steps)) })
	same := slices.DeleteFunc(slices.Clone(traces), func(t history.Trace) bool { return len(t.Steps) < len(most.Steps) })
	lasted := func(t history.Trace) time.Duration { return t.End().Sub(extentOf(t).from) }
	slices.SortStableFunc(same, func(a, b history.Trace) int { return cmp.Compare(lasted(a), lasted(b)) })
	return same[len(same)/2]
}

// together are the requests that were under way with one and ended next to it, in the order of their
// ends.
func together(traces []history.Trace, of history.Trace) []history.Trace {
	near := slices.DeleteFunc(slices.Clone(traces), func(t history.Trace) bool { return !extentOf(t).meets(extentOf(of)) })
	away := func(t history.Trace) time.Duration { return t.End().Sub(of.End()).Abs() }
	slices.SortStableFunc(near, func(a, b history.Trace) int { return cmp.Compare(away(a), away(b)) })
	near = near[:min(len(near), mostTraces)]
	slices.SortStableFunc(near, func(a, b history.Trace) int { return a.End().Compare(b.End()) })
	return near
}

// nearer is the time that is drawn: of a request with very many steps its last ones, and of requests
// that only wait for a lock at first what comes when one of them has it.
func nearer(list []history.Trace, of history.Trace) span {
	window := extentOf(list...)
	if over := len(of.Steps) - mostSteps; over > 0 {
		starts := make([]time.Time, 0, len(of.Steps))
		for _, s := range of.Steps {
			starts = append(starts, s.At)
		}
		slices.SortFunc(starts, time.Time.Compare)
		return span{starts[over], of.End()}
	}
	var granted time.Time
	for _, t := range list {
		for _, s := range t.Steps {
			if s.What == history.StepAcquire && (granted.IsZero() || s.End().Before(granted)) {
				granted = s.End()
			}
		}
	}
	return span{later(window.from, granted.Add(-window.to.Sub(granted)/20)), window.to}
}

func extentOf(list ...history.Trace) (whole span) {
	for _, t := range list {
		for _, s := range t.Steps {
			if whole.from.IsZero() || s.At.Before(whole.from) {
				whole.from = s.At
			}
			whole.to = later(whole.to, s.End())
		}
	}
	return whole
}

func stepLane(i int, t history.Trace, window span) lane {
	kinds, spans := stepKinds(), make(map[string][]span)
	l := lane{class: "lane", name: fmt.Sprintf("request %d", i+1)}
	count, least := make(map[history.StepKind]int), window.to.Sub(window.from)/leastStep
	for _, s := range t.Steps {
		count[s.What]++
		if class, ok := kinds[s.What]; ok && window.meets(span{s.At, s.End()}) {
			spans[class] = append(spans[class], span{s.At, later(s.End(), s.At.Add(least))})
		}
	}
	s := strip{height: rowHeight}
	for _, key := range stepKeys() {
		list := spans[key.Class]
		slices.SortFunc(list, func(a, b span) int { return a.from.Compare(b.from) })
		s.layers = append(s.layers, layer{key.Class, list})
	}
	l.strips = []strip{s}
	l.words = fmt.Sprintf("%s, %s, %s", t.Replica, Plural(count[history.StepRead], "read", "reads"), Plural(count[history.StepWrite], "write", "writes"))
	if n := count[history.StepRollback]; n > 0 {
		l.words += fmt.Sprintf(", %s", Plural(n, "rollback", "rollbacks"))
	}
	return l
}

// rowsHeight is how high a line of rows and gaps is, in pixels, without its words.
const rowsHeight = 22.0

// tablePlaces are the rows and gaps of the tables that are probed, from below to above. Not every
// table has all of them.
func tablePlaces() []string {
	return []string{
		"gap_below_5", "row_5", "gap_5_10", "row_10", "gap_10_10", "row_10_again", "gap_10_15", "row_15", "gap_15_20", "row_20", "gap_above_20",
	}
}

// Rows draw which rows and gaps of a table a statement locks, a line for each combination of index
// and isolation. It is nil where that was not tried.
func Rows(h *history.History) *Picture {
	p := &Picture{Title: "Which rows and gaps are locked"}
	places := tablePlaces()
	width := 100 / float64(len(places))
	y, locked, tried := 0.0, 0, 0
	for _, c := range innodb.Combinations() {
		p.text("lane", 0, y+12, "", combinationWords(c))
		y += laneHead
		for i, name := range places {
			value, ok := h.Figures[c.String()+"."+name]
			if !ok {
				continue
			}
			tried++
			locked += int(value)
			p.rowOrGap(name, value > 0, float64(i)*width, y, width)
		}
		y += rowsHeight + laneGap
	}
	if tried == 0 {
		return nil
	}
	p.height = y
	p.Desc = fmt.Sprintf("%d of %d rows and gaps are locked, in %d combinations of index and isolation.", locked, tried, len(innodb.Combinations()))
	p.Legend = []Key{
		{"over", "locked: high for a row, with its number; low for a gap between rows"},
		{"track free", "free: another connection changed the row, or inserted in the gap"},
	}
	return p
}

// rowOrGap is high for a row and low for a gap, so that the two differ where both are locked.
func (p *Picture) rowOrGap(name string, locked bool, x, y, width float64) {
	class, words, said := "track free", "track-words", "free"
	if locked {
		class, words, said = "over", "over-words", "locked"
	}
	top, high := y+7, rowsHeight-15
	number, isRow := strings.CutPrefix(name, "row_")
	if isRow {
		top, high = y+1, rowsHeight-4
	}
	p.rect(class, x+width*0.08, top, width*0.84, high, strings.ReplaceAll(name, "_", " ")+": "+said)
	if isRow {
		number, _, _ = strings.Cut(number, "_")
		p.text(words, x+width/2, y+14, "middle", number)
	}
}

func combinationWords(c innodb.Combination) string {
	index := map[innodb.Index]string{innodb.Primary: "primary key", innodb.Unique: "unique index", innodb.Plain: "index", innodb.None: "no index"}[c.Index]
	level := "READ COMMITTED"
	if strings.HasSuffix(c.String(), "_rr") {
		level = "REPEATABLE READ"
	}
	return index + ", " + level
}
