package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/report"
)

// waiting is a lock in the picture of Waiters.
type waiting struct{ strategy, class, how string }

func waitings() []waiting {
	return []waiting{
		{"redis-lua", "polled", "a waiter tries again after a pause"},
		{"redis-reentrant", "woken", "a waiter is woken by a message"},
		{"zk-sequential", "queued", "a waiter is woken by the node before"},
	}
}

// Waiters draws the sales a second of three locks by the number of clients, as SVG: one whose
// waiters ask again after a pause, one that wakes them, and one with a queue in ZooKeeper.
func (r *Result) Waiters(w io.Writer) error {
	locks := waitings()
	chart, crowds := report.Lines{Title: "Sales per second of one item, by the number of clients"}, r.crowds(locks[0].strategy)
	if len(crowds) == 0 {
		return fmt.Errorf("draw waiters: no %s was measured: %w", locks[0].strategy, errNotMeasured)
	}
	for _, l := range locks {
		chart.Keys = append(chart.Keys, report.Key{Class: l.class, Words: l.strategy + ": " + l.how})
	}
	for _, n := range r.sizes() {
		panel := report.LinesPanel{Title: replicasOf(n), At: crowds, Of: "client"}
		for _, l := range locks {
			panel.Lines = append(panel.Lines, r.line(l.strategy, n, crowds))
		}
		chart.Panels = append(chart.Panels, panel)
	}
	chart.Notes = []string{r.roundsOf(locks[0].strategy, crowds), r.chartNotes()[1]}
	return chart.Draw().File(w)
}

// line is a strategy by the number of clients.
func (r *Result) line(strategy string, replicas int, crowds []int) []report.Range {
	line := make([]report.Range, len(crowds))
	for i, clients := range crowds {
		if f := r.find(Setting{Strategy: strategy, Clients: clients, Replicas: replicas}); f != nil {
			line[i] = report.Range{Value: f.Median, Min: f.Min, Max: f.Max}
		}
	}
	return line
}

// roundsOf says how often a strategy was measured with each number of clients.
func (r *Result) roundsOf(strategy string, crowds []int) string {
	said := make([]string, len(crowds))
	for i, clients := range crowds {
		rounds := 0
		for _, f := range r.Subjects {
			if f.Strategy == strategy && f.Clients == clients && !f.Group {
				rounds = max(rounds, len(f.Samples))
			}
		}
		said[i] = count(rounds, "round") + " of " + count(clients, "client")
	}
	return "Medians; whiskers are the least and the most. " + strings.Join(said, ", ") + "."
}

// crowds are the numbers of clients with which a strategy was measured alone.
func (r *Result) crowds(strategy string) (clients []int) {
	for _, f := range r.Subjects {
		if f.Strategy == strategy && !f.Group {
			clients = append(clients, f.Clients)
		}
	}
	slices.Sort(clients)
	return slices.Compact(clients)
}

// replicasOf is the title of a panel.
func replicasOf(n int) string {
	if n > 1 {
		return count(n, "replica") + " behind nginx"
	}
	return count(n, "replica")
}
