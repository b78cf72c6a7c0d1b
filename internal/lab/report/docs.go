package report

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/live"
)

//go:embed docs.md.tmpl docs.zh.md.tmpl
var templates embed.FS

// document is a page of docs/lab: the index, or that of an experiment.
type document struct {
	// Of is what the run was made on.
	Of          []live.Fact
	Summary     string
	Experiments []*chapter
	// Experiment is what the page is of.
	Experiment *chapter
	// Before and After are the files of the Chinese pages beside this one.
	Before, After string
}

// chapter is an experiment with what a page shows of it: Failure and Remedy are the first part of either kind, of those
// with a picture where there are any, and Others the rest.
type chapter struct {
	experiments.Result

	Chinese         experiments.Words
	Failure, Remedy *shownPart
	Others          []*shownPart
	// Wrong and Right are the files of the failure's code, and of the remedy's.
	Wrong, Right []string
	sales        []live.Recording // of the parts, where it is the overview
}

// shownPart is a part with its picture, if it has one, and the strategies that sold in it.
type shownPart struct {
	live.PlayPart

	Picture *illustration
	Code    []source
}

// illustration is the picture of a page: its file, and what there is to see on it.
type illustration struct {
	File, Says string
	drawn      *Picture
}

// source is where the code of a strategy is.
type source struct{ Strategy, Path string }

// Docs writes the index of docs/lab and a page an experiment, with what all says of them and the figures of the run in
// runFolder. Beside them is the README's picture. In Chinese there is a page for ten experiments, with the pictures of the
// English ones and without the tables; what has no Chinese words stays English. Pages of experiments that are no more are
// removed.
func Docs(folder, runFolder string, all []experiments.Experiment) error {
	r, err := Read(runFolder)
	if err != nil {
		return err
	}
	d := document{Of: facts(r), Summary: summary(r)}
	for _, e := range described(all, r) {
		c, err := chapterOf(e, runFolder)
		if err != nil {
			return fmt.Errorf("write docs: %w", err)
		}
		d.Experiments = append(d.Experiments, c)
	}
	below := filepath.Join(folder, "zh")
	if err := errors.Join(os.MkdirAll(below, 0o755), removeOurs(folder), removeOurs(below)); err != nil {
		return fmt.Errorf("write docs: %w", err)
	}
	return errors.Join(d.inEnglish(folder), d.inChinese(below))
}

func (d document) inEnglish(folder string) error {
	err := d.write(filepath.Join(folder, "README.md"), "docs.md.tmpl", "index")
	for _, c := range d.Experiments {
		d.Experiment = c
		for _, p := range []*shownPart{c.Failure, c.Remedy} { // one of them at most has a picture
			if p != nil && p.Picture != nil {
				err = errors.Join(err, write(filepath.Join(folder, p.Picture.File), p.Picture.drawn.File))
			}
		}
		err = errors.Join(err, d.write(filepath.Join(folder, file(c)+".md"), "docs.md.tmpl", "page"))
		if len(c.sales) > 0 && len(c.sales) == len(c.Parts) { // else some were not made
			err = errors.Join(err, write(filepath.Join(folder, c.Name+".svg"), sales(c.sales...).File))
		}
	}
	return err
}

// overview is the experiment of which the README has a picture: the stock in all of its parts.
const overview = "oversell"

// inChinese writes ten experiments into a file.
func (d document) inChinese(folder string) error {
	const language = "docs.zh.md.tmpl"
	err := d.write(filepath.Join(folder, "README.md"), language, "index")
	var pages [][]*chapter
	for i, c := range d.Experiments {
		if i == 0 || chinesePage(d.Experiments[i-1]) != chinesePage(c) {
			pages = append(pages, nil)
		}
		pages[len(pages)-1] = append(pages[len(pages)-1], c)
	}
	for i, ten := range pages {
		page := document{Experiments: ten}
		if i > 0 {
			page.Before = chinesePage(pages[i-1][0])
		}
		if i+1 < len(pages) {
			page.After = chinesePage(pages[i+1][0])
		}
		err = errors.Join(err, write(filepath.Join(folder, chinesePage(ten[0])), func(w io.Writer) error {
			err := page.execute(w, language, "head")
			for _, page.Experiment = range ten {
				err = errors.Join(err, page.execute(w, language, "page"))
			}
			return err
		}))
	}
	return err
}

const perPage = 10

// chinesePage is the file of ten experiments, by the first of their numbers.
func chinesePage(e *chapter) string {
	first := (e.Number-1)/perPage*perPage + 1
	return fmt.Sprintf("%02d-%02d.md", first, first+perPage-1)
}

func file(e *chapter) string { return fmt.Sprintf("%02d-%s", e.Number, e.Name) }

// described are the results of a run with the words that the registry has now.
func described(all []experiments.Experiment, r *experiments.Report) []experiments.Result {
	list := make([]experiments.Result, 0, len(all))
	for _, e := range all {
		result := experiments.Result{Verdict: experiments.NotRun}
		if i := slices.IndexFunc(r.Experiments, func(r experiments.Result) bool { return r.Name == e.Name }); i >= 0 {
			result = r.Experiments[i]
		}
		result.Experiment = e
		parts := make([]experiments.PartResult, len(e.Parts))
		for i, p := range e.Parts {
			if at := slices.IndexFunc(result.Parts, func(r experiments.PartResult) bool { return r.Name == p.Name }); at >= 0 {
				parts[i] = result.Parts[at]
			}
			parts[i].Part = p
		}
		result.Parts = parts
		list = append(list, result)
	}
	return list
}

// removeOurs removes what an earlier run of Docs wrote, and nothing else.
func removeOurs(folder string) error {
	var errs []error
	for _, ending := range []string{".md", ".svg"} {
		ours, err := fs.Glob(os.DirFS(folder), "[0-9][0-9]-*"+ending)
		errs = append(errs, err)
		for _, name := range ours {
			errs = append(errs, os.Remove(filepath.Join(folder, name)))
		}
	}
	return errors.Join(errs...)
}

// chapterOf takes the failure and the remedy that are shown first from the parts of an experiment.
func chapterOf(e experiments.Result, runFolder string) (*chapter, error) {
	c := &chapter{Result: e, Chinese: experiments.Chinese(e.Name)}
	c.Wrong, c.Right = experiments.Code(e.Name)
	parts, chosen := make([]*shownPart, len(e.Parts)), make(map[bool]int) // by whether it is a remedy
	for i, p := range e.Parts {
		var err error
		if parts[i], err = c.show(p, runFolder); err != nil {
			return nil, err
		}
		if at, ok := chosen[p.Remedy]; !ok || parts[at].Picture == nil && parts[i].Picture != nil {
			chosen[p.Remedy] = i
		}
	}
	for i, shown := range parts {
		switch {
		case i != chosen[shown.Remedy]:
			shown.Picture = nil
			c.Others = append(c.Others, shown)
		case shown.Remedy:
			c.Remedy = shown
		default:
			c.Failure = shown
		}
	}
	if c.Remedy != nil && c.Failure != nil && c.Failure.Picture != nil {
		c.Remedy.Picture = nil
	}
	return c, nil
}

// show is a part with what its history has.
func (c *chapter) show(p experiments.PartResult, runFolder string) (*shownPart, error) {
	shown := &shownPart{PlayPart: live.PartOf(c.Name, p)}
	if p.History == "" {
		return shown, nil
	}
	h, err := history.Read(filepath.Join(runFolder, p.History))
	if err != nil {
		return nil, err
	}
	shown.Code, shown.Tables = soldBy(h), tables(h, p.Pictures)
	if drawn := draw(h, p.Pictures); drawn != nil {
		shown.Picture = &illustration{file(c) + ".svg", p.Name + ", " + drawn.Title + ": " + drawn.Desc, drawn}
	}
	if c.Name == overview && len(h.Samples) > 0 {
		c.sales = append(c.sales, sampled(h))
	}
	return shown, nil
}

// soldBy are the strategies of the purchases, in the order in which they came first, but for those that only the lab has.
func soldBy(h *history.History) (list []source) {
	for _, r := range h.Requests {
		if slices.ContainsFunc(list, func(s source) bool { return s.Strategy == r.Strategy }) {
			continue
		}
		if path, err := live.SourceOf(r.Strategy); err == nil {
			list = append(list, source{r.Strategy, path})
		}
	}
	return list
}

func (d document) write(path, language, name string) error {
	return write(path, func(w io.Writer) error { return d.execute(w, language, name) })
}

func (d document) execute(w io.Writer, language, name string) error {
	t, err := template.New("docs").Funcs(template.FuncMap{
		"file": file, "page": chinesePage, "base": filepath.Base, "folder": path.Dir, "state": state, "figures": figures,
		"sign": signOf, "sentence": Sentence, "stop": Stop, "plural": Plural[int], "seconds": Seconds, "cell": cell,
	}).ParseFS(templates, language)
	if err != nil {
		return fmt.Errorf("read template of docs: %w", err)
	}
	if err := t.ExecuteTemplate(w, name, d); err != nil {
		return fmt.Errorf("write docs: %w", err)
	}
	return nil
}

// cell keeps a text within the cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s)
}
