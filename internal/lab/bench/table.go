package bench

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Table writes the figures for people: medians with their spread, and for those
// that have an aim, whether it is reached.
func (r *Result) Table(w io.Writer) error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(table.Row{"", "median", "min", "max", "aim", ""})
	t.SetColumnConfigs([]table.ColumnConfig{
		{Number: 2, Align: text.AlignRight}, {Number: 3, Align: text.AlignRight}, {Number: 4, Align: text.AlignRight},
	})
	for _, f := range r.Subjects {
		t.AppendRow(f.row("%.0f"))
	}
	t.AppendSeparator()
	for _, f := range r.Ratios {
		t.AppendRow(f.row("%.2f"))
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func (f Figure) row(format string) table.Row {
	reached := ""
	switch {
	case f.Aim != "" && f.Reached:
		reached = "reached"
	case f.Aim != "":
		reached = "not reached"
	}
	show := func(v float64) string { return fmt.Sprintf(format+"%s", v, f.Unit) }
	return table.Row{f.Name, show(f.Median), show(f.Min), show(f.Max), f.Aim, reached}
}
