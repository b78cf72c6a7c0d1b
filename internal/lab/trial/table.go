package trial

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

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
		row, asked := append(make(table.Row, 0, 1+len(names)), q.Name), false
		for _, name := range names {
			text := ""
			if i := slices.IndexFunc(r.Cells, func(c Cell) bool { return c.Library == name && c.Question == q.Name }); i >= 0 {
				text, asked = show(&r.Cells[i]), asked || r.Cells[i].Mark != NotApplicable
			}
			row = append(row, text)
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

// pages are the documents, one a language.
//
//go:embed page.md.tmpl page.zh-CN.md.tmpl
var pages embed.FS

// Markdown prints the English page: the tables, and the evidence of each cell below.
func (r *Report) Markdown(out io.Writer) error { return r.page(out, "page.md.tmpl", nil) }

// InChinese prints the same in Chinese.
func (r *Report) InChinese(out io.Writer) error {
	return r.page(out, "page.zh-CN.md.tmpl", map[Mark]string{NotPromised: "未承诺", NotApplicable: "不适用"})
}

func (r *Report) page(out io.Writer, name string, words map[Mark]string) error {
	mark := func(c *Cell) string { return cmp.Or(words[c.Mark], string(c.Mark)) }
	t, err := template.New(name).Funcs(template.FuncMap{
		"mark": mark, "made": func() string { return servers.Line(maps.Clone(r.Servers)) }, "on": r.on, "evidence": r.evidence, "anchor": r.anchor,
		"table": func(on string) string {
			return r.table(on, func(c *Cell) string {
				if c.Mark == NotApplicable || r.figure(c) {
					return mark(c)
				}
				return fmt.Sprintf("[%s](#%s)", mark(c), r.anchor(c))
			}).RenderMarkdown()
		},
	}).ParseFS(pages, name)
	if err != nil {
		return err
	}
	return t.Execute(out, r)
}

// evidence are the cells of a library about which there is more to say than their marks.
func (r *Report) evidence(l Library) (list []*Cell) {
	for i := range r.Cells {
		if c := &r.Cells[i]; c.Library == l.Name && c.Mark != NotApplicable && !r.figure(c) {
			list = append(list, c)
		}
	}
	return list
}

// figure reports whether a cell's mark is what was measured.
func (r *Report) figure(c *Cell) bool {
	i := slices.IndexFunc(r.Questions, func(q Question) bool { return q.Name == c.Question })
	return c.Mark != Failed && i >= 0 && r.Questions[i].Figure != ""
}

// anchor is the name of a cell's evidence in the page.
func (r *Report) anchor(c *Cell) string {
	return fmt.Sprintf("%d-%s", 1+slices.IndexFunc(r.Libraries, func(l Library) bool { return l.Name == c.Library }), c.Question)
}

//go:embed published.json
var published []byte

// Published is the Report that the documents show, without what was recorded.
func Published() json.RawMessage { return published }

// Publish writes the trial into the sources of stockd: its pages, and what Published reads.
func (r *Report) Publish(sources string) error {
	brief := *r
	brief.Cells = slices.Clone(r.Cells)
	for i := range brief.Cells {
		brief.Cells[i].History, brief.Cells[i].Numbers = nil, nil
	}
	var english, chinese bytes.Buffer
	text, err := json.Marshal(brief) //nolint:musttag // it has no histories
	err = errors.Join(err, r.Markdown(&english), r.InChinese(&chinese))
	for name, content := range map[string][]byte{
		"docs/trial.md": english.Bytes(), "docs/trial.zh-CN.md": chinese.Bytes(), "internal/lab/trial/published.json": append(text, '\n'),
	} {
		if err == nil {
			err = os.WriteFile(filepath.Join(sources, name), content, 0o644)
		}
	}
	return err
}
