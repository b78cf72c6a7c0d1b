package verdict

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Report is a number of runs on the same servers. The names of its JSON fields are a
// contract.
type Report struct {
	// Servers describes each backend, where the runs started their own; On is the same
	// in one line.
	Servers any    `json:"servers"`
	On      string `json:"-"`
	// Processors of the machine that everything ran on.
	Processors int   `json:"processors"`
	Runs       []Run `json:"runs"`
}

// AsExpected reports whether every run that was made came out as its strategy guarantees.
func (r *Report) AsExpected() bool {
	return !slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Verdict == Unexpected })
}

// machine names the servers and the machine in one line.
func (r *Report) machine() string {
	if r.Processors > 0 && r.On != "" {
		return fmt.Sprintf("%s, %d processors", r.On, r.Processors)
	}
	return r.On
}

// Table writes the report for people; color is for terminals.
func (r *Report) Table(w io.Writer, color bool) error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	counted := "requests\n/s"
	if !slices.ContainsFunc(r.Runs, func(run Run) bool { return !run.SalesOnly }) {
		counted = "sales\n/s"
	}
	t.AppendHeader(table.Row{
		"strategy", "replicas", "sold", "left", "over-\nsold", "lost\nupdates", "rejected", "errors", counted, "p50\nms", "p99\nms", "verdict",
	})
	numbers := make([]table.ColumnConfig, 0, 10)
	for column := 2; column <= 11; column++ {
		numbers = append(numbers, table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(numbers)
	for i, run := range r.Runs {
		if i > 0 && run.Name() != r.Runs[i-1].Name() {
			t.AppendSeparator()
		}
		t.AppendRow(run.row(color))
	}
	lines := append([]string{t.Render()}, r.notes()...)
	if words := r.shorter(); words != "" {
		lines = append(lines, words)
	}
	if on := r.machine(); on != "" {
		lines = append(lines, on)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func (r *Run) row(color bool) table.Row {
	replicas := "?"
	if r.Replicas > 0 {
		replicas = strconv.Itoa(r.Replicas)
	}
	row := table.Row{r.Name(), replicas}
	if r.Verdict == NotRun {
		for range 9 {
			row = append(row, "–")
		}
		return append(row, paint(color, r.Verdict, "not run, see below"))
	}
	return append(row,
		comma(r.Sold), comma(r.Left), comma(r.Oversold), comma(r.Lost),
		comma(int64(r.Rejected)), comma(int64(r.Errors+r.Unknown)),
		comma(int64(r.PerSecond)), fmt.Sprintf("%.1f", r.P50), fmt.Sprintf("%.1f", r.P99),
		paint(color, r.Verdict, r.words()))
}

// words is the verdict in a cell, and in how many tries it was reached.
func (r *Run) words() string {
	words := r.Words()
	if r.Tries > 1 {
		words += fmt.Sprintf(" (try %d)", r.Tries)
	}
	return words
}

// notes are the reasons and caveats that do not fit into a cell, each once.
func (r *Report) notes() (lines []string) {
	for _, run := range r.Runs {
		words := run.Note
		switch run.Verdict {
		case NotRun:
			words = "not run: " + run.Reason
		case Unexpected:
			words = "not expected: " + run.Reason
		case Expected:
		}
		if line := run.Name() + ": " + words; words != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// shorter says which runs were shorter than the rest, and how long they were.
func (r *Report) shorter() string {
	var first, last *Run
	var units int64
	for i := range r.Runs {
		if run := &r.Runs[i]; run.Shorter {
			if first == nil {
				first = run
			}
			last = run
			units = max(units, run.Stock)
		}
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("%s to %s: shorter runs, of %s units each, because a lock takes several round trips a sale",
		first.Name(), last.Name(), comma(units))
}

func paint(color bool, v Verdict, words string) string {
	if !color {
		return words
	}
	switch v {
	case Expected:
		return text.FgGreen.Sprint(words)
	case Unexpected:
		return text.FgRed.Sprint(words)
	default:
		return text.FgYellow.Sprint(words)
	}
}

func comma(n int64) string { return humanize.Comma(n) }
