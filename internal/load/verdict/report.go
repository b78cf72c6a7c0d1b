package verdict

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
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
	t := NewTable("", 11,
		"strategy", "replicas", "sold", "left", "over-\nsold", "lost\nupdates", "rejected", "errors", "sales\n/s", "p50\nms", "p99\nms", "verdict")
	for i, run := range r.Runs {
		if i > 0 && run.Name() != r.Runs[i-1].Name() {
			t.AppendSeparator()
		}
		t.AppendRow(run.row(color))
	}
	lines := []string{t.Render()}
	if times := r.latencies(); times.Length() > 0 {
		lines = append(lines, times.Render())
	}
	lines = append(lines, r.notes()...)
	if words := r.shorter(); words != "" {
		lines = append(lines, words)
	}
	if on := r.machine(); on != "" {
		lines = append(lines, on)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// NewTable makes a table for people. The columns from the second to the last of the numbers are aligned to
// the right.
func NewTable(title string, numbers int, header ...any) table.Writer {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SetTitle("%s", title)
	t.AppendHeader(header)
	columns := make([]table.ColumnConfig, 0, numbers)
	for column := 2; column <= numbers; column++ {
		columns = append(columns, table.ColumnConfig{Number: column, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return t
}

// counted is what the throughput and the latencies are of.
func (r *Report) counted() string {
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return !run.SalesOnly }) {
		return "requests\n/s"
	}
	return "sales\n/s"
}

// latencies has the columns of JMeter's aggregate report.
func (r *Report) latencies() table.Writer {
	t := NewTable("Latency in ms, as in JMeter's aggregate report", 11,
		"strategy", "replicas", "median", "90 %", "95 %", "99 %", "min", "max", "errors\n%", r.counted(), "kB\n/s")
	for _, run := range r.Runs {
		if run.Verdict == NotRun {
			continue
		}
		row := make(table.Row, 0, 11)
		row = append(row, run.Name(), run.replicas())
		for _, v := range []float64{run.P50, run.P90, run.P95, run.P99, run.Min, run.Max, run.ErrorPercent} {
			row = append(row, fmt.Sprintf("%.1f", v))
		}
		t.AppendRow(append(row, comma(int64(run.PerSecond)), fmt.Sprintf("%.1f", run.KilobytesPerSecond)))
	}
	return t
}

func (r *Run) replicas() string {
	if r.Replicas == 0 {
		return "?"
	}
	return strconv.Itoa(r.Replicas)
}

func (r *Run) row(color bool) table.Row {
	row := table.Row{r.Name(), r.replicas()}
	if r.Verdict == NotRun {
		for range 9 {
			row = append(row, "–")
		}
		return append(row, paint(color, r.Verdict, "not run, see below"))
	}
	return append(row,
		comma(r.Sold), comma(r.Left), comma(r.Oversold), comma(r.Lost),
		comma(int64(r.Rejected)), comma(int64(r.Errors+r.Unknown)),
		comma(int64(r.SalesPerSecond)), fmt.Sprintf("%.1f", r.P50), fmt.Sprintf("%.1f", r.P99),
		paint(color, r.Verdict, r.cell()))
}

// cell is the verdict in the table, and in how many tries it was reached.
func (r *Run) cell() string {
	words := r.Words()
	if r.Tries > 1 {
		words += fmt.Sprintf(" (try %d)", r.Tries)
	}
	return words
}

// notes are the reasons and caveats that do not fit into a cell, each once.
func (r *Report) notes() (lines []string) {
	for _, run := range r.Runs {
		remark := run.Remark()
		if line := run.Name() + ": " + remark; remark != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, run := range r.Runs {
		if kinds := run.errorKinds(); kinds != "" {
			lines = append(lines, fmt.Sprintf("errors of %s on %s: %s", run.Name(), run.replicas(), kinds))
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

// WriteJSON keeps what a run came to in a file, for programs to read; without a name there is none.
func WriteJSON(path string, v any) error {
	if path == "" {
		return nil
	}
	content, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(content, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
