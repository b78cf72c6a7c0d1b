package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// Ranges are medians with their spread on logarithmic scales: a row a name, and
// panels beside each other. Panels of the same unit share a scale.
type Ranges struct {
	Title  string
	Rows   []string
	Panels []Panel
	// Notes are written below the picture.
	Notes []string
}

// Panel is one group of medians, with the limits that they are compared with.
type Panel struct {
	Title   string
	Unit    string
	Limits  []Limit
	Medians []Median
}

// Limit is a value that medians are compared with: they are not expected to be beyond it.
type Limit struct {
	Name  string
	Value float64
}

// Median is one measurement of a row; Words describe it on hovering.
type Median struct {
	Row             int
	Grouped         bool
	Value, Min, Max float64
	Words           string
}

// The measures of ranges: pixels, but for those across, which are in percent.
const (
	rangesWidth = 986
	rangeRow    = 24
	rangeLabel  = 15.0
	rangeGap    = 4.5
	limitStep   = 15
	rangesHead  = 58
	leftEdge    = 0.5
)

// Draw draws the ranges.
func (r Ranges) Draw() *Picture {
	p := &Picture{
		Title: r.Title, Desc: r.Title + ".", width: rangesWidth, Notes: r.Notes,
		Legend: []Key{{"alone", "alone"}, {"grouped", "grouped"}, {"limit", "limit"}},
	}
	names := 0
	for _, panel := range r.Panels {
		names = max(names, len(panel.Limits))
	}
	top := float64(rangesHead + limitStep*names)
	bottom := top + float64(rangeRow*len(r.Rows))
	p.text("lane", leftEdge, 20, "", r.Title)
	for i, name := range r.Rows {
		y := top + float64(rangeRow*i)
		if i%2 == 0 {
			p.rect("track", 0, y, 100, rangeRow, "")
		}
		p.text("", rangeLabel-1, y+rangeRow/2+4, "end", name)
	}
	width := (100-rangeLabel)/float64(len(r.Panels)) - rangeGap
	for i, panel := range r.Panels {
		x, scale := rangeLabel+float64(i)*(width+rangeGap), r.scale(panel.Unit)
		p.panel(panel, func(v float64) float64 { return x + width*scale.share(math.Log10(v)) }, scale, x, top, bottom)
	}
	p.height = bottom + footHeight + 10
	return p
}

// panel draws one panel; at is the position of a value across.
func (p *Picture) panel(panel Panel, at func(float64) float64, scale axis, x, top, bottom float64) {
	p.text("lane", x, 42, "", panel.Title+", "+panel.Unit)
	written := math.Inf(-1) // pixels
	for decade := scale.from; decade <= scale.to; decade++ {
		v := math.Pow(10, decade)
		p.line("grid", at(v), top, 0, bottom-top)
		label := humanize.Commaf(v)
		middle, half := at(v)/100*rangesWidth, letterWidth*float64(len(label))/2
		if middle-half < written { // it has no room beside the last
			continue
		}
		p.text("soft", at(v), bottom+15, "middle", label)
		written = middle + half
	}
	// Names are to the left of their lines, the fastest at the top: so no line
	// crosses another name.
	for i, limit := range panel.Limits {
		y := top - float64(limitStep*i) - 5
		p.line("limit", at(limit.Value), y-10, 0, bottom-y+10)
		p.beside("soft", at(limit.Value), y, (at(limit.Value)-x)/100*rangesWidth, limit.Name)
	}
	for _, m := range panel.Medians {
		class, y := "alone", top+float64(rangeRow*m.Row)+8
		if m.Grouped {
			class, y = "grouped", y+8
		}
		p.line(class, at(m.Min), y, at(m.Max)-at(m.Min), 0)
		p.dot(class, at(m.Value), y, m.Words)
	}
}

// beside writes a name to the left of x, or to the right where it needs more than the room of so
// many pixels.
func (p *Picture) beside(class string, x, y, room float64, name string) {
	anchor, dx := "end", -4.0
	if room < letterWidth*float64(len(name)) {
		anchor, dx = "start", 4
	}
	p.text(class, x, y, anchor, name)
	p.shapes[len(p.shapes)-1].DX = dx
}

// scale has whole powers of ten around all values of a unit.
func (r Ranges) scale(unit string) axis {
	var all []float64
	for _, panel := range r.Panels {
		if panel.Unit != unit {
			continue
		}
		for _, m := range panel.Medians {
			all = append(all, m.Min, m.Max)
		}
		for _, l := range panel.Limits {
			all = append(all, l.Value)
		}
	}
	all = slices.DeleteFunc(all, func(v float64) bool { return v <= 0 })
	return axis{math.Floor(math.Log10(slices.Min(all))), math.Ceil(math.Log10(slices.Max(all)))}
}

// letterWidth is that of a letter of a label, in pixels.
const letterWidth = 6.5

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
	width := min(47.5, (100+linesGap)/float64(len(l.Panels))-linesGap)
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
	p.valueAxis(scale, top, top+plotHeight, Value)
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
