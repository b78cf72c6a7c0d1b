package checker

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
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
	return slices.ContainsFunc(h.Audits, func(a history.Audit) bool { return a.GoodsID == last.GoodsID && a.Initial != last.Initial })
}

func (l *linearity) undecided(why Fact) { l.result, l.why = porcupine.Unknown, why }

func (l *linearity) add(w window, deadline time.Time) {
	l.windows++
	l.checked += len(w.ops)
	l.largest = max(l.largest, len(w.ops))
	l.sold += count(w.ops, func(o operation) bool { return o.outcome == history.Sold })
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

// operation is a purchase as its buyer meant it, however often it was sent.
type operation struct {
	client     int
	start, end int64 // in nanoseconds; the end is never where the outcome is unknown
	quantity   int64
	outcome    history.Outcome
	left       int64 // as the answer to a sale says
}

const never = math.MaxInt64

// before is the stock that a sale found. The stock only falls, so each sale finds
// one that no other finds.
func (o operation) before() int64 { return o.left + o.quantity }

func (o operation) fact() Fact {
	switch o.outcome {
	case history.Sold:
		return Say("answer-sold", o.quantity, o.left)
	case history.Rejected:
		return Say("answer-rejected", o.quantity)
	case history.Failed, history.Unknown:
	}
	return Say("answer-unknown", o.quantity)
}

// operationsOf are the purchases in the order of their starts. Failed ones did
// nothing, and are left out. Requests that were answered with the same order under
// the same key are one purchase, which took effect before the first of these
// answers and after the key was first sent.
func operationsOf(requests []history.Request) (ops []operation) {
	type order struct{ key, id string }
	first := make(map[string]int64)
	sold := make(map[order]int) // where it stands in ops
	for _, r := range requests {
		at, known := first[r.Key]
		if start := r.Start.UnixNano(); r.Outcome != history.Failed && (!known || start < at) {
			first[r.Key] = start
		}
	}
	settled := make(map[string]bool)
	for _, r := range requests {
		if r.Outcome != history.Sold {
			continue
		}
		o := operation{client: r.Client, start: r.Start.UnixNano(), end: r.End.UnixNano(), quantity: r.Quantity, outcome: r.Outcome, left: r.Remaining}
		if r.Key != "" {
			o.start = first[r.Key]
			settled[r.Key] = true
			if i, again := sold[order{r.Key, r.Order}]; again {
				ops[i].end = min(ops[i].end, o.end)
				continue
			}
			sold[order{r.Key, r.Order}] = len(ops)
		}
		ops = append(ops, o)
	}
	ops = append(ops, unsold(requests, first, settled)...)
	slices.SortStableFunc(ops, func(a, b operation) int { return cmp.Compare(a.start, b.start) })
	return ops
}

// unsold are the purchases that were rejected, and those that nothing is known of.
func unsold(requests []history.Request, first map[string]int64, settled map[string]bool) (ops []operation) {
	for _, r := range requests {
		o := operation{client: r.Client, start: r.Start.UnixNano(), end: r.End.UnixNano(), quantity: r.Quantity, outcome: r.Outcome}
		switch {
		case r.Outcome == history.Rejected:
			ops = append(ops, o)
		case r.Outcome == history.Unknown && !settled[r.Key]:
			o.end = never
			if r.Key != "" {
				o.start = first[r.Key]
				settled[r.Key] = true
			}
			ops = append(ops, o)
		}
	}
	return ops
}

// window is a part of the history that can be checked by itself: it begins when
// all purchases before it had been answered. What is left at such a time does not
// depend on their order. While an outcome is unknown there is no such time.
type window struct {
	initial int64
	ops     []operation
	// found are the stocks that some sale found, in any window. Nothing else can
	// have changed them, which spares most guesses about unknown outcomes.
	found map[int64]bool
}

func windowsOf(initial int64, ops []operation) (windows []window) {
	found := make(map[int64]bool)
	for _, o := range ops {
		if o.outcome == history.Sold {
			found[o.before()] = true
		}
	}
	var answered int64 // when all that began so far had been
	left := initial
	for _, o := range ops {
		if len(windows) == 0 || o.start > answered {
			windows = append(windows, window{initial: left, found: found})
		}
		w := &windows[len(windows)-1]
		w.ops = append(w.ops, o)
		answered = max(answered, o.end)
		if o.outcome == history.Sold {
			left -= o.quantity
		}
	}
	return windows
}

// check asks porcupine about ever longer beginnings of the window. Where one is
// illegal, so is the window, and all that is longer; the shortest such beginning is
// the one to look at.
func (w window) check(deadline time.Time) (porcupine.CheckResult, prefix) {
	ends := w.ends()
	legal := 0
	for size := 32; ; size *= 4 {
		size = min(size, len(ends))
		switch result := w.until(ends, size).check(deadline); {
		case result == porcupine.Illegal:
			return result, w.shortest(ends, legal, size, deadline)
		case result == porcupine.Unknown || size == len(ends):
			return result, prefix{}
		}
		legal = size
	}
}

// ends are the times of the answers that are checked, in their order: up to the
// first that contradicts another one all by itself, because a sale had found the
// same stock before. What comes later cannot mend that, and would only be dear to
// search.
func (w window) ends() (ends []int64) {
	answered := slices.DeleteFunc(slices.Clone(w.ops), func(o operation) bool { return o.end == never })
	slices.SortFunc(answered, func(a, b operation) int { return cmp.Compare(a.end, b.end) })
	seen := make(map[int64]bool)
	for _, o := range answered[:min(len(answered), maxOperations)] {
		ends = append(ends, o.end)
		if o.outcome != history.Sold {
			continue
		}
		if seen[o.before()] {
			break
		}
		seen[o.before()] = true
	}
	return ends
}

// shortest halves the distance between a beginning that is legal and one that is
// not, until nothing is between them.
func (w window) shortest(ends []int64, legal, illegal int, deadline time.Time) prefix {
	between := sort.Search(illegal-legal-1, func(i int) bool {
		return w.until(ends, legal+1+i).check(deadline) == porcupine.Illegal
	})
	return w.until(ends, legal+1+between)
}

// prefix is the beginning of a window, up to one of its answers: what was closed
// by then, and what was open.
type prefix struct {
	window

	cut          int64
	closed, open []operation
}

// until is the beginning of the window that ends with so many answers.
func (w window) until(ends []int64, answers int) prefix {
	p := prefix{window: w}
	if answers > 0 {
		p.cut = ends[answers-1]
	} else {
		p.cut = w.ops[len(w.ops)-1].start
	}
	for _, o := range w.ops {
		switch {
		case o.end <= p.cut:
			p.closed = append(p.closed, o)
		case o.start <= p.cut:
			p.open = append(p.open, o)
		}
	}
	return p
}

func (p prefix) last() operation {
	return slices.MaxFunc(p.closed, func(a, b operation) int { return cmp.Compare(a.end, b.end) })
}

func (p prefix) check(deadline time.Time) porcupine.CheckResult {
	left := time.Until(deadline)
	if left <= 0 { // porcupine takes 0 for no limit
		return porcupine.Unknown
	}
	return porcupine.CheckOperationsTimeout(p.model(), p.operations(), left)
}

// step is what porcupine is given: an operation, whether it may also have happened
// after the cut or not at all, or the cut itself.
type step struct {
	operation

	open, cut bool
}

// stockLeft is the state of the model: what is left, and whether the cut is past.
type stockLeft struct {
	units int64
	past  bool
}

// operations are the steps for porcupine, without those that cannot change its
// answer but would make the search longer. The stock only falls, so of rejections of
// one quantity the first that was answered says it all. Of sales that found the
// same stock only one can have happened: that which was answered by the cut, or
// else the one that began first.
func (p prefix) operations() (steps []porcupine.Operation) {
	origin := p.ops[0].start
	add := func(s step, from, to int64) {
		steps = append(steps, porcupine.Operation{ClientId: s.client, Input: s, Call: from - origin, Return: to - origin})
	}
	clients := 0
	rejected := make(map[int64]operation)
	sold := make(map[int64]bool)
	for _, o := range p.closed {
		clients = max(clients, o.client+1)
		if o.outcome == history.Rejected {
			if earliest, known := rejected[o.quantity]; !known || o.end < earliest.end {
				rejected[o.quantity] = o
			}
			continue
		}
		sold[o.before()] = true
		add(step{operation: o}, o.start, o.end)
	}
	for _, o := range rejected {
		add(step{operation: o}, o.start, o.end)
	}
	for _, o := range p.open {
		clients = max(clients, o.client+1)
		if o.outcome == history.Rejected || o.outcome == history.Sold && sold[o.before()] {
			continue
		}
		if o.outcome == history.Sold {
			sold[o.before()] = true
		}
		add(step{operation: o, open: true}, o.start, p.cut+3)
	}
	add(step{operation: operation{client: clients}, cut: true}, p.cut+1, p.cut+2)
	return steps
}

func (p prefix) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return stockLeft{units: p.initial} },
		Step: func(state, input, _ any) (bool, any) {
			left, known := state.(stockLeft)
			s, ok := input.(step)
			if !known || !ok {
				return false, state
			}
			may, next := p.step(left, s)
			return may, next
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
		DescribeState: func(state any) string {
			left, _ := state.(stockLeft)
			return fmt.Sprint(left.units, " units")
		},
	}
}

// step tells whether an operation may happen next, and what is left then. After
// the cut come those that did not happen before it.
func (p prefix) step(left stockLeft, s step) (may bool, next stockLeft) {
	next = left
	switch {
	case s.cut:
		next.past = true
		return true, next
	case left.past:
		return s.open, left
	case s.outcome == history.Rejected:
		return left.units < s.quantity, left
	case s.outcome == history.Sold:
		next.units = s.left
		return left.units == s.before() && s.left >= 0, next
	default:
		next.units -= s.quantity
		return left.units >= s.quantity && !p.found[left.units], next
	}
}

// String is what the picture says of a step.
func (s step) String() string {
	switch {
	case s.cut:
		return "here the window is cut"
	case s.open:
		return s.fact().english() + " (still open)"
	default:
		return s.fact().english()
	}
}
