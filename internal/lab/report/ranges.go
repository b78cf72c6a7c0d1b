package report

import (
	"math"
	"slices"

	"github.com/dustin/go-humanize"
)

// Ranges are medians with their spread on a logarithmic scale: a row a name, and
// panels beside each other.
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
	Limits  []Limit
	Medians []Median
}

// Limit is a value that no median is expected to exceed.
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
	scale := r.scale()
	width := (100-rangeLabel)/float64(len(r.Panels)) - rangeGap
	for i, panel := range r.Panels {
		x := rangeLabel + float64(i)*(width+rangeGap)
		p.panel(panel, func(v float64) float64 { return x + width*scale.share(math.Log10(v)) }, scale, x, top, bottom)
	}
	p.height = bottom + footHeight + 10
	return p
}

// panel draws one panel; at is the position of a value across.
func (p *Picture) panel(panel Panel, at func(float64) float64, scale axis, x, top, bottom float64) {
	p.text("lane", x, 42, "", panel.Title)
	for decade := scale.from; decade <= scale.to; decade++ {
		v := math.Pow(10, decade)
		p.line("grid", at(v), top, 0, bottom-top)
		p.text("soft", at(v), bottom+15, "middle", humanize.Commaf(v))
	}
	// Names are to the left of their lines, the fastest at the top: so no line
	// crosses another name.
	for i, limit := range panel.Limits {
		y := top - float64(limitStep*i) - 5
		p.line("limit", at(limit.Value), y-10, 0, bottom-y+10)
		p.text("soft", at(limit.Value), y, "end", limit.Name)
		p.shapes[len(p.shapes)-1].DX = -5
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

// scale has whole powers of ten around all values.
func (r Ranges) scale() axis {
	var all []float64
	for _, panel := range r.Panels {
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
