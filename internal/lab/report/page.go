// Package report presents the results of the lab: a table, a page with pictures, and the
// pages of docs/lab.
package report

import (
	_ "embed" // for the templates
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/load/verdict"
)

// The files of a report in the folder of its run.
const (
	jsonFile = "report.json"
	// File is the page, in the folder of a run.
	File = "report.html"
)

// Write writes report.json and report.html into the folder of a run, which has
// the histories of its parts, and a page an experiment that plays them again. A history that is missing or broken is said on the
// page and is no error.
func Write(folder string, r *scenario.Report) error {
	if err := verdict.WriteJSON(filepath.Join(folder, jsonFile), r); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(folder, File))
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := writeHTML(file, folder, r); err != nil {
		_ = file.Close() // the page was not written anyway
		return err
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Read reads the report in the folder of a run again.
func Read(folder string) (*scenario.Report, error) {
	content, err := os.ReadFile(filepath.Join(folder, jsonFile))
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	var r scenario.Report
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("read report: %s: %w", filepath.Join(folder, jsonFile), err)
	}
	return &r, nil
}

//go:embed page.html.tmpl
var pageTemplate string

//go:embed page.css
var pageStyle string

type view struct {
	*scenario.Report
	Style    template.CSS
	Headline string
	Counts   []count
	Facts    []fact
	Sections []section
}

type section struct {
	scenario.Result
	Parts      []part
	Bars       *figure
	Replay     string // the file of the page that plays it again
	Prev, Next *scenario.Result
}

type part struct {
	scenario.PartResult
	Figures []fact
	Drawn   []*figure
	// Trouble is why something is not drawn.
	Trouble string
}

type figure struct {
	*Picture
	SVG template.HTML
}

func writeHTML(w io.Writer, folder string, r *scenario.Report) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"mark": mark, "state": state, "kind": kind, "command": command,
		"sentence": Sentence, "stop": Stop, "seconds": Seconds, "plural": Plural, "add": func(a, b int) int { return a + b },
	}).Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("read template of report: %w", err)
	}
	v := view{
		Report: r, Style: template.CSS(Style + pageStyle), //nolint:gosec // both are our own
		Headline: headline(r), Counts: counts(r), Facts: facts(r),
	}
	for i := range r.Experiments {
		s, err := newSection(folder, &r.Experiments[i])
		if err != nil {
			return err
		}
		if i > 0 {
			s.Prev = &r.Experiments[i-1]
		}
		if i+1 < len(r.Experiments) {
			s.Next = &r.Experiments[i+1]
		}
		v.Sections = append(v.Sections, s)
	}
	if err := t.Execute(w, v); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func headline(r *scenario.Report) string {
	n := counts(r)[0].N
	if n == 1 && len(r.Experiments) == 1 {
		return "The experiment came out as the sources claim."
	}
	if n == len(r.Experiments) && n > 0 {
		return fmt.Sprintf("All %s came out as the sources claim.", Plural(n, "experiment", "experiments"))
	}
	return fmt.Sprintf("%d of %s came out as the sources claim.", n, Plural(len(r.Experiments), "experiment", "experiments"))
}

func newSection(folder string, e *scenario.Result) (section, error) {
	s := section{Result: *e}
	for i := range e.Parts {
		p := part{PartResult: e.Parts[i], Figures: figures(e.Parts[i].Finding.Numbers)}
		if err := p.draw(folder, fmt.Sprintf("e%d-p%d", e.Number, i+1)); err != nil {
			return s, err
		}
		s.Parts = append(s.Parts, p)
	}
	var err error
	if s.Replay, err = replay(folder, e); err != nil {
		return s, err
	}
	if bars := sideBySide(e); bars != nil {
		drawn, err := inline(bars, fmt.Sprintf("e%d-bars", e.Number))
		if err != nil {
			return s, err
		}
		s.Bars = drawn
	}
	return s, nil
}

// sideBySide compares the parts, where one of them asks for it.
func sideBySide(e *scenario.Result) *Picture {
	var list []Measured
	asked := false
	for _, p := range e.Parts {
		asked = asked || slices.Contains(p.Pictures, scenario.Bars)
		if p.NotRun == "" {
			list = append(list, Measured{Part: p.Name, Numbers: p.Finding.Numbers})
		}
	}
	if !asked {
		return nil
	}
	return Bars(list)
}

func (p *part) draw(folder, id string) error {
	if p.NotRun != "" || p.History == "" {
		return nil
	}
	h, err := history.Read(filepath.Join(folder, p.History))
	if err != nil {
		p.Trouble = "There are no pictures, because its history cannot be read: " + err.Error()
		return nil //nolint:nilerr // the report is made of what there is
	}
	for i, drawn := range draw(h, p.Pictures) {
		if i > 0 {
			drawn.Marks = nil // they have the same numbers as in the first picture
		}
		f, err := inline(drawn, fmt.Sprintf("%s-%d", id, i+1))
		if err != nil {
			return err
		}
		p.Drawn = append(p.Drawn, f)
	}
	return nil
}

func draw(h *history.History, asked []scenario.Picture) (list []*Picture) {
	for _, one := range asked {
		switch one {
		case scenario.Timeline:
			list = append(list, Timelines(h)...)
		case scenario.Stock:
			list = append(list, Stock(h))
		case scenario.Waits:
			list = append(list, Waits(h))
		case scenario.Steps:
			list = append(list, Steps(h))
		case scenario.Votes:
			list = append(list, Votes(h))
		case scenario.Wakes:
			list = append(list, Wakes(h))
		case scenario.Rows:
			list = append(list, Rows(h))
		default: // bars are drawn of the experiment
		}
	}
	return slices.DeleteFunc(list, func(p *Picture) bool { return p == nil })
}

func inline(p *Picture, id string) (*figure, error) {
	drawn, err := p.Inline(id)
	if err != nil {
		return nil, err
	}
	return &figure{Picture: p, SVG: drawn}, nil
}
