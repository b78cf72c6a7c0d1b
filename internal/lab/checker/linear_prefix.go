package checker

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stockd/stockd/internal/lab/history"
)

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
	} else if len(w.ops) > 0 {
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

// last is the purchase whose answer ends the prefix.
func (p prefix) last() operation {
	return slices.MaxFunc(p.closed, func(a, b operation) int { return int(one(a.end > b.end) - one(a.end < b.end)) })
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
// answer but would make the search longer. The stock only falls, so of refusals of
// one quantity the first that was answered says it all. Of sales that found the
// same stock only one can have happened: that which was answered by the cut, or
// else the one that began first.
func (p prefix) operations() (steps []porcupine.Operation) {
	origin := p.origin()
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

// origin is the earliest time, which the picture calls 0.
func (p prefix) origin() int64 {
	if len(p.ops) == 0 {
		return 0
	}
	return p.ops[0].start
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
			return count(left.units, "unit")
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
		return s.operation.String() + " (still open)"
	default:
		return s.operation.String()
	}
}
