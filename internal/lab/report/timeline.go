package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

type span struct{ from, to time.Time }

func (s span) meets(other span) bool { return !s.to.Before(other.from) && !s.from.After(other.to) }

func (s span) lasted() time.Duration { return s.to.Sub(s.from) }

func extent(h *history.History) (s span) {
	s.from, s.to = h.Extent()
	return s
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

// holding is what the timeline has of one holder: its leases, and when another one had the same lock.
type holding struct {
	leases []history.Lease
	held   []hold
	over   []span
}

// hold is a lease while it was held. Where no end of it is known, it is open, and lasts until its holder died or the
// history ended.
type hold struct {
	span
	open bool
}

// overlap is a stretch of time in which two or more had a lock.
type overlap struct {
	span
	holders []string
}

// holdings are what each holder had, by its name, and when two or more had a lock, in the order of time.
func holdings(h *history.History) (of map[string]*holding, all []overlap) {
	of = make(map[string]*holding)
	_, until := h.Extent()
	for _, l := range h.Leases {
		if of[l.Holder] == nil {
			of[l.Holder] = &holding{}
		}
	}
	for i, c := range checker.Contentions(h) {
		l := h.Leases[i]
		its := of[l.Holder]
		its.leases = append(its.leases, l)
		if !l.Granted.IsZero() {
			end := l.End()
			its.held = append(its.held, hold{span{l.Granted, cmp.Or(end, c.Died, until)}, end.IsZero()})
		}
		for _, b := range c.Beside {
			both := span{b.From, b.To}
			its.over, of[b.Holder].over = append(its.over, both), append(of[b.Holder].over, both)
			all = append(all, overlap{both, []string{b.Holder, l.Holder}})
		}
	}
	for _, its := range of {
		slices.SortStableFunc(its.held, func(a, b hold) int { return a.from.Compare(b.from) })
	}
	slices.SortStableFunc(all, func(a, b overlap) int { return a.from.Compare(b.from) })
	return of, merged(all)
}

// merged puts overlaps that meet into one.
func merged(all []overlap) (list []overlap) {
	for _, o := range all {
		last := len(list) - 1
		if last < 0 || o.from.After(list[last].to) {
			list = append(list, o)
			continue
		}
		list[last].to, list[last].holders = later(list[last].to, o.to), append(list[last].holders, o.holders...)
	}
	return list
}

// Timeline draws who held the lock on which replica, or of a history without leases what each buyer asked. It is nil where
// there is neither.
func Timeline(h *history.History) *Picture {
	whole := extent(h)
	if len(h.Leases) == 0 {
		return requestTimeline(h, whole)
	}
	c := newClock(whole.from, whole.from, whole.to)
	of, all := holdings(h)
	lanes := make([]lane, 0, len(of))
	for _, name := range slices.SortedFunc(maps.Keys(of), natural) {
		lanes = append(lanes, of[name].lane(name, whole))
	}
	p := &Picture{Title: "Who held the lock", Desc: describe(c, len(lanes), all)}
	shown := p.fewest(lanes)
	if len(all) > 0 {
		both := make([]span, len(all))
		for i, o := range all {
			both[i] = o.span
		}
		shown = slices.Insert(shown, 0, lane{class: "alarm", name: atOnce(all), strips: []strip{{rowHeight, []layer{{"over", both}}}}})
	}
	p.lanes(c, shown, h.Marks, []Key{
		{"hold", "held"},
		{"wait", "waited for"},
		{"over", "held by two or more at once"},
		{"lost", "notified of its loss"},
		{"open", "held, no end is known: its holder died, or had it at the end"},
	})
	return p
}

func (its *holding) lane(name string, window span) lane {
	l := lane{class: "lane", name: name, signs: signsOf(its.leases, window)}
	for _, row := range rows(its.held, func(one hold) span { return one.span }, mostRows) {
		var closed, open []span
		for _, one := range row {
			if one.open {
				open = append(open, one.span)
			} else {
				closed = append(closed, one.span)
			}
		}
		l.strips = append(l.strips, strip{rowHeight, []layer{{"hold", closed}, {"open", open}, {"over", during(its.over, row)}}})
	}
	var waits []span
	for _, one := range its.leases {
		wait := span{one.Asked, cmp.Or(one.Granted, one.GaveUp, window.to)}
		if wait.to.After(wait.from) {
			waits = append(waits, wait)
		}
		if !one.Lost.IsZero() {
			l.ticks = append(l.ticks, one.Lost)
		}
	}
	l.strips = append(l.strips, strip{waitHeight, []layer{{"wait", waits}}})
	l.words = Count(len(its.held)) + " held"
	if n := len(its.leases) - len(its.held); n > 0 {
		l.words += ", " + Count(n) + " not granted"
	}
	return l
}

// during are the stretches of spans in which a row of leases was held.
func during(all []span, row []hold) (list []span) {
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	for _, one := range row {
		before := len(list)
		for _, o := range all {
			common := span{later(one.from, o.from), earlier(one.to, o.to)}
			switch last := len(list) - 1; {
			case !common.to.After(common.from):
			case last >= before && !common.from.After(list[last].to):
				list[last].to = later(list[last].to, common.to)
			default:
				list = append(list, common)
			}
		}
	}
	return list
}

func describe(c clock, holders int, all []overlap) string {
	said := fmt.Sprintf("%s, from %s to %s.", Plural(holders, "holder", "holders"), Seconds(c.from), Seconds(c.to))
	if len(all) == 0 {
		return said + " No two held it at once."
	}
	var total time.Duration
	for _, o := range all {
		total += o.lasted()
	}
	first := all[0]
	return fmt.Sprintf("%s %s, for %s in all: first at %s for %s, by %s.", said,
		atOnce(all), Duration(total), c.since(first.from), Duration(first.lasted()), strings.Join(unique(first.holders), " and "))
}

func atOnce(list []overlap) string {
	return strings.TrimSuffix(Sentence(Times(len(list))), ".") + ", two or more held it together"
}

// unique are the holders; a single one held two leases.
func unique(holders []string) []string {
	list := slices.Compact(slices.Sorted(slices.Values(holders)))
	if len(list) == 1 {
		return []string{list[0] + " twice"}
	}
	return list
}

// fewest are the lanes that are drawn: those in an overlap before the others, and
// then those that held the lock before those that only waited.
func (p *Picture) fewest(lanes []lane) []lane {
	if len(lanes) <= mostLanes {
		return lanes
	}
	rank := func(l lane) int {
		return slices.Index([]bool{l.has("over"), l.has("hold") || l.has("open"), true}, true)
	}
	shown := slices.Clone(lanes)
	slices.SortStableFunc(shown, func(a, b lane) int { return rank(a) - rank(b) })
	shown = shown[:mostLanes]
	slices.SortFunc(shown, func(a, b lane) int { return natural(a.name, b.name) })
	p.notef("%s of %d are drawn: those that held the lock with another first, then those that held it at all.", Plural(mostLanes, "holder", "holders"), len(lanes))
	return shown
}

// natural sorts replica-2 before replica-10.
func natural(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// outcomes are what a request comes to, in the order of the legend. Each is a CSS
// class.
func outcomes() []Key {
	return []Key{
		{string(history.Sold), "sold"},
		{string(history.Rejected), "rejected: sold out"},
		{string(history.Failed), "failed: nothing happened"},
		{string(history.Unknown), "unknown: no answer says"},
	}
}

func requestTimeline(h *history.History, whole span) *Picture {
	if len(h.Requests) == 0 {
		return nil
	}
	buyers := map[int][]history.Request{}
	for _, r := range h.Requests {
		buyers[r.Client] = append(buyers[r.Client], r)
	}
	c := newClock(whole.from, whole.from, whole.to)
	p := &Picture{Title: "What each buyer asked", Desc: fmt.Sprintf("%s by %s: %s.", Plural(len(h.Requests), "request", "requests"),
		Plural(len(buyers), "buyer", "buyers"), tally(h.Requests))}
	clients := slices.Sorted(maps.Keys(buyers))
	if len(clients) > mostLanes {
		p.notef("%d of %d buyers are drawn.", mostLanes, len(clients))
		clients = clients[:mostLanes]
	}
	lanes := make([]lane, 0, len(clients))
	for _, client := range clients {
		lanes = append(lanes, buyerLane(client, buyers[client]))
	}
	p.lanes(c, lanes, h.Marks, outcomes())
	return p
}

func buyerLane(client int, list []history.Request) lane {
	l := lane{class: "lane", name: fmt.Sprintf("buyer %d", client+1), words: tally(list)}
	for _, row := range rows(list, func(r history.Request) span { return span{r.Start, r.End} }, mostRows) {
		s := strip{height: rowHeight}
		for _, o := range outcomes() {
			var spans []span
			for _, r := range row {
				if string(r.Outcome) == o.Class {
					spans = append(spans, span{r.Start, r.End})
				}
			}
			s.layers = append(s.layers, layer{o.Class, spans})
		}
		l.strips = append(l.strips, s)
	}
	return l
}

func tally(list []history.Request) string {
	count := map[string]int{}
	for _, r := range list {
		count[string(r.Outcome)]++
	}
	var parts []string
	for _, o := range outcomes() {
		if n := count[o.Class]; n > 0 {
			word, _, _ := strings.Cut(o.Words, ":")
			parts = append(parts, Count(n)+" "+word)
		}
	}
	return strings.Join(parts, ", ")
}
