package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// A picture of steps has so many requests at most, and so many steps of one.
const (
	mostTraces = 10
	mostSteps  = 40
	// leastStep is the part of the time at which the shortest step is drawn: some matter for when
	// they were, however short.
	leastStep = 250
)

// stepKeys are the steps that are drawn, those at the back first, by the classes of their colours.
func stepKeys() []Key {
	return []Key{
		{"purchase", "none of the steps below: it waits for its turn or for a connection"},
		{"wait", "acquire: it waits for the lock"},
		{"connect", "connects"},
		{"begin", "begins"},
		{"work", "works"},
		{"read", "reads"},
		{"write", "writes"},
		{"commit", "commits"},
		{"rollback", "rolls back"},
		{"release", "releases the lock"},
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
	spans := make(map[string][]span)
	l := lane{class: "lane", name: fmt.Sprintf("request %d", i+1)}
	count, least := make(map[history.StepKind]int), window.to.Sub(window.from)/leastStep
	for _, s := range t.Steps {
		count[s.What]++
		class := string(s.What)
		if s.What == history.StepAcquire {
			class = "wait"
		}
		if window.meets(span{s.At, s.End()}) {
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
