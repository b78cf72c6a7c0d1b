package report

import (
	"fmt"
	"strings"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
)

// rowsHeight is how high a line of rows and gaps is, in pixels, without its words.
const rowsHeight = 22.0

// tablePlaces are the rows and gaps of the tables that are probed, from below to above. Not every
// table has all of them.
func tablePlaces() []string {
	return []string{
		"gap_below_5", "row_5", "gap_5_10", "row_10", "gap_10_10", "row_10_again", "gap_10_15", "row_15", "gap_15_20", "row_20", "gap_above_20",
	}
}

// Rows draw which rows and gaps of a table a statement locks, a line for each combination of index
// and isolation. It is nil where that was not tried.
func Rows(h *history.History) *Picture {
	p := &Picture{Title: "Which rows and gaps are locked"}
	places := tablePlaces()
	width := 100 / float64(len(places))
	y, locked, tried := 0.0, 0, 0
	for _, c := range innodb.Combinations() {
		p.text("lane", 0, y+12, "", combinationWords(c))
		y += laneHead
		for i, name := range places {
			value, ok := h.Figures[c.String()+"."+name]
			if !ok {
				continue
			}
			tried++
			locked += int(value)
			p.rowOrGap(name, value > 0, float64(i)*width, y, width)
		}
		y += rowsHeight + laneGap
	}
	if tried == 0 {
		return nil
	}
	p.height = y
	p.Desc = fmt.Sprintf("%d of %d rows and gaps are locked, in %d combinations of index and isolation.", locked, tried, len(innodb.Combinations()))
	p.Legend = []Key{
		{"over", "locked: high for a row, with its number; low for a gap between rows"},
		{"track free", "free: another connection changed the row, or inserted in the gap"},
	}
	return p
}

// rowOrGap is high for a row and low for a gap, so that the two differ where both are locked.
func (p *Picture) rowOrGap(name string, locked bool, x, y, width float64) {
	class, words, said := "track free", "track-words", "free"
	if locked {
		class, words, said = "over", "over-words", "locked"
	}
	top, high := y+7, rowsHeight-15
	number, isRow := strings.CutPrefix(name, "row_")
	if isRow {
		top, high = y+1, rowsHeight-4
	}
	p.rect(class, x+width*0.08, top, width*0.84, high, strings.ReplaceAll(name, "_", " ")+": "+said)
	if isRow {
		number, _, _ = strings.Cut(number, "_")
		p.text(words, x+width/2, y+14, "middle", number)
	}
}

func combinationWords(c innodb.Combination) string {
	index := map[innodb.Index]string{innodb.Primary: "primary key", innodb.Unique: "unique index", innodb.Plain: "index", innodb.None: "no index"}[c.Index]
	level := "READ COMMITTED"
	if strings.HasSuffix(c.String(), "_rr") {
		level = "REPEATABLE READ"
	}
	return index + ", " + level
}
