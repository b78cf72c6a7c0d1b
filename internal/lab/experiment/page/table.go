package page

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/page/words"
	"github.com/stockd/stockd/internal/lab/servers"
)

// reasonWidth is how many letters of a reason stand in one line of the table, and
// shortReason how many in all where many experiments came out: the report has the
// rest.
const (
	reasonWidth = 48
	shortReason = 2*reasonWidth - 8
)

// Table writes the report for people; colour is for terminals. Below the table
// stand the findings of those experiments that did not come out, a line a part.
func Table(w io.Writer, r *experiment.Report, colour bool) error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(table.Row{"no.", "experiment", "verdict", "seconds", "tries", "reason"})
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 1, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 4, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 5, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 6, WidthMax: reasonWidth, WidthMaxEnforcer: text.WrapSoft},
	})
	for i := range r.Experiments {
		e := &r.Experiments[i]
		t.AppendRow(table.Row{e.Number, e.Name, paint(colour, e.Verdict), fmt.Sprintf("%.1f", e.Seconds), e.Tries, reason(r, e)})
	}
	lines := append([]string{t.Render()}, findings(r)...)
	lines = append(lines, summary(r))
	if on := servers.Line(r.Servers); on != "" {
		lines = append(lines, on)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func reason(r *experiment.Report, e *experiment.Result) string {
	if len(r.Experiments) == 1 || e.Verdict != experiment.Reproduced || len(e.Reason) <= shortReason {
		return e.Reason
	}
	short := e.Reason[:shortReason]
	return short[:max(0, strings.LastIndex(short, " "))] + " …"
}

// findings are those of experiments that were run and did not come out.
func findings(r *experiment.Report) (lines []string) {
	for _, e := range r.Experiments {
		if e.Verdict != experiment.NotReproduced {
			continue
		}
		for _, p := range e.Parts {
			lines = append(lines, fmt.Sprintf("%s, %s: %s", e.Name, p.Name, finding(p)))
		}
	}
	return lines
}

// finding is what came of a part, in words.
func finding(p experiment.PartResult) string {
	if p.NotRun != "" {
		return "not run: " + p.NotRun
	}
	said := state(p) + " in " + words.Plural(p.Tries, "try", "tries") + ": " + words.Stop(p.Finding.Says)
	if !p.Finding.Holds {
		said += " Expected: " + words.Stop(p.Expect)
	}
	return said
}

// summary counts the verdicts.
func summary(r *experiment.Report) string {
	all := counts(r)
	parts := make([]string, 0, len(all))
	for _, c := range all {
		parts = append(parts, fmt.Sprintf("%d %s", c.N, c.Verdict))
	}
	said := strings.Join(parts, ", ") + " in " + words.Seconds(r.Seconds)
	if r.Interrupted {
		said += "; ended before the last experiment"
	}
	return said
}

func paint(colour bool, v experiment.Verdict) string {
	said := mark(v) + " " + string(v)
	if !colour {
		return said
	}
	switch v {
	case experiment.Reproduced:
		return text.FgGreen.Sprint(said)
	case experiment.NotReproduced:
		return text.FgRed.Sprint(said)
	default:
		return text.FgYellow.Sprint(said)
	}
}
