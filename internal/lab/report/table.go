package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
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
func Table(w io.Writer, r *experiments.Report, colour bool) error {
	t := verdict.NewTable("", 0, "no.", "experiment", "verdict", "seconds", "tries", "reason")
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 1, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 4, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 5, Align: text.AlignRight, AlignHeader: text.AlignRight},
		{Number: 6, WidthMax: reasonWidth, WidthMaxEnforcer: text.WrapSoft},
	})
	for i := range r.Experiments {
		e := &r.Experiments[i]
		mark := signOf(e.Verdict)
		came := mark.Mark + " " + string(e.Verdict)
		if colour {
			came = mark.colour.Sprint(came)
		}
		t.AppendRow(table.Row{e.Number, e.Name, came, fmt.Sprintf("%.1f", e.Seconds), e.Tries, reason(r, e)})
	}
	lines := append([]string{t.Render()}, findings(r)...)
	if e := r.Experiments; len(e) == 1 && e[0].Why != "" {
		lines = append(lines, e[0].Why+" "+e[0].Advice)
	}
	lines = append(lines, summary(r))
	if on := servers.Line(r.Servers); on != "" {
		lines = append(lines, on)
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

func reason(r *experiments.Report, e *experiments.Result) string {
	if len(r.Experiments) == 1 || e.Verdict != experiments.Reproduced || len(e.Reason) <= shortReason {
		return e.Reason
	}
	short := e.Reason[:shortReason]
	return short[:max(0, strings.LastIndex(short, " "))] + " …"
}

// findings are those of experiments that were run and did not come out.
func findings(r *experiments.Report) (lines []string) {
	for _, e := range r.Experiments {
		if e.Verdict != experiments.NotReproduced {
			continue
		}
		for _, p := range e.Parts {
			lines = append(lines, fmt.Sprintf("%s, %s: %s", e.Name, p.Name, finding(p)))
		}
	}
	return lines
}

func finding(p experiments.PartResult) string {
	if p.NotRun != "" {
		return "not run: " + p.NotRun
	}
	said := state(p) + " in " + Plural(p.Tries, "try", "tries") + ": " + Stop(p.Finding.Says)
	if !p.Finding.Holds {
		said += " Expected: " + Stop(p.Expect)
	}
	return said
}

// summary counts the verdicts, the good one first. Those that nothing came to are left out, but for that one.
func summary(r *experiments.Report) string {
	counts := make(map[experiments.Verdict]int)
	for _, e := range r.Experiments {
		counts[e.Verdict]++
	}
	parts := []string{fmt.Sprintf("%d %s", counts[experiments.Reproduced], experiments.Reproduced)}
	for _, v := range []experiments.Verdict{experiments.NotReproduced, experiments.NotRun} {
		if counts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	said := strings.Join(parts, ", ") + " in " + Seconds(r.Seconds)
	if r.Interrupted {
		said += "; ended before the last experiment"
	}
	return said
}
