package report

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

// span is some time.
type span struct{ from, to time.Time }

// hold is a lease while it was held.
type hold struct {
	span
	lease history.Lease
	// open tells that no end of it is known: to is then the death of its holder,
	// or the end of the history.
	open bool
}

// overlap is some time in which a name was held more than once.
type overlap struct {
	span
	of      locked
	holders []string
}

// locked is what holders exclude each other from: a name by means of a lock.
type locked struct{ name, lock string }

func lockedBy(l history.Lease) locked { return locked{l.Name, l.Lock} }

// holds are the leases that were granted, in that order.
func holds(h *history.History, end time.Time) []hold {
	var list []hold
	for _, l := range h.Leases {
		if l.Granted.IsZero() {
			continue
		}
		one := hold{span: span{l.Granted, l.End()}, lease: l}
		if one.to.IsZero() {
			one.open, one.to = true, checker.Died(h, l)
		}
		if one.to.IsZero() {
			one.to = end
		}
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b hold) int { return a.from.Compare(b.from) })
	return list
}

// overlaps are the times at which a name was held more than once: those of the
// check, which has every pair of leases, put together.
func overlaps(h *history.History) []overlap {
	pairs := checker.Overlaps(h)
	list := make([]overlap, 0, len(pairs))
	last := map[locked]int{} // where in the list the latest of each is, from 1
	for _, pair := range pairs {
		of := lockedBy(pair.A)
		if i := last[of]; i > 0 && !pair.From.After(list[i-1].to) {
			list[i-1].add(pair)
			continue
		}
		one := overlap{span: span{pair.From, pair.To}, of: of}
		one.add(pair)
		list = append(list, one)
		last[of] = len(list)
	}
	return list
}

func (o *overlap) add(pair checker.Overlap) {
	o.to = later(o.to, pair.To)
	for _, holder := range []string{pair.A.Holder, pair.B.Holder} {
		if !slices.Contains(o.holders, holder) {
			o.holders = append(o.holders, holder)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// extent is from the first to the last thing that is known of a history.
func extent(h *history.History) span {
	var s span
	add := func(times ...time.Time) {
		for _, t := range times {
			if t.IsZero() {
				continue
			}
			if s.from.IsZero() || t.Before(s.from) {
				s.from = t
			}
			s.to = later(s.to, t)
		}
	}
	for _, r := range h.Requests {
		add(r.Start, r.End)
	}
	for _, l := range h.Leases {
		add(l.Asked, l.Granted, l.GaveUp, l.Lost, l.Released)
	}
	for _, m := range h.Marks {
		add(m.At, m.Until)
	}
	for _, m := range h.Samples {
		add(m.At)
	}
	return s
}

// rows puts spans that were at the same time below each other, in no more rows
// than most.
func rows[T any](list []T, of func(T) span, most int) [][]T {
	var result [][]T
	var ends []time.Time
next:
	for _, one := range list {
		s := of(one)
		for i, end := range ends {
			if !end.After(s.from) || i == most-1 {
				result[i], ends[i] = append(result[i], one), later(end, s.to)
				continue next
			}
		}
		result, ends = append(result, []T{one}), append(ends, s.to)
	}
	return result
}

// bars are spans in units of a path; what is closer together than gap is one.
func bars(c clock, list []span, gap int) [][2]int {
	var result [][2]int
	for _, s := range list {
		from, to := c.unit(s.from), c.unit(s.to)
		to = max(to, from+leastBar)
		if n := len(result); n > 0 && from-result[n-1][1] < gap {
			result[n-1][1] = max(result[n-1][1], to)
			continue
		}
		result = append(result, [2]int{from, to})
	}
	return result
}

// leastBar is the least width of a bar, in units: it is to be seen at all.
const leastBar = 12

// boxes are bars as a path, from the top of its place down.
func boxes(list [][2]int, height int) string {
	var b strings.Builder
	h := strconv.Itoa(height)
	for _, bar := range list {
		w := strconv.Itoa(bar[1] - bar[0])
		b.WriteString("M" + strconv.Itoa(bar[0]) + " 0h" + w + "v" + h + "h-" + w + "z")
	}
	return b.String()
}

// natural sorts replica-2 before replica-10.
func natural(a, b string) int { return cmp.Or(cmp.Compare(padded(a), padded(b)), cmp.Compare(a, b)) }

func padded(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && s[j] >= '0' && s[j] <= '9' {
			j++
		}
		if j == i {
			b.WriteByte(s[i])
			i++
			continue
		}
		b.WriteString(strings.Repeat("0", max(0, 12-(j-i))))
		b.WriteString(s[i:j])
		i = j
	}
	return b.String()
}
