package report

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
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
	Experiments []experiments.Result
	// Experiment is what the page is of, Failure and Remedy the first part of either kind, of those
	// with a picture where there are any, and Others the rest.
	Experiment      experiments.Result
	Failure, Remedy *shownPart
	Others          []shownPart
	// Before and After are the files of the Chinese pages beside this one.
	Before, After string
	// Wrong and Right are the files of the failure's code, and of the remedy's.
	Wrong, Right []string
}

// shownPart is a part with its picture, if it has one, its tables, and the strategies that sold in it.
type shownPart struct {
	experiments.PartResult

	Picture *illustration
	Tables  []live.Table
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
	d := document{Of: facts(r), Summary: summary(r), Experiments: described(all, r)}
	below := filepath.Join(folder, "zh")
	for _, one := range []string{folder, below} {
		if err := os.MkdirAll(one, 0o755); err != nil {
			return fmt.Errorf("write docs: %w", err)
		}
		if err := removeOurs(one); err != nil {
			return err
		}
	}
	if err := d.inEnglish(folder, runFolder); err != nil {
		return err
	}
	translate(d.Experiments)
	return d.inChinese(below, runFolder)
}

func (d *document) inEnglish(folder, runFolder string) error {
	if err := d.write(filepath.Join(folder, "README.md"), "docs.md.tmpl", "index"); err != nil {
		return err
	}
	for _, e := range d.Experiments {
		if err := d.arrange(e, runFolder); err != nil {
			return err
		}
		for _, p := range []*shownPart{d.Failure, d.Remedy} { // one of them at most has a picture
			if p == nil || p.Picture == nil {
				continue
			}
			if err := write(filepath.Join(folder, p.Picture.File), p.Picture.drawn.File); err != nil {
				return err
			}
		}
		if err := d.write(filepath.Join(folder, file(e)+".md"), "docs.md.tmpl", "page"); err != nil {
			return err
		}
		if e.Name == overview {
			if err := drawOverview(folder, runFolder, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// inChinese writes ten experiments into a file.
func (d *document) inChinese(folder, runFolder string) error {
	const language = "docs.zh.md.tmpl"
	if err := d.write(filepath.Join(folder, "README.md"), language, "index"); err != nil {
		return err
	}
	before := ""
	for len(d.Experiments) > 0 {
		ten, name := d.Experiments, chinesePage(d.Experiments[0])
		if i := slices.IndexFunc(ten, func(e experiments.Result) bool { return chinesePage(e) != name }); i > 0 {
			ten = ten[:i]
		}
		d.Experiments = d.Experiments[len(ten):]
		page := document{Experiments: ten, Before: before}
		if len(d.Experiments) > 0 {
			page.After = chinesePage(d.Experiments[0])
		}
		before = name
		err := write(filepath.Join(folder, name), func(w io.Writer) error {
			if err := page.execute(w, language, "head"); err != nil {
				return err
			}
			for _, e := range ten {
				if err := errors.Join(d.arrange(e, runFolder), d.execute(w, language, "page")); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const perPage = 10

// chinesePage is the file of ten experiments, by the first of their numbers.
func chinesePage(e experiments.Result) string {
	first := (e.Number-1)/perPage*perPage + 1
	return fmt.Sprintf("%02d-%02d.md", first, first+perPage-1)
}

// translate puts the Chinese words in the place of the English ones.
func translate(all []experiments.Result) {
	for i := range all {
		e := &all[i]
		words := experiments.Chinese(e.Name)
		e.Title, e.Claim = cmp.Or(words.Title, e.Title), cmp.Or(words.Claim, e.Claim)
		e.Why, e.Advice = cmp.Or(words.Why, e.Why), cmp.Or(words.Advice, e.Advice)
		for j := range e.Parts {
			p := &e.Parts[j]
			words := experiments.ChinesePart(e.Name, p.Name)
			p.Does, p.Expect, p.Finding.Says = cmp.Or(words.Does, p.Does), cmp.Or(words.Expect, p.Expect), cmp.Or(p.Finding.Chinese(), p.Finding.Says)
		}
	}
}

func file(e experiments.Result) string { return fmt.Sprintf("%02d-%s", e.Number, e.Name) }

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
			parts[i].Name, parts[i].Does, parts[i].Expect, parts[i].Remedy, parts[i].Pictures = p.Name, p.Does, p.Expect, p.Remedy, p.Pictures
		}
		result.Parts = parts
		list = append(list, result)
	}
	return list
}

// removeOurs removes what an earlier run of Docs wrote, and nothing else.
func removeOurs(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("write docs: %w", err)
	}
	ours := regexp.MustCompile(`^[0-9]{2}-[a-z0-9-]+\.(md|svg)$`)
	for _, entry := range entries {
		if !ours.MatchString(entry.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil {
			return fmt.Errorf("write docs: %w", err)
		}
	}
	return nil
}

// arrange takes the failure and the remedy that are shown first from the parts of an experiment.
func (d *document) arrange(e experiments.Result, runFolder string) error {
	d.Experiment, d.Failure, d.Remedy, d.Others = e, nil, nil, nil
	d.Wrong, d.Right = experiments.Code(e.Name)
	parts, chosen := make([]shownPart, len(e.Parts)), make(map[bool]int) // by whether it is a remedy
	for i, p := range e.Parts {
		parts[i] = shownPart{PartResult: p}
		if p.History != "" {
			h, err := history.Read(filepath.Join(runFolder, p.History))
			if err != nil {
				return fmt.Errorf("write docs: %w", err)
			}
			parts[i].Code, parts[i].Tables = soldBy(h), tables(h, p.Pictures)
			if drawn := draw(h, p.Pictures); drawn != nil {
				parts[i].Picture = &illustration{file(e) + ".svg", p.Name + ", " + drawn.Title + ": " + drawn.Desc, drawn}
			}
		}
		if at, ok := chosen[p.Remedy]; !ok || parts[at].Picture == nil && parts[i].Picture != nil {
			chosen[p.Remedy] = i
		}
	}
	for i := range parts {
		shown := &parts[i]
		switch {
		case i != chosen[shown.Remedy]:
			shown.Picture = nil
			d.Others = append(d.Others, *shown)
		case shown.Remedy:
			d.Remedy = shown
		default:
			d.Failure = shown
		}
	}
	if d.Remedy != nil && d.Failure != nil && d.Failure.Picture != nil {
		d.Remedy.Picture = nil
	}
	return nil
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

func (d *document) write(path, language, name string) error {
	return write(path, func(w io.Writer) error { return d.execute(w, language, name) })
}

func (d *document) execute(w io.Writer, language, name string) error {
	t, err := template.New("docs").Funcs(template.FuncMap{
		"file": file, "page": chinesePage, "base": filepath.Base, "folder": path.Dir, "kind": kind, "state": state, "figures": figures,
		"mark": mark, "sentence": Sentence, "stop": Stop, "plural": Plural, "seconds": Seconds, "cell": cell, "verdict": chineseVerdict,
	}).ParseFS(templates, language)
	if err != nil {
		return fmt.Errorf("read template of docs: %w", err)
	}
	if err := t.ExecuteTemplate(w, name, d); err != nil {
		return fmt.Errorf("write docs: %w", err)
	}
	return nil
}

func chineseVerdict(v experiments.Verdict) string {
	switch v {
	case experiments.Reproduced:
		return "已复现"
	case experiments.NotReproduced:
		return "未复现"
	default:
		return "未运行"
	}
}

// cell keeps a text within the cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s)
}

// overview is the experiment of which the README has a picture.
const overview = "oversell"

// drawOverview draws the stock in all parts of an experiment.
func drawOverview(folder, runFolder string, e experiments.Result) error {
	var list []live.Recording
	for _, part := range e.Parts {
		if part.History == "" {
			return nil
		}
		h, err := history.Read(filepath.Join(runFolder, part.History))
		if err != nil {
			return fmt.Errorf("draw %s: %w", part.Name, err)
		}
		if len(h.Samples) == 0 {
			return fmt.Errorf("draw %s: its history has no samples", part.Name)
		}
		list = append(list, sampled(h))
	}
	return write(filepath.Join(folder, e.Name+".svg"), sales(list...).File)
}
