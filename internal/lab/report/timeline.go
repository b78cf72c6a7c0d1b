package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// The measures of a timeline, in pixels, and what it draws at most.
const (
	laneHead   = 17
	rowHeight  = 12
	waitHeight = 4
	laneGap    = 8
	mostLanes  = 16
	mostRows   = 4
	mostBars   = 1000
	mostEach   = 150 // overlaps and losses are drawn one by one
)

// timeline is what a drawing of it needs.
type timeline struct {
	*Picture
	clock    clock
	lanes    []lane
	overlaps []overlap
	y        float64
	// tracks are the places of the lanes, by name.
	tracks map[string]track
}

// lane is a holder: its rows of holds, and when it waited.
type lane struct {
	name, words string
	rows        [][]hold
	waits       []span
	lost        []time.Time
}

// Timelines draw who held the lock on which replica: the whole of it and, where
// an overlap would hardly be seen in that, a closer look at the first one. There
// is none where nobody asked for a lock.
func Timelines(h *history.History) []*Picture {
	whole := extent(h)
	if len(h.Leases) == 0 {
		return requestTimeline(h, whole)
	}
	all := newTimeline(h, whole, whole.from)
	list := []*Picture{all.draw(h, "Who held the lock")}
	if len(all.overlaps) > 0 {
		first := all.overlaps[0]
		if lasted := first.to.Sub(first.from); lasted < all.clock.lasts(0.04) {
			around := max(2*lasted, 10*time.Microsecond)
			near := newTimeline(h, span{later(whole.from, first.from.Add(-around)), earlier(whole.to, first.to.Add(around))}, whole.from)
			list = append(list, near.draw(h, "The first overlap, closer"))
		}
	}
	return list
}

func newTimeline(h *history.History, window span, zero time.Time) *timeline {
	t := &timeline{Picture: &Picture{}, clock: newClock(zero, window.from, window.to), tracks: map[string]track{}}
	list := holds(h, extent(h).to)
	for _, o := range overlaps(h) {
		if !o.to.Before(window.from) && !o.from.After(window.to) {
			t.overlaps = append(t.overlaps, o)
		}
	}
	t.lanes = lanesOf(h, list, window)
	return t
}

// lanesOf are the holders, by name, with what they did within the window.
func lanesOf(h *history.History, list []hold, window span) []lane {
	byName := map[string]*lane{}
	var names []string
	asked := map[string][2]int{}
	for _, l := range h.Leases {
		if byName[l.Holder] == nil {
			byName[l.Holder] = &lane{name: l.Holder}
			names = append(names, l.Holder)
		}
		count := asked[l.Holder]
		if l.Granted.IsZero() {
			count[1]++
		} else {
			count[0]++
		}
		asked[l.Holder] = count
		byName[l.Holder].wait(l, window)
	}
	held := map[string][]hold{}
	for _, one := range list {
		if one.to.Before(window.from) || one.from.After(window.to) {
			continue
		}
		held[one.lease.Holder] = append(held[one.lease.Holder], one)
	}
	slices.SortFunc(names, natural)
	result := make([]lane, 0, len(names))
	for _, name := range names {
		l := byName[name]
		l.rows = rows(held[name], func(one hold) span { return one.span }, mostRows)
		l.words = Count(asked[name][0]) + " held"
		if n := asked[name][1]; n > 0 {
			l.words += ", " + Count(n) + " asked for in vain"
		}
		result = append(result, *l)
	}
	return result
}

// wait adds when a lease was waited for, and lost, within the window.
func (l *lane) wait(lease history.Lease, window span) {
	to := lease.Granted
	if to.IsZero() {
		to = lease.GaveUp
	}
	if to.IsZero() {
		to = window.to
	}
	if to.After(window.from) && lease.Asked.Before(window.to) && to.After(lease.Asked) {
		l.waits = append(l.waits, span{lease.Asked, to})
	}
	if at := lease.Lost; !at.IsZero() && !at.Before(window.from) && !at.After(window.to) {
		l.lost = append(l.lost, at)
	}
}

func (t *timeline) draw(h *history.History, title string) *Picture {
	t.Title = title
	t.Desc = t.says()
	t.y = t.marksAbove(h.Marks, t.clock)
	top := t.y
	shown := t.fewest()
	gap := t.gap(shown)
	if len(t.overlaps) > 0 {
		t.overlapLane()
	}
	for _, l := range shown {
		t.lane(l, gap)
	}
	bottom := t.y
	t.behind(func() {
		t.markLines(h.Marks, t.clock, top, bottom, t.tracks)
		t.timeAxis(t.clock, top, bottom)
	})
	t.height = bottom + footHeight
	t.legend(shown)
	return t.Picture
}

// says is the timeline in a sentence or two.
func (t *timeline) says() string {
	said := fmt.Sprintf("%s, from %s to %s.", Plural(len(t.lanes), "holder", "holders"),
		Seconds(t.clock.from), Seconds(t.clock.to))
	if len(t.overlaps) == 0 {
		return said + " Nobody held it while another did."
	}
	first := t.overlaps[0]
	return fmt.Sprintf("%s %s, for %s in all: first at %s for %s, by %s.", said,
		atOnce(t.overlaps), Duration(total(t.overlaps)), t.clock.since(first.from),
		Duration(first.to.Sub(first.from)), strings.Join(unique(first.holders), " and "))
}

func atOnce(list []overlap) string {
	return strings.TrimSuffix(Sentence(Times(len(list))), ".") + ", two or more held it together"
}

func total(list []overlap) (sum time.Duration) {
	for _, o := range list {
		sum += o.to.Sub(o.from)
	}
	return sum
}

// unique are the holders; where there is only one, it held two leases.
func unique(holders []string) []string {
	list := slices.Compact(slices.Sorted(slices.Values(holders)))
	if len(list) == 1 {
		return []string{list[0] + " twice"}
	}
	return list
}

// fewest are the lanes that are drawn: those in an overlap before the others,
// and then those that held the lock before those that only waited.
func (t *timeline) fewest() []lane {
	if len(t.lanes) <= mostLanes {
		return t.lanes
	}
	rank := func(l lane) int {
		switch {
		case slices.ContainsFunc(t.overlaps, func(o overlap) bool { return slices.Contains(o.holders, l.name) }):
			return 0
		case len(l.rows) > 0:
			return 1
		default:
			return 2
		}
	}
	shown := slices.Clone(t.lanes)
	slices.SortStableFunc(shown, func(a, b lane) int { return rank(a) - rank(b) })
	shown = shown[:mostLanes]
	slices.SortFunc(shown, func(a, b lane) int { return natural(a.name, b.name) })
	t.notef("%s of %d are drawn: who held the lock with another first, then who held it at all.", Plural(mostLanes, "holder", "holders"), len(t.lanes))
	return shown
}

// notef adds what was left out, or drawn otherwise than it was.
func (p *Picture) notef(format string, a ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, a...))
}

// gap is the least distance between two bars that keeps their number in bounds.
func (t *timeline) gap(shown []lane) int {
	for gap := 1; ; gap *= 2 {
		waits, drawn, all := 0, 0, 0
		for _, l := range shown {
			waits += len(bars(t.clock, l.waits, gap))
			for _, row := range l.rows {
				drawn += len(bars(t.clock, spans(row), gap))
				all += len(row)
			}
		}
		if drawn+waits > mostBars {
			continue
		}
		if drawn < all {
			t.notef("%s are drawn as %s: what is shorter than %s, or less apart, is not told apart.", Plural(all, "lease", "leases"),
				Plural(drawn, "bar", "bars"), Duration(t.clock.lasts(float64(max(gap, leastBar))/Units)))
		}
		return gap
	}
}

func spans(list []hold) []span {
	result := make([]span, len(list))
	for i, one := range list {
		result[i] = one.span
	}
	return result
}

// overlapLane shows all overlaps of all names, above the holders.
func (t *timeline) overlapLane() {
	t.text("alarm", 0, t.y+12, "", atOnce(t.overlaps))
	t.y += laneHead
	list := make([]span, len(t.overlaps))
	for i, o := range t.overlaps {
		list[i] = o.span
	}
	t.path("over", t.y, rowHeight, boxes(bars(t.clock, list, 1), rowHeight))
	t.y += rowHeight + laneGap
}

func (t *timeline) lane(l lane, gap int) {
	t.text("lane", 0, t.y+12, "", l.name)
	t.shapes[len(t.shapes)-1].After = l.words
	t.y += laneHead
	top := t.y
	defer func() { t.tracks[l.name] = track{top - laneHead, t.y - laneGap + 3} }()
	for _, row := range l.rows {
		t.row(l.name, row, gap)
		t.y += rowHeight + 2
	}
	if len(l.rows) == 0 {
		t.y += 2
	}
	t.path("wait", t.y, waitHeight, boxes(bars(t.clock, l.waits, gap), waitHeight))
	for i, at := range l.lost {
		if i < mostEach {
			t.line("lost", t.clock.percent(at), top-3, 0, t.y+waitHeight-top+3)
		}
	}
	t.y += waitHeight + laneGap
}

// row draws what a holder held, and over it in red what another held as well.
func (t *timeline) row(holder string, row []hold, gap int) {
	closed := slices.DeleteFunc(slices.Clone(row), func(one hold) bool { return one.open })
	t.path("hold", t.y, rowHeight, boxes(bars(t.clock, spans(closed), gap), rowHeight))
	var red []span
	for _, o := range t.overlaps {
		if !slices.Contains(o.holders, holder) {
			continue
		}
		for _, one := range row {
			common := span{later(one.from, o.from), earlier(one.to, o.to)}
			if lockedBy(one.lease) == o.of && common.to.After(common.from) {
				red = append(red, common)
			}
		}
	}
	for _, one := range row {
		if one.open {
			from := t.clock.percent(one.from)
			t.rect("open", from, t.y+0.5, t.clock.percent(one.to)-from, rowHeight-1, "no end is known")
		}
	}
	t.path("over", t.y, rowHeight, boxes(bars(t.clock, red, gap), rowHeight))
}

func (t *timeline) legend(shown []lane) {
	some := func(is func(lane) bool) bool { return slices.ContainsFunc(shown, is) }
	t.Legend = append(t.Legend, Key{"hold", "held"})
	if some(func(l lane) bool { return len(l.waits) > 0 }) {
		t.Legend = append(t.Legend, Key{"wait", "waited for"})
	}
	if len(t.overlaps) > 0 {
		t.Legend = append(t.Legend, Key{"over", "held by two or more at once"})
	}
	if some(func(l lane) bool { return len(l.lost) > 0 }) {
		t.Legend = append(t.Legend, Key{"lost", "was told that it is lost"})
	}
	open := func(row []hold) bool { return slices.ContainsFunc(row, func(one hold) bool { return one.open }) }
	if some(func(l lane) bool { return slices.ContainsFunc(l.rows, open) }) {
		t.Legend = append(t.Legend, Key{"open", "held, no end is known: its holder died, or had it at the end"})
	}
}
