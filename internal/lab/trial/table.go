package trial

import (
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/stockd/stockd/internal/lab/servers"
)

// table has the cells of the libraries on one server, a row a question. Where a question is of none of them, it is left out.
func (r *Report) table(on string, show func(*Cell) string) table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	head, names := table.Row{on}, []string(nil)
	for _, l := range r.Libraries {
		if l.Server == on {
			head, names = append(head, l.Name), append(names, l.Name)
		}
	}
	t.AppendHeader(head)
	for _, q := range r.Questions {
		row, asked := table.Row{q.Name}, false
		for i := range r.Cells {
			if c := &r.Cells[i]; c.Question == q.Name && slices.Contains(names, c.Library) {
				row, asked = append(row, show(c)), asked || c.Mark != NotApplicable
			}
		}
		if asked {
			t.AppendRow(row)
		}
	}
	return t
}

// on are the servers whose libraries were asked.
func (r *Report) on() (list []string) {
	for _, l := range r.Libraries {
		if _, runs := r.Servers[l.Server]; runs && !slices.Contains(list, l.Server) {
			list = append(list, l.Server)
		}
	}
	return list
}

// Table prints a table for each server.
func (r *Report) Table(out io.Writer) error {
	var b strings.Builder
	for _, on := range r.on() {
		fmt.Fprintln(&b, r.table(on, func(c *Cell) string { return string(c.Mark) }).Render())
	}
	for _, l := range r.Libraries {
		if why := r.Missing[l.Server]; why != "" {
			fmt.Fprintf(&b, "%s: %s\n", l.Name, why)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// page is what a page begins with.
//
//go:embed page.md
var page string

// Markdown prints a page with the tables, and the evidence of each cell below.
func (r *Report) Markdown(out io.Writer) error {
	var b strings.Builder
	b.WriteString("<!-- This page is made from a run, by `stocklab trial --markdown`: what is changed by hand is lost. -->\n\n" + page + "\n## Questions\n\n")
	for _, q := range r.Questions {
		fmt.Fprintf(&b, "- `%s`: %s\n", q.Name, q.Asks)
	}
	b.WriteString("\n## Answers\n\nMade on " + servers.Line(maps.Clone(r.Servers)) + ".\n")
	for _, on := range r.on() {
		fmt.Fprintf(&b, "\n%s\n", r.table(on, func(c *Cell) string { return fmt.Sprintf("[%s](#%s)", c.Mark, c.anchor()) }).RenderMarkdown())
	}
	b.WriteString("\n## Evidence\n")
	for _, l := range r.Libraries {
		fmt.Fprintf(&b, "\n### %s\n\n[What it promises](%s)%s.\n\n", l.Name, l.Docs, version(l.Module))
		for i := range r.Cells {
			if c := &r.Cells[i]; c.Library == l.Name {
				fmt.Fprintf(&b, "- <a id=%q></a>`%s` %s: %s.%s\n", c.anchor(), c.Question, c.Mark, c.Says, quoted(c.Promise))
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func quoted(promise string) string {
	if promise == "" {
		return ""
	}
	return " Promised: “" + promise + "”."
}

// version is that of a module in this program.
func version(module string) string {
	if v := servers.Linked(module); v != "" {
		return ", in version " + v
	}
	return ""
}

// anchor is the name of a cell's evidence in the page.
func (c *Cell) anchor() string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(c.Library+"-"+c.Question), func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r) }), "-")
}
