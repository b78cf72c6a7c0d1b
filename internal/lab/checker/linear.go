package checker

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stockd/stockd/internal/lab/history"
)

// What a check of linearizability may cost. Beyond that it is undecided, which is
// neither linearizable nor not.
const (
	maxOperations = 10_000 // of one window
	linearWithin  = 10 * time.Second
)

// Linearizable expects that some order of the purchases explains all answers: one
// in which each takes effect between its start and its end, each sale leaves what
// its answer says, and a rejection finds too few. A request of unknown outcome may
// have happened at any time after its start, or not at all. It is for strategies
// that answer what their own sale left, and for items that are stocked once.
func Linearizable() Check {
	return linear(func(l *linearity) bool { return l.result == porcupine.Ok && l.sold > 1 })
}

// NotLinearizable expects that no order of the purchases explains all answers.
func NotLinearizable() Check {
	return linear(func(l *linearity) bool { return l.result == porcupine.Illegal })
}

// DrawIllegal writes porcupine's picture of the shortest beginning of a window
// that no order explains. Where there is none it writes nothing.
func DrawIllegal(h *history.History, path string) (drawn bool, err error) {
	l := linearityOf(h)
	if l.result != porcupine.Illegal {
		return false, nil
	}
	_, info := porcupine.CheckOperationsVerbose(l.illegal.model(), l.illegal.operations(), linearWithin)
	if err := porcupine.VisualizePath(l.illegal.model(), info, path); err != nil {
		return false, fmt.Errorf("draw what is not linearizable: %w", err)
	}
	return true, nil
}

func linear(judge func(l *linearity) bool) Check {
	return func(h *history.History) Finding {
		l := linearityOf(h)
		return Found(judge(l), map[string]float64{
			"operations": float64(l.checked), "windows": float64(l.windows), "largest_window_operations": float64(l.largest),
		}, l.facts()...)
	}
}

// linearity is what porcupine says of a history.
type linearity struct {
	result                          porcupine.CheckResult
	why                             Fact // it is undecided
	checked, sold, windows, largest int
	illegal                         prefix
}

func (l *linearity) facts() []Fact {
	switch {
	case l.result == porcupine.Illegal:
		last := l.illegal.last()
		return []Fact{Say("not-linearizable", last.client, len(l.illegal.closed), l.illegal.initial), last.fact()}
	case l.result == porcupine.Unknown:
		return []Fact{Say("undecided"), l.why}
	case l.sold < 2:
		return []Fact{Say("too-few-sold")}
	default:
		return []Fact{Say("linearizable", l.checked, l.windows, l.largest)}
	}
}

// linearityOf checks item by item and window by window, until one is illegal.
func linearityOf(h *history.History) *linearity {
	l := &linearity{result: porcupine.Ok}
	deadline := time.Now().Add(linearWithin)
	requests := byItem(h.Requests)
	for _, a := range lastAudits(h) {
		purchases := requests[a.GoodsID]
		delete(requests, a.GoodsID)
		if stockedTwice(h, a) {
			l.undecided(Say("stocked-twice", a.GoodsID))
			continue
		}
		for _, w := range windowsOf(a.Initial, operationsOf(purchases)) {
			l.add(w, deadline)
			if l.result == porcupine.Illegal {
				return l
			}
		}
	}
	for item := range requests {
		l.undecided(Say("unknown-stock", item))
	}
	return l
}

// stockedTwice tells that the audits of an item do not agree on what there was to
// sell.
func stockedTwice(h *history.History, last history.Audit) bool {
	for _, a := range h.Audits {
		if a.GoodsID == last.GoodsID && a.Initial != last.Initial {
			return true
		}
	}
	return false
}

func (l *linearity) undecided(why Fact) { l.result, l.why = porcupine.Unknown, why }

func (l *linearity) add(w window, deadline time.Time) {
	l.windows++
	l.checked += len(w.ops)
	l.largest = max(l.largest, len(w.ops))
	for _, o := range w.ops {
		l.sold += int(OneIf(o.outcome == history.Sold))
	}
	result, illegal := w.check(deadline)
	switch {
	case result == porcupine.Illegal:
		l.result, l.illegal = result, illegal
	case len(w.ops) > maxOperations:
		l.undecided(Say("window-too-long", len(w.ops), maxOperations))
	case result == porcupine.Unknown:
		l.undecided(Say("window-too-slow", len(w.ops), linearWithin))
	}
}
