package report

import (
	"fmt"
	"math"
	"strings"
)

// Lines are values over a number that grows by factors, such as that of clients: a line a
// key, and panels on one scale beside each other.
type Lines struct {
	Title string
	// Keys name the lines, in the order of those of each panel.
	Keys   []Key
	Panels []LinesPanel
	// Notes are written below the picture.
	Notes []string
}

// LinesPanel has a line for each key, and of that a value for each number across.
type LinesPanel struct {
	Title string
	// At are the numbers across, in ascending order and above 0; Of is one of what they count.
	At    []int
	Of    string
	Lines [][]Range
}

// Range is a value with its spread. Nothing is drawn where it is 0.
type Range struct{ Value, Min, Max float64 }

// The place left and right of the lines, and the distance between the whiskers of two of them,
// in percent of a panel; and the gap between two panels, in percent of the picture.
const (
	linesEdge = 10
	linesStep = 0.8
	linesGap  = 5
)

// Draw draws the lines.
func (l Lines) Draw() *Picture {
	p := &Picture{Title: l.Title, Legend: l.Keys, Notes: l.Notes}
	p.text("lane", 0, 14, "", l.Title)
	scale := axis{0, 1}
	for _, panel := range l.Panels {
		for _, line := range panel.Lines {
			for _, r := range line {
				scale.to = max(scale.to, r.Max, r.Value)
			}
		}
	}
	width := min(panelWidth, (100+linesGap)/float64(len(l.Panels))-linesGap)
	for i, panel := range l.Panels {
		drawn := l.panel(panel, scale)
		p.place(drawn, float64(i)*(width+linesGap), width)
		p.height = drawn.height
		p.Desc += drawn.Desc
	}
	return p
}

// panel draws one panel over the whole width.
func (l Lines) panel(panel LinesPanel, scale axis) *Picture {
	const top = panelTop + 16
	p := &Picture{height: top + plotHeight + footHeight}
	p.text("", 0, panelTop, "", panel.Title)
	p.valueAxis(scale, top, top+plotHeight)
	for i, n := range panel.At {
		words := fmt.Sprint(n)
		if i == 0 {
			words = panel.counted(n)
		}
		p.text("soft", panel.x(i), top+plotHeight+15, "middle", words)
	}
	p.line("base", 0, top+plotHeight, 100, 0)
	y := func(v float64) float64 { return top + plotHeight*(1-scale.share(v)) }
	for i, line := range panel.Lines {
		panel.line(p, i, l.Keys[i].Class, line, y)
		var said []string
		for j, r := range line {
			if r.Value > 0 {
				said = append(said, fmt.Sprintf("%s at %d", Value(math.Floor(r.Value)), panel.At[j]))
			}
		}
		p.Desc += fmt.Sprintf("%s, %s: %s. ", panel.Title, l.Keys[i].Words, strings.Join(said, ", "))
	}
	return p
}

// line draws the values of one key, with whiskers where there is a spread.
func (l LinesPanel) line(p *Picture, key int, class string, line []Range, y func(float64) float64) {
	last := -1
	for i, r := range line {
		if r.Value <= 0 {
			continue
		}
		if last >= 0 {
			from := y(line[last].Value)
			p.line(class, l.x(last), from, l.x(i)-l.x(last), y(r.Value)-from)
		}
		if r.Max > r.Min {
			p.line("spread "+class, l.x(i)+linesStep*float64(key), y(r.Max), 0, y(r.Min)-y(r.Max))
		}
		p.dot(class, l.x(i), y(r.Value), l.counted(l.At[i])+": "+Value(math.Floor(r.Value)))
		last = i
	}
}

func (l LinesPanel) counted(n int) string { return counted(l.Of, l.Of+"s")(float64(n)) }

// x is the position of the number of an index, in percent.
func (l LinesPanel) x(i int) float64 {
	scale := axis{math.Log(float64(l.At[0])), math.Log(float64(l.At[len(l.At)-1]))}
	return linesEdge + (100-2*linesEdge)*scale.share(math.Log(float64(l.At[i])))
}
