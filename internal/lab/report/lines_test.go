package report

import (
	"math"
	"strings"
	"testing"
)

func TestLinesAreDrawnOnOneScale(t *testing.T) {
	p := Lines{
		Title: "Rates", Keys: []Key{{"polled", "slow"}, {"woken", "fast"}},
		Panels: []LinesPanel{
			{"one", []int{1, 10, 100}, "client", [][]Range{{{100, 100, 100}, {}, {50, 50, 50}}, {{100, 80, 200}, {150, 150, 150}, {200, 200, 200}}}},
			{"two", []int{1, 10, 100}, "client", [][]Range{{{100, 100, 100}, {100, 100, 100}, {100, 100, 100}}, {{}, {}, {}}}},
		},
	}.Draw()
	if want := "one, slow: 100 at 1, 50 at 100."; !strings.Contains(p.Desc, want) {
		t.Errorf("it is described as %q, which lacks %q", p.Desc, want)
	}
	var dots, whiskers []shape
	for _, s := range p.shapes {
		switch {
		case s.Kind == "dot":
			dots = append(dots, s)
		case s.Kind == "line" && strings.HasPrefix(s.Class, "spread"):
			whiskers = append(whiskers, s)
		}
	}
	if len(dots) != 8 || len(whiskers) != 1 {
		t.Fatalf("%d dots and %d whiskers, want 8 and 1", len(dots), len(whiskers))
	}
	slow, fast, other := dots[:2], dots[2:5], dots[5:]
	if slow[0].Y != fast[0].Y || slow[0].Y != other[0].Y {
		t.Errorf("the same value is at %v, %v and %v", slow[0].Y, fast[0].Y, other[0].Y)
	}
	if slow[1].Y <= slow[0].Y || fast[2].Y >= fast[0].Y {
		t.Errorf("less is not below: %+v, %+v", slow, fast)
	}
	if a, b := fast[1].X-fast[0].X, fast[2].X-fast[1].X; math.Abs(a-b) > 1e-9 || a <= 0 {
		t.Errorf("from 1 to 10 it is %v, from 10 to 100 %v", a, b)
	}
	if w := whiskers[0]; w.Y >= fast[0].Y || w.Bottom() <= fast[0].Y {
		t.Errorf("the whisker is from %v to %v, and its value at %v", w.Y, w.Bottom(), fast[0].Y)
	}
	if other[0].X <= fast[2].X {
		t.Errorf("the second panel begins at %v, within the first, which ends at %v", other[0].X, fast[2].X)
	}
}
