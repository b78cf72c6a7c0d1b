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

// The measures of ranges, in pixels.
const (
	rangesWidth = 986
	rangeRow    = 24
	rangeLabel  = 148.0
	rangeGap    = 44.0
	limitStep   = 15
	rangesHead  = 58
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
	p.text("lane", 5, 20, "", r.Title)
	for i, name := range r.Rows {
		y := top + float64(rangeRow*i)
		if i%2 == 0 {
			p.rect("track", 0, y, rangesWidth, rangeRow)
		}
		p.text("", rangeLabel-10, y+rangeRow/2+4, "end", name)
	}
	width := (rangesWidth-rangeLabel)/float64(len(r.Panels)) - rangeGap
	for i, panel := range r.Panels {
		scale := r.scale(panel.Unit)
		scale.first, scale.length = rangeLabel+float64(i)*(width+rangeGap), width
		p.panel(panel, scale, top, bottom)
	}
	p.height = bottom + footHeight + 10
	return p
}

// panel draws one panel; the scale is of logarithms.
func (p *Picture) panel(panel Panel, scale axis, top, bottom float64) {
	at := func(v float64) float64 { return scale.at(math.Log10(v)) }
	p.text("lane", scale.first, 42, "", panel.Title+", "+panel.Unit)
	written := math.Inf(-1)
	for decade := scale.from; decade <= scale.to; decade++ {
		v := math.Pow(10, decade)
		p.line("grid", at(v), top, 0, bottom-top)
		label := humanize.Commaf(v)
		half := letterWidth * float64(len(label)) / 2
		if at(v)-half < written { // it has no room beside the last
			continue
		}
		p.text("soft", at(v), bottom+15, "middle", label)
		written = at(v) + half
	}
	// Names are to the left of their lines, the fastest at the top: so no line
	// crosses another name.
	for i, limit := range panel.Limits {
		x, y := at(limit.Value), top-float64(limitStep*i)-5
		p.line("limit", x, y-10, 0, bottom-y+10)
		if x-scale.first < letterWidth*float64(len(limit.Name)) { // there is no room
			p.text("soft", x+4, y, "start", limit.Name)
		} else {
			p.text("soft", x-4, y, "end", limit.Name)
		}
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
	return axis{from: math.Floor(math.Log10(slices.Min(all))), to: math.Ceil(math.Log10(slices.Max(all)))}
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

// The measures of lines in pixels: their top, the place left and right of them in a panel, and the distance between the
// whiskers of two of them.
const (
	linesTop    = panelTop + 16
	linesBottom = linesTop + plotHeight
	linesEdge   = 36
	linesStep   = 3
)

// Draw draws the lines.
func (l Lines) Draw() *Picture {
	p := &Picture{Title: l.Title, Legend: l.Keys, Notes: l.Notes, width: fileWidth, height: linesBottom + footHeight}
	p.text("lane", 0, 14, "", l.Title)
	scale := axis{to: 1, first: linesBottom, length: -plotHeight}
	for _, panel := range l.Panels {
		for _, line := range panel.Lines {
			for _, r := range line {
				scale.to = max(scale.to, r.Max, r.Value)
			}
		}
	}
	width := min((fileWidth-panelGap)/2, (fileWidth+panelGap)/float64(len(l.Panels))-panelGap)
	for i, panel := range l.Panels {
		l.panel(p, panel, float64(i)*(width+panelGap), width, scale)
	}
	return p
}

// panel draws one panel from x on.
func (l Lines) panel(p *Picture, panel LinesPanel, x, width float64, scale axis) {
	across := axis{math.Log(float64(panel.At[0])), math.Log(float64(panel.At[len(panel.At)-1])), x + linesEdge, width - 2*linesEdge}
	p.text("", x, panelTop, "", panel.Title)
	p.valueAxis(scale, x, width, Value)
	for i, n := range panel.At {
		words := fmt.Sprint(n)
		if i == 0 {
			words = panel.counted(n)
		}
		p.text("soft", across.at(math.Log(float64(n))), linesBottom+15, "middle", words)
	}
	p.line("base", x, linesBottom, width, 0)
	for i, line := range panel.Lines {
		panel.line(p, i, l.Keys[i].Class, line, across, scale)
		var said []string
		for j, r := range line {
			if r.Value > 0 {
				said = append(said, fmt.Sprintf("%s at %d", Value(math.Floor(r.Value)), panel.At[j]))
			}
		}
		p.Desc += fmt.Sprintf("%s, %s: %s. ", panel.Title, l.Keys[i].Words, strings.Join(said, ", "))
	}
}

// line draws the values of one key, with whiskers where there is a spread.
func (l LinesPanel) line(p *Picture, key int, class string, line []Range, across, scale axis) {
	var before struct{ x, y float64 }
	for i, r := range line {
		if r.Value <= 0 {
			continue
		}
		x, y := across.at(math.Log(float64(l.At[i]))), scale.at(r.Value)
		if before.x > 0 {
			p.line(class, before.x, before.y, x-before.x, y-before.y)
		}
		if r.Max > r.Min {
			p.line("spread "+class, x+float64(linesStep*key), scale.at(r.Max), 0, scale.at(r.Min)-scale.at(r.Max))
		}
		p.dot(class, x, y, l.counted(l.At[i])+": "+Value(math.Floor(r.Value)))
		before.x, before.y = x, y
	}
}

func (l LinesPanel) counted(n int) string { return Plural(n, l.Of, l.Of+"s") }
