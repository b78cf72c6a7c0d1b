package history_test

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

func note(id string, seconds int, what history.EventKind, change func(*history.Event)) history.Line {
	line := event(id, seconds, what, 0)
	if change != nil {
		change(line.Lease)
	}
	return line
}

// Notes come in any order, and also when the lease is over.
func TestNotesBelongToTheirLease(t *testing.T) {
	h := read(t, written(t,
		note("1", 1, history.Asked, func(e *history.Event) { e.Request = "r" }),
		note("1", 2, history.VotedFor, func(e *history.Event) { e.By = "1" }),
		note("1", 3, history.Granted, func(e *history.Event) { e.Key, e.TTL, e.Left = "stockd:{1}:redlock", 3*time.Second, 2*time.Second }),
		note("1", 6, history.NotRenewed, func(e *history.Event) { e.Error = "no answer" }),
		note("1", 4, history.Renewed, func(e *history.Event) { e.TTL = 3 * time.Second }),
		event("1", 8, history.Released, 7),
		note("1", 3, history.NoVote, func(e *history.Event) { e.By, e.Error = "5", "timeout" }),
	))
	if len(h.Leases) != 1 {
		t.Fatalf("leases are %+v, want one", h.Leases)
	}
	l := h.Leases[0]
	if l.Request != "r" || l.Key != "stockd:{1}:redlock" || l.TTL != 3*time.Second || !l.Released.Equal(at(8)) {
		t.Errorf("the lease is %+v", l)
	}
	if l.Error != "" {
		t.Errorf("the lease has the error %q of a note", l.Error)
	}
	want := []history.EventKind{history.VotedFor, history.NoVote, history.Renewed, history.NotRenewed}
	for i, n := range l.Notes {
		if len(l.Notes) != len(want) || n.What != want[i] {
			t.Fatalf("notes are %+v, want %v", l.Notes, want)
		}
	}
	for seconds, expires := range map[int]int{3: 5, 4: 7, 8: 7} { // 3 s after the grant, or the renewal
		if got := l.ExpiresAt(at(seconds)); !got.Equal(at(expires)) {
			t.Errorf("at %d it expires at %s, want %s", seconds, got, at(expires))
		}
	}
}

// Each row is a lease of three seconds that was granted at 2, and when it was over before its
// holder let go of it.
func TestALeaseIsOutlivedByAHolderThatKeepsIt(t *testing.T) {
	renewed := history.Event{At: at(4), What: history.Renewed, TTL: 3 * time.Second}
	for name, c := range map[string]struct {
		l    history.Lease
		want time.Time
	}{
		"released in time":              {history.Lease{Released: at(4)}, time.Time{}},
		"released at its end":           {history.Lease{Released: at(5)}, time.Time{}},
		"released late":                 {history.Lease{Released: at(7)}, at(5)},
		"lost late":                     {history.Lease{Lost: at(6), Released: at(7)}, at(5)},
		"renewed, and released in time": {history.Lease{Released: at(7), Notes: []history.Event{renewed}}, time.Time{}},
		"renewed, and released late":    {history.Lease{Released: at(8), Notes: []history.Event{renewed}}, at(7)},
		"never released":                {history.Lease{}, at(5)},
		"renewed, and never released":   {history.Lease{Notes: []history.Event{renewed}}, at(7)},
	} {
		c.l.Granted, c.l.Expires, c.l.TTL = at(2), at(5), 3*time.Second
		if got := c.l.Outlived(); !got.Equal(c.want) {
			t.Errorf("%s: outlived at %s, want %s", name, got, c.want)
		}
	}
	if got := (history.Lease{Granted: at(2), Released: at(7)}).Outlived(); !got.IsZero() {
		t.Errorf("a lease that does not end by itself is outlived at %s", got)
	}
}

func TestATraceEndsWithTheStepThatEndsLast(t *testing.T) {
	trace := history.Trace{Steps: []history.Step{{At: at(1), Took: 5 * time.Second}, {At: at(2), Took: time.Second}}}
	if got := trace.End(); !got.Equal(at(6)) {
		t.Errorf("it ends at %s, want %s", got, at(6))
	}
}

func TestTracesAreInTheOrderOfTimeAndInTheirWindow(t *testing.T) {
	trace := func(id string, seconds int) history.Line {
		return history.Line{Trace: &history.Trace{Request: id, Steps: []history.Step{{At: at(seconds + 1)}, {At: at(seconds), What: history.StepRead}}}}
	}
	h := read(t, written(t, trace("late", 5), trace("early", 1)))
	if len(h.Traces) != 2 || h.Traces[0].Request != "early" {
		t.Errorf("traces are %+v", h.Traces)
	}
	if w := h.Window(at(4), at(6)); len(w.Traces) != 1 || w.Traces[0].Request != "late" {
		t.Errorf("the window has %+v", w.Traces)
	}
}
