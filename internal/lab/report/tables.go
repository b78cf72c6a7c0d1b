package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lab/live"
)

// maxRows is how many rows a table has at most.
const maxRows = 30

// tables are what there is of a history of the tables that are asked for: a replay does not show it.
func tables(h *history.History, asked []experiments.Picture) (list []live.Table) {
	of := map[experiments.Picture]func(*history.History) live.Table{
		experiments.Votes: votes, experiments.Wakes: wakes, experiments.Waits: waits, experiments.Rows: rows,
	}
	for _, one := range asked {
		if of[one] == nil {
			continue
		}
		t := of[one](h)
		if over := len(t.Rows) - maxRows; over > 0 {
			t.Title += fmt.Sprintf(" (the first %d of %d)", maxRows, len(t.Rows))
			t.Rows = t.Rows[:maxRows]
		}
		if len(t.Rows) > 0 {
			list = append(list, t)
		}
	}
	return list
}

// waits are how long requests waited for the lock.
func waits(h *history.History) live.Table {
	t := live.Table{Title: "How long requests waited for the lock", Head: []string{"of all requests", "waited at most"}}
	all := slices.Sorted(slices.Values(checker.OfHolders()(h)))
	for _, share := range []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1} {
		if len(all) > 0 {
			n := math.Ceil(share * float64(len(all)))
			t.Rows = append(t.Rows, []string{fmt.Sprintf("%g %% (%s)", 100*share, Count(int(n))), Duration(all[int(n)-1])})
		}
	}
	return t
}

// wakes are how many waiters looked again after each release.
func wakes(h *history.History) live.Table {
	t := live.Table{Title: "Waiters that each release woke", Head: []string{"release", "by", "woke"}}
	contentions := checker.Contentions(h)
	var released []int
	for i, l := range h.Leases {
		if !l.Released.IsZero() {
			released = append(released, i)
		}
	}
	slices.SortStableFunc(released, func(a, b int) int { return h.Leases[a].Released.Compare(h.Leases[b].Released) })
	from, _ := h.Extent()
	for _, i := range released {
		l := h.Leases[i]
		t.Rows = append(t.Rows, []string{Duration(l.Released.Sub(from).Round(time.Millisecond)), l.Holder, Count(contentions[i].Woke)})
	}
	return t
}

// round is one try: what each master answered.
type round struct {
	holder string
	at     time.Time
	votes  map[string]string // by masters
	won    bool              // the lease was granted by it
	// again counts the same answers to the same holder after it, until a time.
	again int
	until time.Time
}

// answers are those of a master to a try, as signs.
func answers() map[history.EventKind]string {
	return map[history.EventKind]string{history.VotedFor: "✓", history.VotedAgainst: "–", history.NoVote: "✗"}
}

// votes are what each of several masters answered to each try. What a holder got once more is counted in one row.
func votes(h *history.History) live.Table {
	t := live.Table{Title: "How each master voted: ✓ granted, – refused, ✗ no answer, or an error", Head: []string{"asked", "by"}}
	masters := make(map[string]bool)
	from, _ := h.Extent()
	var list []*round
	last := make(map[string]*round) // by holder
	for _, r := range rounds(h) {
		for name := range r.votes {
			masters[name] = true
		}
		before := last[r.holder]
		if before != nil && before.won == r.won && maps.Equal(before.votes, r.votes) {
			before.again, before.until = before.again+1, r.at
			continue
		}
		last[r.holder] = &r
		list = append(list, &r)
	}
	names := slices.SortedFunc(maps.Keys(masters), natural)
	for _, name := range names {
		t.Head = append(t.Head, "master "+name)
	}
	t.Head = append(t.Head, "votes")
	for _, r := range list {
		row := append(make([]string, 0, len(t.Head)), Duration(r.at.Sub(from).Round(time.Millisecond)), r.holder)
		granted := 0
		for _, name := range names {
			row = append(row, r.votes[name])
			granted += strings.Count(r.votes[name], "✓")
		}
		said := fmt.Sprintf("%d of %d", granted, len(names))
		if r.won {
			said += ", held"
		}
		if r.again > 0 {
			said += fmt.Sprintf(", %d times until %s", r.again+1, Duration(r.until.Sub(from).Round(time.Millisecond)))
		}
		t.Rows = append(t.Rows, append(row, said))
	}
	return t
}

// rounds parts the votes of each lease into tries: a master answers once in each.
func rounds(h *history.History) (list []round) {
	for _, l := range h.Leases {
		var tries []round
		for _, n := range l.Notes {
			answer, ok := answers()[n.What]
			if !ok {
				continue
			}
			if len(tries) == 0 || tries[len(tries)-1].votes[n.By] != "" {
				tries = append(tries, round{holder: l.Holder, at: n.At, votes: make(map[string]string)})
			}
			tries[len(tries)-1].votes[n.By] = answer
		}
		if len(tries) > 0 {
			tries[len(tries)-1].won = !l.Granted.IsZero()
		}
		list = append(list, tries...)
	}
	slices.SortStableFunc(list, func(a, b round) int { return a.at.Compare(b.at) })
	return list
}

// rows are which rows and gaps of a table a statement locks, by combinations of index and isolation.
func rows(h *history.History) live.Table {
	t := live.Table{Title: "Which rows and gaps are locked: ✗ another connection waits, ✓ it changed the row, or inserted in the gap", Head: []string{"index, isolation"}}
	for _, place := range tablePlaces() {
		t.Head = append(t.Head, strings.ReplaceAll(place, "_", " "))
	}
	for _, c := range innodb.Combinations() {
		row, tried := append(make([]string, 0, len(t.Head)), combinationWords(c)), false
		for _, place := range tablePlaces() {
			sign := ""
			if value, ok := h.Figures[c.String()+"."+place]; ok {
				sign, tried = map[bool]string{true: "✗", false: "✓"}[value > 0], true
			}
			row = append(row, sign)
		}
		if tried {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// tablePlaces are the rows and gaps of the tables that are probed, from below to above. Not every table has all of them.
func tablePlaces() []string {
	return []string{
		"gap_below_5", "row_5", "gap_5_10", "row_10", "gap_10_10", "row_10_again", "gap_10_15", "row_15", "gap_15_20", "row_20", "gap_above_20",
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
