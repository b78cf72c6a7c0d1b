package demo

import (
	_ "embed" // for the template
	"fmt"
	"io"
	"slices"
	"text/template"

	"github.com/dustin/go-humanize"

	"github.com/stockd/stockd/internal/load/verdict"
)

//go:embed page.md.tmpl
var page string

// Page writes a report as docs/demo.md, with how to read it.
func Page(w io.Writer, r *verdict.Report) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"n": humanize.Comma, "count": func(n int) string { return humanize.Comma(int64(n)) },
		"rate":   func(run verdict.Run) string { return humanize.Comma(int64(run.SalesPerSecond)) },
		"errors": func(run verdict.Run) int { return run.Errors + run.Unknown },
		"ran":    func(run verdict.Run) bool { return run.Verdict != verdict.NotRun },
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("read template of the demo: %w", err)
	}
	if err := t.Execute(w, map[string]any{"Runs": r.Runs, "Reasons": reasons(r), "On": r.On, "Processors": r.Processors}); err != nil {
		return fmt.Errorf("write page of the demo: %w", err)
	}
	return nil
}

// reasons are those of runs that were not made or not expected, and the caveats of
// databases, each once.
func reasons(r *verdict.Report) (lines []string) {
	for _, run := range r.Runs {
		words := run.Reason
		if run.Verdict == verdict.Expected {
			words = run.Note
		}
		line := "`" + run.Strategy + "`: " + words
		if words != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
