package checker

import (
	"fmt"
	"math"
	"strings"

	"github.com/stockd/stockd/internal/lab/history"
)

// AtLeast expects that a figure which the experiment measured is not below a
// value. A figure that was not measured is never as expected.
func AtLeast(name string, least float64) Check {
	return figure(name, fmt.Sprintf("at least %s", number(least)), func(v float64) bool { return v >= least })
}

// AtMost expects that a figure is not above a value.
func AtMost(name string, most float64) Check {
	return figure(name, fmt.Sprintf("at most %s", number(most)), func(v float64) bool { return v <= most })
}

// Between expects that a figure is neither below nor above the values.
func Between(name string, least, most float64) Check {
	return figure(name, fmt.Sprintf("%s to %s", number(least), number(most)), func(v float64) bool { return least <= v && v <= most })
}

// Times expects that a figure is at least so many times another.
func Times(name string, least float64, than string) Check {
	return func(h *history.History) Finding {
		a, hasA := h.Figures[name]
		b, hasB := h.Figures[than]
		if !hasA || !hasB {
			return inconclusive(fmt.Sprintf("%s and %s were not both measured", words(name), words(than)))
		}
		f := Finding{
			Holds: a >= least*b && a > 0, Numbers: map[string]float64{name: a, than: b},
			Says: fmt.Sprintf("%s is %s, %s is %s; at least %s times as much was expected", words(name), number(a), words(than), number(b), number(least)),
		}
		if b != 0 {
			f.Numbers["ratio"] = a / b
		}
		return f
	}
}

func figure(name, expected string, judge func(v float64) bool) Check {
	return func(h *history.History) Finding {
		v, measured := h.Figures[name]
		if !measured || math.IsNaN(v) || math.IsInf(v, 0) {
			return inconclusive(words(name) + " was not measured")
		}
		return Finding{
			Holds: judge(v), Says: fmt.Sprintf("%s is %s; %s was expected", words(name), number(v), expected),
			Numbers: map[string]float64{name: v},
		}
	}
}

// words is the name of a figure as one reads it.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// number is a figure with no more digits than it needs.
func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
