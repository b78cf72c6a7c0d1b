package picture

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// span is some time.
type span struct{ from, to time.Time }

// hold is a lease while it was held.
type hold struct {
	span
	lease history.Lease
	// open tells that no end of it is known: to is then when its holder was
	// stopped for good, or the end of the history.
	open bool
}

// overlap is some time in which a name was held more than once.
type overlap struct {
	span
	name    string
	holders []string
}

// holds are the leases that were granted, in that order.
func holds(h *history.History, end time.Time) []hold {
	var list []hold
	for _, l := range h.Leases {
		if l.Granted.IsZero() {
			continue
		}
		one := hold{span: span{l.Granted, l.End()}, lease: l}
		if one.to.IsZero() {
			one.open, one.to = true, death(h.Marks, l, end)
		}
		list = append(list, one)
	}
	slices.SortStableFunc(list, func(a, b hold) int { return a.from.Compare(b.from) })
	return list
}

// death is when the holder of a lease was killed, or the end.
func death(marks []history.Mark, l history.Lease, end time.Time) time.Time {
	for _, m := range marks {
		deadly := strings.Contains(m.What, "kill") || strings.Contains(m.What, "crash")
		if deadly && m.Who == l.Holder && !m.At.Before(l.Granted) {
			return m.At
		}
	}
	return end
}

// overlaps are the times at which a name was held more than once. A lease whose
// end is not known is not counted: its holder may have died without a mark.
func overlaps(list []hold) []overlap {
	byName := map[string][]hold{}
	for _, one := range list {
		if !one.open && one.to.After(one.from) {
			byName[one.lease.Name] = append(byName[one.lease.Name], one)
		}
	}
	var found []overlap
	for name, same := range byName {
		found = append(found, overlapsOf(name, same)...)
	}
	slices.SortFunc(found, func(a, b overlap) int { return cmp.Or(a.from.Compare(b.from), cmp.Compare(a.name, b.name)) })
	return found
}

// overlapsOf goes through the holds of one name in the order of their grants.
func overlapsOf(name string, list []hold) (found []overlap) {
	var held []hold
	for _, one := range list {
		held = slices.DeleteFunc(held, func(h hold) bool { return !h.to.After(one.from) })
		for _, other := range held {
			common := span{one.from, earlier(one.to, other.to)}
			found = merge(found, overlap{common, name, []string{other.lease.Holder, one.lease.Holder}})
		}
		held = append(held, one)
	}
	return found
}

// merge adds an overlap to those that began no later.
func merge(found []overlap, next overlap) []overlap {
	if len(found) == 0 || next.from.After(found[len(found)-1].to) {
		return append(found, next)
	}
	last := &found[len(found)-1]
	last.to = later(last.to, next.to)
	for _, holder := range next.holders {
		if !slices.Contains(last.holders, holder) {
			last.holders = append(last.holders, holder)
		}
	}
	return found
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

// boxes are bars as a path.
func boxes(list [][2]int, top, height int) string {
	var b strings.Builder
	h := strconv.Itoa(height)
	for _, bar := range list {
		w := strconv.Itoa(bar[1] - bar[0])
		b.WriteString("M" + strconv.Itoa(bar[0]) + " " + strconv.Itoa(top) + "h" + w + "v" + h + "h-" + w + "z")
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
