package report

import (
	"cmp"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/load/verdict"
)

//go:embed docs.md.tmpl docs.zh.md.tmpl
var templates embed.FS

// Edition is the language of pages, and where they are. English is that of the experiments themselves.
type Edition struct {
	template string
	// below is the folder of the pages within that of the English ones, which have the pictures.
	below string
	// words are the title and the claim of an experiment in the language, by its name. part has what is done,
	// expected and found in one. What is empty stays English.
	words func(experiment string) (title, claim string)
	part  func(does, expect, says string) (string, string, string)
}

// English has the pages and the pictures.
func English() Edition {
	return Edition{
		template: "docs.md.tmpl",
		words:    func(string) (title, claim string) { return "", "" },
		part:     func(string, string, string) (_, _, _ string) { return "", "", "" },
	}
}

// Chinese has pages in the folder zh, with the pictures of the English ones.
func Chinese(words func(experiment string) (title, claim string), part func(does, expect, says string) (string, string, string)) Edition {
	return Edition{template: "docs.zh.md.tmpl", below: "zh", words: words, part: part}
}

// document is a page of docs/lab: the index, or that of an experiment.
type document struct {
	in Edition
	// Of is what the run was made on, or empty where there is none.
	Of          []fact
	Summary     string
	Experiments []scenario.Result
	// Experiment is what the page is of, Failure and Remedy the first part of either kind, of those
	// with a picture where there are any, and Others the rest.
	Experiment      scenario.Result
	Failure, Remedy *shownPart
	Others          []shownPart
}

// shownPart is a part with its picture, if it has one, and the strategies that sold in it.
type shownPart struct {
	scenario.PartResult

	Picture *illustration
	Code    []source
}

// illustration is the file of a picture, and what there is to see on it.
type illustration struct{ File, Says string }

// source is where the code of a strategy is.
type source struct{ Strategy, Path string }

// Docs writes the index of docs/lab and a page an experiment, with what all says
// of them and the figures of the run in runFolder, or without figures where that
// is empty. sources are the files of strategies in the tree, by their names. Pages of experiments that
// are no more are removed.
func Docs(folder, runFolder string, all []scenario.Experiment, sources map[string]string, in Edition) error {
	r := &scenario.Report{}
	if runFolder != "" {
		var err error
		if r, err = Read(runFolder); err != nil {
			return err
		}
	}
	d := document{in: in, Experiments: described(all, r)}
	in.translate(d.Experiments)
	folder = filepath.Join(folder, in.below)
	if runFolder != "" {
		d.Of, d.Summary = facts(r), summary(r)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write docs: %w", err)
	}
	if err := removeOurs(folder); err != nil {
		return err
	}
	if err := d.write(filepath.Join(folder, "README.md"), "index"); err != nil {
		return err
	}
	for _, e := range d.Experiments {
		d.Experiment = e
		if err := d.arrange(folder, runFolder, sources); err != nil {
			return err
		}
		if err := d.write(filepath.Join(folder, file(e)+".md"), "page"); err != nil {
			return err
		}
	}
	return nil
}

// translate puts the words of the language in the place of the English ones.
func (in Edition) translate(all []scenario.Result) {
	for i := range all {
		e := &all[i]
		title, claim := in.words(e.Name)
		e.Title, e.Claim = cmp.Or(title, e.Title), cmp.Or(claim, e.Claim)
		for j := range e.Parts {
			p := &e.Parts[j]
			does, expect, says := in.part(p.Does, p.Expect, p.Finding.Says)
			p.Does, p.Expect, p.Finding.Says = cmp.Or(does, p.Does), cmp.Or(expect, p.Expect), cmp.Or(says, p.Finding.Says)
		}
	}
}

func file(e scenario.Result) string { return fmt.Sprintf("%02d-%s", e.Number, e.Name) }

// described are the results of a run with the words that the registry has now.
func described(all []scenario.Experiment, r *scenario.Report) []scenario.Result {
	list := make([]scenario.Result, 0, len(all))
	for _, e := range all {
		result := scenario.Result{Verdict: scenario.NotRun}
		if i := slices.IndexFunc(r.Experiments, func(r scenario.Result) bool { return r.Name == e.Name }); i >= 0 {
			result = r.Experiments[i]
		}
		result.Number, result.Name, result.Title, result.Claim, result.Source, result.Fix = e.Number, e.Name, e.Title, e.Claim, e.Source, e.Fix
		result.Parts = describedParts(e.Parts, result.Parts)
		list = append(list, result)
	}
	return list
}

func describedParts(parts []scenario.Part, results []scenario.PartResult) []scenario.PartResult {
	list := make([]scenario.PartResult, 0, len(parts))
	for _, p := range parts {
		var result scenario.PartResult
		if i := slices.IndexFunc(results, func(r scenario.PartResult) bool { return r.Name == p.Name }); i >= 0 {
			result = results[i]
		}
		result.Name, result.Does, result.Expect, result.Remedy, result.Pictures = p.Name, p.Does, p.Expect, p.Remedy, p.Pictures
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

// arrange takes the failure and the remedy that are shown first from the parts, and writes their pictures.
func (d *document) arrange(folder, runFolder string, sources map[string]string) error {
	d.Failure, d.Remedy, d.Others = nil, nil, nil
	histories := make([]*history.History, len(d.Experiment.Parts))
	for i, p := range d.Experiment.Parts {
		if p.History == "" {
			continue
		}
		h, err := history.Read(filepath.Join(runFolder, p.History))
		if err != nil {
			return fmt.Errorf("write docs: %w", err)
		}
		histories[i] = h
	}
	chosen := map[bool]int{false: -1, true: -1} // by whether it is a remedy
	for i, p := range d.Experiment.Parts {
		if at := chosen[p.Remedy]; at < 0 || !isDrawn(d.Experiment.Parts[at], histories[at]) && isDrawn(p, histories[i]) {
			chosen[p.Remedy] = i
		}
	}
	for i, p := range d.Experiment.Parts {
		shown := shownPart{PartResult: p, Code: soldBy(histories[i], sources)}
		if i != chosen[p.Remedy] {
			d.Others = append(d.Others, shown)
			continue
		}
		if isDrawn(p, histories[i]) {
			var err error
			if shown.Picture, err = d.illustrate(folder, p, histories[i]); err != nil {
				return err
			}
		}
		if p.Remedy {
			d.Remedy = &shown
		} else {
			d.Failure = &shown
		}
	}
	return nil
}

func isDrawn(p scenario.PartResult, h *history.History) bool {
	return h != nil && len(p.Pictures) > 0 && len(draw(h, p.Pictures)) > 0
}

// soldBy are the strategies of the purchases, in the order in which they came first.
func soldBy(h *history.History, sources map[string]string) (list []source) {
	if h == nil {
		return nil
	}
	for _, r := range h.Requests {
		s := source{r.Strategy, sources[r.Strategy]}
		if s.Path != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// illustrate writes the first picture of a part.
func (d *document) illustrate(folder string, p scenario.PartResult, h *history.History) (*illustration, error) {
	first := draw(h, p.Pictures)[0]
	name := file(d.Experiment) + ".svg"
	if p.Remedy {
		name = file(d.Experiment) + "-remedy.svg"
	}
	shown := &illustration{name, p.Name + ", " + first.Title + ": " + first.Desc}
	if d.in.below != "" {
		shown.File = "../" + name
		return shown, nil
	}
	return shown, save(filepath.Join(folder, name), first)
}

func save(path string, p *Picture) error {
	var b strings.Builder
	if err := p.File(&b); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write docs: %w", err)
	}
	return nil
}

func (d *document) write(path, name string) error {
	t, err := template.New("docs").Funcs(template.FuncMap{
		"file": file, "kind": kind, "state": state, "command": command, "figures": figures, "mark": mark,
		"sentence": Sentence, "stop": Stop, "plural": Plural, "seconds": Seconds, "cell": cell, "verdict": chineseVerdict,
	}).ParseFS(templates, d.in.template)
	if err != nil {
		return fmt.Errorf("read template of docs: %w", err)
	}
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, d); err != nil {
		return fmt.Errorf("write docs: %w", err)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write docs: %w", err)
	}
	return nil
}

func chineseVerdict(v scenario.Verdict) string {
	switch v {
	case scenario.Reproduced:
		return "已复现"
	case scenario.NotReproduced:
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

// Overview writes oversell.json, the stock and the sales of experiment 1 over time,
// and oversell.svg, which is drawn from it, into a folder.
func Overview(folder, runFolder string) error {
	r, err := Read(runFolder)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(r.Experiments, func(e scenario.Result) bool { return e.Name == overview })
	if at < 0 {
		return fmt.Errorf("%s has no experiment %s", runFolder, overview)
	}
	var sales []Sale
	for _, part := range r.Experiments[at].Parts {
		h, err := history.Read(filepath.Join(runFolder, part.History))
		if err != nil {
			return fmt.Errorf("draw %s: %w", part.Name, err)
		}
		sale := SaleOf(h)
		if len(sale.Points) == 0 {
			return fmt.Errorf("draw %s: its history has no samples", part.Name)
		}
		sales = append(sales, sale)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("write pictures: %w", err)
	}
	if err := verdict.WriteJSON(filepath.Join(folder, overview+".json"), sales); err != nil {
		return err
	}
	return save(filepath.Join(folder, overview+".svg"), Sales(sales))
}
