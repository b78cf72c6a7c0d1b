package picture

import (
	"fmt"
	"strconv"

	"github.com/stockd/stockd/internal/lab/experiment/page/words"
	"github.com/stockd/stockd/internal/lab/history"
)

// The measures of marks. A badge's share of the width is reckoned on a phone, in
// percent a pixel.
const (
	badgeStep   = 19
	badgeLevels = 3
	onPhone     = 100.0 / 320
	mostListed  = 30
)

// badge numbers the marks from first to last.
type badge struct {
	first, last int
	x           float64
	level       int
}

func (b badge) words() string {
	if b.first == b.last {
		return strconv.Itoa(b.first)
	}
	return fmt.Sprintf("%d–%d", b.first, b.last)
}

// badges puts marks beside each other, below each other where they are too
// close, and together where that is not enough.
func badges(at []float64) []badge {
	var list []badge
	var free [badgeLevels]float64
	for i, x := range at {
		level := 0
		for level < badgeLevels && x < free[level] {
			level++
		}
		if level == badgeLevels {
			latest := &list[len(list)-1]
			latest.last = i + 1
			free[latest.level] = latest.x + onPhone*badgeWidth(latest.words()+"0")
			continue
		}
		b := badge{first: i + 1, last: i + 1, x: x, level: level}
		list = append(list, b)
		free[level] = x + onPhone*(badgeWidth(b.words())+2)
	}
	return list
}

// within are the marks that the clock has.
func within(marks []history.Mark, c clock) []history.Mark {
	var list []history.Mark
	for _, m := range marks {
		if c.within(m.At) || !m.Until.IsZero() && c.within(m.Until) {
			list = append(list, m)
		}
	}
	return list
}

// marksAbove draws the numbers of the marks, lists them in words, and returns
// where the rest of the picture begins.
func (p *Picture) marksAbove(marks []history.Mark, c clock) float64 {
	marks = within(marks, c)
	at := make([]float64, len(marks))
	for i, m := range marks {
		at[i] = c.percent(m.At)
	}
	deepest := -1
	for _, b := range badges(at) {
		deepest = max(deepest, b.level)
		p.badge("mark", b.x, float64(b.level*badgeStep), b.words())
	}
	for i, m := range marks {
		if i == mostListed {
			p.note("%s more are not listed.", words.Plural(len(marks)-i, "mark", "marks"))
			break
		}
		p.Marks = append(p.Marks, inWords(m, c))
	}
	return float64((deepest+1)*badgeStep) + 2
}

func inWords(m history.Mark, c clock) string {
	said := c.since(m.At) + ": "
	if m.Who != "" {
		said += m.Who + " "
	}
	said += m.What
	if !m.Until.IsZero() {
		said += ", until " + c.since(m.Until)
	}
	return said
}

// markLines draws what was done as lines, and what lasted as bands.
func (p *Picture) markLines(marks []history.Mark, c clock, top, bottom float64) {
	for _, m := range within(marks, c) {
		x := c.percent(m.At)
		if !m.Until.IsZero() {
			p.rect("lasting", x, top, c.percent(m.Until)-x, bottom-top, inWords(m, c))
		}
		p.line("mark-line", x, top, 0, bottom-top)
	}
}
