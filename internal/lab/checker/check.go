// Package checker judges histories. A check is a function of the evidence alone, so
// that a report can be made again without running anything.
package checker

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// Check judges the history of one try.
type Check func(h *history.History) Finding

// Finding is what a check found.
type Finding struct {
	// Holds tells whether what was expected is there.
	Holds bool `json:"holds"`
	// Says is the finding in one English sentence, with its numbers, whether it holds or not: that of Facts.
	Says string `json:"says"`
	// Facts are what it says, for every language.
	Facts []Fact `json:"facts,omitempty"`
	// Numbers are the figures behind it, by name in snake_case with the unit at
	// the end: oversold_units, longest_wait_ms, wakeups_per_release.
	Numbers map[string]float64 `json:"numbers"`
}

// All expects what each of the checks expects. Its sentence is all of theirs. A
// number that two of them found differently is kept twice, the later ones with a
// count behind their name: longest_wait_ms, longest_wait_ms_2.
func All(checks ...Check) Check {
	return func(h *history.History) Finding {
		if len(checks) == 0 {
			return inconclusive("nothing-expected")
		}
		all := Found(true, nil)
		for _, c := range checks {
			f := c(h)
			all.Holds = all.Holds && f.Holds
			all.add(f.Facts...)
			for name, value := range f.Numbers {
				all.keep(name, value)
			}
		}
		return all
	}
}

// keep adds a number under its name, or under the next that is free.
func (f *Finding) keep(name string, value float64) {
	free := name
	for i := 2; ; i++ {
		if had, taken := f.Numbers[free]; !taken || had == value {
			f.Numbers[free] = value
			return
		}
		free = name + "_" + strconv.Itoa(i)
	}
}

// snake makes a number's name of words.
func snake(words string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' {
			return '_'
		}
		return r
	}, strings.ToLower(words))
}

// AtLeast expects that a figure which the experiment measured is not below a
// value. A figure that was not measured is never as expected.
func AtLeast(name string, least float64) Check {
	return figure(name, Say("at-least", number(least)), func(v float64) bool { return v >= least })
}

// AtMost expects that a figure is not above a value.
func AtMost(name string, most float64) Check {
	return figure(name, Say("at-most", number(most)), func(v float64) bool { return v <= most })
}

// Exceeds expects that a figure is above another one.
func Exceeds(name, other string) Check {
	return func(h *history.History) Finding {
		than, ok := measured(h, other)
		if !ok {
			return inconclusive("not-measured", spaced(other))
		}
		return figure(name, Say("more-than", number(than)), func(v float64) bool { return v > than })(h)
	}
}

func figure(name string, expected Fact, judge func(v float64) bool) Check {
	return func(h *history.History) Finding {
		v, ok := measured(h, name)
		if !ok {
			return inconclusive("not-measured", spaced(name))
		}
		return Found(judge(v), map[string]float64{name: v}, Say("figure", spaced(name), number(v)), expected)
	}
}

func measured(h *history.History, name string) (v float64, ok bool) {
	v, ok = h.Figures[name]
	return v, ok && !math.IsNaN(v) && !math.IsInf(v, 0)
}

func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Reported passes when every figure was recorded, and lists them.
func Reported(names ...string) Check {
	return func(h *history.History) Finding {
		f := Found(true, nil)
		for _, name := range names {
			v, ok := measured(h, name)
			if !ok {
				f.Holds = false
				f.add(Say("not-measured", spaced(name)))
				continue
			}
			f.Numbers[name] = v
			f.add(Say("figure", spaced(name), number(v)))
		}
		return f
	}
}

// Faster expects more sales a second through one strategy than so many times
// those through another, in one history.
func Faster(fast, slow string, times float64) Check {
	return func(h *history.History) Finding {
		a, b := rate(h, fast), rate(h, slow)
		numbers := map[string]float64{snake(fast) + "_sales_per_s": a, snake(slow) + "_sales_per_s": b}
		first, second := fmt.Sprintf("%.0f", a), fmt.Sprintf("%.0f", b)
		if a == 0 || b == 0 {
			return Found(false, numbers, Say("no-comparison", first, fast, second, slow))
		}
		numbers["ratio"] = a / b
		return Found(a > times*b, numbers, Say("faster", first, fast, second, slow, fmt.Sprintf("%.2f", a/b)))
	}
}

// rate is how many a second were sold through a strategy, from the first request
// to the last answer.
func rate(h *history.History, strategy string) float64 {
	var sold float64
	var first, last history.Request
	for _, r := range h.Requests {
		if r.Strategy != strategy {
			continue
		}
		if first.Start.IsZero() || r.Start.Before(first.Start) {
			first = r
		}
		if r.End.After(last.End) {
			last = r
		}
		if r.Outcome == history.Sold {
			sold++
		}
	}
	if sold == 0 {
		return 0
	}
	return sold / last.End.Sub(first.Start).Seconds()
}

// Busy expects that at least so many requests did not get their lock in time, and were answered with "busy", each of
// them within a time.
func Busy(least int, within time.Duration) Check {
	const busy = "busy"
	return func(h *history.History) Finding {
		var failed int
		var longest time.Duration
		for _, r := range h.Requests {
			if r.Outcome == history.Failed && r.Problem == busy {
				failed++
				longest = max(longest, r.End.Sub(r.Start))
			}
		}
		return Found(failed >= max(1, least) && longest <= within,
			map[string]float64{"busy_requests": float64(failed), "longest_busy_ms": ms(longest)},
			Say("failed-with", failed, len(h.Requests), busy, longest), Say("or-more-within", max(1, least), within))
	}
}

// Outcomes expects that at least so many requests came to this.
func Outcomes(of history.Outcome, least int) Check {
	return func(h *history.History) Finding {
		seen := count(h.Requests, func(r history.Request) bool { return r.Outcome == of })
		return Found(seen >= max(1, least), map[string]float64{string(of) + "_requests": float64(seen)},
			Say("outcome-"+string(of), seen, len(h.Requests)), Say("or-more", max(1, least)))
	}
}

// count is how many of a list are so.
func count[T any](list []T, so func(T) bool) (n int) {
	for _, one := range list {
		if so(one) {
			n++
		}
	}
	return n
}

// inconclusive is the finding where the evidence is missing.
func inconclusive(code string, args ...any) Finding { return Found(false, nil, Say(code, args...)) }

// ms is a time in milliseconds, to the microsecond.
func ms(d time.Duration) float64 {
	return math.Round(float64(d.Nanoseconds())/1e3) / 1e3
}

// span is a time in words, as exact as one reads it.
func span(d time.Duration) string {
	switch {
	case d == 0:
		return "0 ms"
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", ms(d))
	default:
		return fmt.Sprintf("%.2f ms", ms(d))
	}
}
