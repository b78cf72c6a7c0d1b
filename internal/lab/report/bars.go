package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// mostNumbers is how many numbers are compared at most, and barHeight how high a
// bar is, in pixels.
const (
	mostNumbers = 5
	barHeight   = 10
)

// Measured are the numbers of one part.
type Measured struct {
	Part    string
	Numbers map[string]float64
}

// Bars compare the numbers that several parts have. It is nil where they do
// not differ.
func Bars(parts []Measured) *Picture {
	names := compared(parts)
	if len(names) == 0 {
		return nil
	}
	p := &Picture{Title: "Side by side"}
	if len(names) > mostNumbers {
		p.notef("The %d numbers that differ most are drawn; %s in the text only.", mostNumbers, Plural(len(names)-mostNumbers, "other is", "others are"))
		names = names[:mostNumbers]
	}
	var said []string
	y := 0.0
	for i, name := range names {
		if i > 0 {
			y += 12
		}
		label, _ := Figure(name, 0)
		p.text("lane", 0, y+12, "", label)
		y += laneHead
		_, top, _ := extremes(parts, name)
		var list []string
		for _, part := range parts {
			v, ok := part.Numbers[name]
			if !ok {
				continue
			}
			_, value := Figure(name, v)
			y = p.bar(part.Part, value, math.Abs(v)/top, y)
			list = append(list, part.Part+" "+value)
		}
		said = append(said, label+": "+strings.Join(list, ", "))
	}
	p.Desc = strings.Join(said, "; ") + "."
	p.height = y
	return p
}

func (p *Picture) bar(part, value string, share, y float64) float64 {
	p.text("", 0, y+12, "", part)
	p.text("value", 100, y+12, "end", value)
	y += 17
	p.rect("track", 0, y, 100, barHeight, "")
	if share > 0 {
		p.rect("part", 0, y, max(0.4, 100*share), barHeight, fmt.Sprintf("%s: %s", part, value))
	}
	return y + barHeight + 4
}

// compared are the numbers that differ between parts, those that differ most first.
func compared(parts []Measured) []string {
	differs := map[string]float64{}
	for _, part := range parts {
		for name := range part.Numbers {
			if least, most, count := extremes(parts, name); count > 1 && most > least {
				differs[name] = (most - least) / most
			}
		}
	}
	return slices.SortedFunc(maps.Keys(differs), func(a, b string) int {
		return cmp.Or(cmp.Compare(differs[b], differs[a]), cmp.Compare(a, b))
	})
}

// extremes are the least and the most of a number, without its sign, and how many
// parts have it.
func extremes(parts []Measured, name string) (least, most float64, count int) {
	least = math.Inf(1)
	for _, part := range parts {
		if v, ok := part.Numbers[name]; ok {
			least, most, count = min(least, math.Abs(v)), max(most, math.Abs(v)), count+1
		}
	}
	return least, most, count
}
