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
	"github.com/stockd/stockd/internal/lab/innodb"
)

// mostRounds is how many rounds of votes are drawn.
const mostRounds = 14

// The measures of a grid: where its columns begin, in percent, and how high a row is, in pixels.
const (
	gridFrom   = 30.0
	gridHeight = 20.0
)

// grid has a square for each of its columns in each row.
type grid struct {
	columns []string
	width   float64 // of a column, in percent
	rows    []gridRow
}

// gridRow has a name to its left, and a remark to its right.
type gridRow struct {
	name, remark string
	squares      map[string]square // by columns; one that is missing is empty
}

// square has the colour and the sign of a key.
type square struct {
	Key
	title string
}

func (p *Picture) grid(g grid) {
	for i, name := range g.columns {
		p.text("soft", gridFrom+(float64(i)+0.5)*g.width, 12, "middle", name)
	}
	y := 18.0
	for _, row := range g.rows {
		p.text("", 0, y+14, "", row.name)
		for i, name := range g.columns {
			x, one := gridFrom+float64(i)*g.width, row.squares[name]
			p.rect(cmp.Or(one.Class, "track"), x, y+1, g.width*0.85, gridHeight-3, one.title)
			p.text("vote", x+g.width*0.425, y+14, "middle", one.glyph())
		}
		p.text("", gridFrom+float64(len(g.columns))*g.width+1, y+14, "", row.remark)
		y += gridHeight
	}
	p.height = y
}

// round is one try: what each master answered.
type round struct {
	holder string
	at     time.Time
	votes  map[string]history.Event // by masters
	won    bool                     // the lease was granted by it
	// again counts the same answers to the same holder after it, until a time.
	again int
	until time.Time
}

// same reports whether a later round of the same holder is the same.
func (r round) same(other round) bool {
	return r.holder == other.holder && r.won == other.won && maps.EqualFunc(r.votes, other.votes, func(a, b history.Event) bool { return a.What == b.What })
}

// folded counts rounds of a holder that follow a same one.
func folded(all []round) []round {
	var list []round
	last := make(map[string]int) // in list, by holder
	for _, r := range all {
		if i, ok := last[r.holder]; ok && list[i].same(r) {
			list[i].again, list[i].until = list[i].again+1, r.at
			continue
		}
		last[r.holder] = len(list)
		list = append(list, r)
	}
	return list
}

// voteKeys are the answers of a master, in the order of the legend.
func voteKeys() []Key {
	return []Key{{"vote-for", "granted"}, {"vote-against", "refused: it has another holder"}, {"vote-none", "no answer, or an error"}}
}

// voteKey is that of an event, or -1 where it is no vote.
func voteKey(what history.EventKind) int {
	return slices.Index([]history.EventKind{history.VotedFor, history.VotedAgainst, history.NoVote}, what)
}

// Votes draw what each of several masters answered to each try. It is nil where none was asked.
func Votes(h *history.History) *Picture {
	all := rounds(h)
	if len(all) == 0 {
		return nil
	}
	masters, won := make(map[string]bool), 0
	for _, r := range all {
		if r.won {
			won++
		}
		for name := range r.votes {
			masters[name] = true
		}
	}
	p := &Picture{Title: "How each master voted", Legend: voteKeys()}
	p.Desc = fmt.Sprintf("%s, of which %s a lease.", Plural(len(all), "round of votes", "rounds of votes"), Plural(won, "granted", "granted"))
	rows := folded(all)
	shown := worthy(rows)
	if len(shown) < len(rows) {
		p.notef("%d of %d different rounds are drawn: those that granted a lease, and the first of the others.", len(shown), len(rows))
	}
	g, from := grid{columns: slices.SortedFunc(maps.Keys(masters), natural), width: 7}, extent(h).from
	for _, r := range shown {
		g.rows = append(g.rows, r.row(len(masters), from))
	}
	p.grid(g)
	p.text("soft", 0, 12, "", "asked, by")
	p.text("soft", gridFrom-1, 12, "end", "master")
	return p
}

func (r round) row(masters int, from time.Time) gridRow {
	row, granted := gridRow{name: Duration(r.at.Sub(from).Round(time.Millisecond)) + " " + r.holder, squares: make(map[string]square)}, 0
	for name, vote := range r.votes {
		key := voteKeys()[voteKey(vote.What)]
		row.squares[name] = square{key, fmt.Sprintf("master %s: %s, after %s", name, key.Words, Duration(vote.Took.Round(time.Microsecond)))}
		if vote.What == history.VotedFor {
			granted++
		}
	}
	row.remark = fmt.Sprintf("%d of %d", granted, masters)
	if r.won {
		row.remark += ", held"
	}
	if r.again > 0 {
		row.remark += fmt.Sprintf(", %s until %s", Times(r.again+1), Duration(r.until.Sub(from).Round(time.Millisecond)))
	}
	return row
}

// rounds parts the votes of each lease into tries: a master answers once in each.
func rounds(h *history.History) (list []round) {
	for _, l := range h.Leases {
		var tries []round
		for _, n := range l.Notes {
			if voteKey(n.What) < 0 {
				continue
			}
			last := len(tries) - 1
			if last < 0 || tries[last].votes[n.By].What != "" {
				tries = append(tries, round{holder: l.Holder, at: n.At, votes: make(map[string]history.Event)})
				last++
			}
			tries[last].votes[n.By] = n
		}
		if len(tries) > 0 {
			tries[len(tries)-1].won = !l.Granted.IsZero()
		}
		list = append(list, tries...)
	}
	slices.SortStableFunc(list, func(a, b round) int { return a.at.Compare(b.at) })
	return list
}

// worthy are the rounds that are drawn, in the order of time.
func worthy(all []round) []round {
	won, others := slices.Clone(all), slices.Clone(all)
	won = slices.DeleteFunc(won, func(r round) bool { return !r.won })
	others = slices.DeleteFunc(others, func(r round) bool { return r.won })
	shown := slices.Concat(won, others)
	shown = shown[:min(len(shown), mostRounds)]
	slices.SortStableFunc(shown, func(a, b round) int { return a.at.Compare(b.at) })
	return shown
}

// Rows draw which rows and gaps of a table a statement locks, a line for each combination of index
// and isolation. It is nil where that was not tried.
func Rows(h *history.History) *Picture {
	locked, free := Key{"over", "locked: another connection waits"}, Key{"track free", "free: another connection changed the row, or inserted in the gap"}
	p := &Picture{Title: "Which rows and gaps are locked", Legend: []Key{locked, free}}
	places := tablePlaces()
	g, found, tried := grid{width: (100 - gridFrom) / float64(len(places))}, 0, 0
	for _, place := range places {
		g.columns = append(g.columns, place.column)
	}
	for _, c := range innodb.Combinations() {
		row := gridRow{name: combinationWords(c), squares: make(map[string]square)}
		for _, place := range places {
			value, ok := h.Figures[c.String()+"."+place.name]
			if !ok {
				continue
			}
			tried++
			found += int(value)
			one := square{free, strings.ReplaceAll(place.name, "_", " ") + ": free"}
			if value > 0 {
				one = square{locked, strings.ReplaceAll(place.name, "_", " ") + ": locked"}
			}
			row.squares[place.column] = one
		}
		g.rows = append(g.rows, row)
	}
	if tried == 0 {
		return nil
	}
	p.grid(g)
	p.Desc = fmt.Sprintf("%d of %d rows and gaps are locked, in %d combinations of index and isolation.", found, tried, len(g.rows))
	return p
}

// tablePlaces are the rows and gaps of the tables that are probed, from below to above, with the names of their columns.
// Not every table has all of them.
func tablePlaces() []struct{ name, column string } {
	return []struct{ name, column string }{
		{"gap_below_5", "<5"},
		{"row_5", "5"},
		{"gap_5_10", "5–10"},
		{"row_10", "10"},
		{"gap_10_10", "10–10"},
		{"row_10_again", "10′"},
		{"gap_10_15", "10–15"},
		{"row_15", "15"},
		{"gap_15_20", "15–20"},
		{"row_20", "20"},
		{"gap_above_20", ">20"},
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

// Wakes draw how many waiters looked again after each release. It is nil where no lease was released.
func Wakes(h *history.History) *Picture {
	counts, sum := wokenBy(h)
	if len(counts) == 0 {
		return nil
	}
	most := slices.Max(counts)
	p := &Picture{Title: "Waiters that each release woke"}
	p.Desc = fmt.Sprintf("%s, after which waiters were woken %s in all, and %s at most after one.", Plural(len(counts), "release", "releases"), Times(int(sum)), Times(int(most)))
	p.Legend = []Key{{"part", "waiters that looked again between this release and the next"}}
	if len(counts) > mostColumns {
		p.notef("The first %d of %d releases are drawn.", mostColumns, len(counts))
		counts = counts[:mostColumns]
	}
	names := make(map[string]bool)
	for _, l := range h.Leases {
		names[l.Holder] = true
	}
	scale := axis{0, max(float64(len(names)), most)} // so that experiments can be compared
	p.columns(counts, scale, Value, "first release", "last")
	return p
}

// wokenBy is how many waiters each release woke, in the order of time, and their sum.
func wokenBy(h *history.History) (counts []float64, sum float64) {
	contentions := checker.Contentions(h)
	var released []int
	for i, l := range h.Leases {
		if !l.Released.IsZero() {
			released = append(released, i)
		}
	}
	slices.SortStableFunc(released, func(a, b int) int { return h.Leases[a].Released.Compare(h.Leases[b].Released) })
	for _, i := range released {
		n := float64(contentions[i].Woke)
		counts, sum = append(counts, n), sum+n
	}
	return counts, sum
}

// signHeight is the strip of a lane in which its signs are, in pixels, mostSigns how many are
// drawn in a lane.
const (
	signHeight = 13
	mostSigns  = 80
)

// sign is what happened to a lease at a moment: a shape, and not a colour alone.
type sign struct {
	Key
	at time.Time
}

// signs are the kinds of signs, in the order of the legend.
func signs() []Key {
	return []Key{
		{"renewed", "renewed"},
		{"unrenewed", "not renewed"},
		{"expired", "its TTL was over"},
		{"woke", "a waiter was woken"},
	}
}

func signOf(class string, at time.Time) sign {
	all := signs()
	return sign{all[slices.IndexFunc(all, func(k Key) bool { return k.Class == class })], at}
}

// signsOf is what happened to leases within a window.
func signsOf(leases []history.Lease, window span) []sign {
	var list []sign
	for _, l := range leases {
		for _, n := range l.Notes {
			switch n.What {
			case history.Renewed:
				list = append(list, signOf("renewed", n.At))
			case history.NotRenewed:
				list = append(list, signOf("unrenewed", n.At))
			case history.Woken:
				list = append(list, signOf("woke", n.At))
			default: // votes have a picture of their own
			}
		}
		if at := l.Outlived(); !at.IsZero() {
			list = append(list, signOf("expired", at))
		}
	}
	list = slices.DeleteFunc(list, func(s sign) bool { return !window.meets(span{s.at, s.at}) })
	slices.SortStableFunc(list, func(a, b sign) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.Class, b.Class)) })
	return list
}

// signed draws the signs of a lane below y, where it has any, and returns where it ends.
func (p *Picture) signed(c clock, list []sign, y float64) float64 {
	if len(list) == 0 {
		return y
	}
	if len(list) > mostSigns {
		p.notef("Of a lane with %d signs those of wake-ups are not drawn.", len(list))
		list = slices.DeleteFunc(slices.Clone(list), func(s sign) bool { return s.Class == "woke" })
		list = list[:min(len(list), mostSigns)]
	}
	for _, s := range list {
		p.text(s.Class, c.percent(s.at), y+signHeight-3, "middle", s.glyph())
	}
	return y + signHeight
}
