package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/history"
)

// outcomes are what a request comes to, in the order of the legend. Each has a
// class of its own.
func outcomes() []history.Outcome {
	return []history.Outcome{history.Sold, history.Refused, history.Failed, history.Unknown}
}

// requestTimeline draws what each buyer asked, and what came of it.
func requestTimeline(h *history.History, whole span) []*Picture {
	if len(h.Requests) == 0 {
		return nil
	}
	p, c := &Picture{Title: "What each buyer asked"}, newClock(whole.from, whole.from, whole.to)
	buyers := map[int][]history.Request{}
	var clients []int
	for _, r := range h.Requests {
		if buyers[r.Client] == nil {
			clients = append(clients, r.Client)
		}
		buyers[r.Client] = append(buyers[r.Client], r)
	}
	slices.Sort(clients)
	p.Desc = fmt.Sprintf("%s by %s: %s.", Plural(len(h.Requests), "request", "requests"),
		Plural(len(clients), "buyer", "buyers"), tally(h.Requests))
	if len(clients) > mostLanes {
		p.notef("%d of %d buyers are drawn.", mostLanes, len(clients))
		clients = clients[:mostLanes]
	}
	y := p.marksAbove(h.Marks, c)
	top := y
	gap := requestGap(c, clients, buyers)
	for _, client := range clients {
		y = p.buyer(c, client, buyers[client], y, gap)
	}
	p.behind(func() {
		p.markLines(h.Marks, c, top, y, nil)
		p.timeAxis(c, top, y)
	})
	p.height = y + footHeight
	for _, o := range outcomes() {
		if slices.ContainsFunc(h.Requests, func(r history.Request) bool { return r.Outcome == o }) {
			p.Legend = append(p.Legend, Key{string(o), said(o)})
		}
	}
	if gap > 1 {
		p.notef("Requests less than %s apart are one bar.", Duration(c.lasts(float64(gap)/Units)))
	}
	return []*Picture{p}
}

func said(o history.Outcome) string {
	switch o {
	case history.Refused:
		return "refused: sold out"
	case history.Failed:
		return "failed: nothing happened"
	case history.Unknown:
		return "unknown: no answer says"
	default:
		return string(o)
	}
}

func tally(list []history.Request) string {
	count := map[history.Outcome]int{}
	for _, r := range list {
		count[r.Outcome]++
	}
	var parts []string
	for _, o := range outcomes() {
		if n := count[o]; n > 0 {
			parts = append(parts, Count(n)+" "+string(o))
		}
	}
	return strings.Join(parts, ", ")
}

func (p *Picture) buyer(c clock, client int, list []history.Request, y float64, gap int) float64 {
	p.text("lane", 0, y+12, "", fmt.Sprintf("buyer %d", client+1))
	p.shapes[len(p.shapes)-1].After = tally(list)
	y += laneHead
	for _, row := range rows(list, requestSpan, mostRows) {
		for _, o := range outcomes() {
			p.path(string(o), y, rowHeight, boxes(bars(c, ended(row, o), gap), rowHeight))
		}
		y += rowHeight + 2
	}
	return y + laneGap
}

func requestSpan(r history.Request) span { return span{r.Start, r.End} }

// ended are the requests with that outcome.
func ended(list []history.Request, o history.Outcome) []span {
	var result []span
	for _, r := range list {
		if r.Outcome == o {
			result = append(result, requestSpan(r))
		}
	}
	return result
}

// requestGap is the least distance between two bars that keeps their number in
// bounds.
func requestGap(c clock, clients []int, buyers map[int][]history.Request) int {
	for gap := 1; ; gap *= 2 {
		drawn := 0
		for _, client := range clients {
			for _, o := range outcomes() {
				drawn += len(bars(c, ended(buyers[client], o), gap))
			}
		}
		if drawn <= mostBars {
			return gap
		}
	}
}
