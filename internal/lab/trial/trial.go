package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Mark is the answer to a question, as the evidence has it.
type Mark string

// The marks.
const (
	Holds         Mark = "✓"              // it held
	Broken        Mark = "✗"              // it did not, and the library's documents promise it
	NotPromised   Mark = "not promised"   // it did not, and they do not promise it
	NotApplicable Mark = "not applicable" // there is nothing to ask
	Failed        Mark = "?"              // a step of the lab failed, or the fault was not met: ask again
)

// Cell is one question to one library.
type Cell struct {
	Library  string `json:"library"`
	Question string `json:"question"`
	// Mark is the figure where one is measured.
	Mark Mark `json:"mark"`
	// Says and Chinese are what happened, and Promise what the library's documents say.
	Says    string             `json:"says"`
	Chinese string             `json:"zh"`
	Promise string             `json:"promise,omitempty"`
	Numbers map[string]float64 `json:"numbers,omitempty"`
	// History is what was recorded; Mark and Says come from it alone.
	History *history.History `json:"history,omitempty"`
}

// Plan is what is asked.
type Plan struct {
	Libraries []Library
	Questions []Question
	// Progress gets each cell when it is there, in one call at a time.
	Progress func(done, all int, c Cell)
}

// Report is what came of it.
type Report struct {
	Made      time.Time               `json:"made"`
	Servers   map[string]servers.Info `json:"servers"`
	Missing   map[string]string       `json:"missing,omitempty"`
	Libraries []Library               `json:"libraries"`
	Questions []Question              `json:"questions"`
	Cells     []Cell                  `json:"cells"`
}

// Choose picks what is named, by parts of the names; all where nothing is.
func Choose[T any](all []T, name func(T) string, wanted []string) ([]T, error) {
	for _, w := range wanted {
		if !slices.ContainsFunc(all, func(one T) bool { return strings.Contains(name(one), w) }) {
			return nil, fmt.Errorf("%q is in none of the names", w)
		}
	}
	return slices.DeleteFunc(all, func(one T) bool {
		return len(wanted) > 0 && !slices.ContainsFunc(wanted, func(w string) bool { return strings.Contains(name(one), w) })
	}), nil
}

// Run asks all questions of all libraries: those on different servers at the same time, and then, one after the other,
// what is measured.
func Run(ctx context.Context, p Plan) (_ *Report, err error) {
	k, err := servers.StartSupervisor()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	sites, infos, err := open(ctx, k, p.Libraries)
	if err != nil {
		return nil, err
	}
	s := sites["database"]
	r := &run{Plan: p, sites: sites, Report: Report{Made: time.Now(), Servers: infos, Missing: s.Missing, Libraries: p.Libraries, Questions: p.Questions}}
	var group sync.WaitGroup
	for on := range maps.Keys(r.Servers) {
		group.Go(func() { r.ask(ctx, on, func(q Question) bool { return q.Figure == "" }) })
	}
	group.Wait()
	for on := range maps.Keys(r.Servers) {
		r.ask(ctx, on, func(q Question) bool { return q.Figure != "" })
	}
	order := func(c Cell) int {
		return slices.IndexFunc(p.Libraries, func(l Library) bool { return l.Name == c.Library })*len(p.Questions) +
			slices.IndexFunc(p.Questions, func(q Question) bool { return q.Name == c.Question })
	}
	slices.SortFunc(r.Cells, func(a, b Cell) int { return cmp.Compare(order(a), order(b)) })
	return &r.Report, errors.Join(context.Cause(ctx), s.Close(context.WithoutCancel(ctx)))
}

type run struct {
	Plan
	Report
	sites map[string]*site // by server
	mu    sync.Mutex
}

// ask asks the libraries on one server some of the questions.
func (r *run) ask(ctx context.Context, on string, which func(Question) bool) {
	for _, l := range r.Plan.Libraries {
		for _, q := range r.Plan.Questions {
			if l.Server != on || !which(q) || ctx.Err() != nil {
				continue
			}
			c := r.cell(ctx, l, q)
			r.mu.Lock()
			r.Cells = append(r.Cells, c)
			r.Progress(len(r.Cells), len(r.Plan.Libraries)*len(r.Plan.Questions), c)
			r.mu.Unlock()
		}
	}
}

func (r *run) cell(ctx context.Context, l Library, q Question) Cell {
	c := Cell{Library: l.Name, Question: q.Name, Promise: l.Promises[q.Name]}
	if q.on != "" && !slices.Contains(strings.Fields(q.on), l.Server) {
		c.Mark = NotApplicable
		c.say(checker.Found(false, nil, checker.Say("asked-of", q.on)))
		return c
	}
	h, err := r.try(ctx, l, q)
	if err != nil {
		c.Mark, c.Says, c.Chinese = Failed, err.Error(), err.Error()
		return c
	}
	c.judge(q, h)
	return c
}

// judge has the mark and the words come from what was recorded.
func (c *Cell) judge(q Question, h *history.History) {
	check, figures := q.check, strings.Fields(q.Figure)
	if q.Figure != "" {
		check = checker.Reported(figures...)
	}
	f := check(h)
	c.say(f)
	c.History, c.Numbers = h, f.Numbers
	switch lost, loses := h.Figures["replies_lost"]; {
	case q.Figure != "" && f.Holds:
		for i, name := range figures {
			figures[i] = strconv.FormatFloat(h.Figures[name], 'f', 0, 64)
		}
		c.Mark = Mark(strings.Join(figures, " / "))
	case q.renewal && lost == 0:
		c.Mark = NotApplicable
		c.say(checker.Found(false, nil, checker.Say("no-renewal")))
	case q.Figure != "", loses && lost == 0:
		c.Mark = Failed
	case f.Holds:
		c.Mark = Holds
	case c.Promise != "":
		c.Mark = Broken
	default:
		c.Mark = NotPromised
	}
}

func (c *Cell) say(f checker.Finding) { c.Says, c.Chinese = f.Says, cmp.Or(f.Chinese(), f.Says) }

// Unanswered is an error where a cell has no answer.
func (r *Report) Unanswered() error {
	var list []string
	for _, c := range r.Cells {
		if c.Mark == Failed {
			list = append(list, c.Library+", "+c.Question)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d cells have no answer: %s", len(list), len(r.Cells), strings.Join(list, "; "))
}

// Judge computes every mark again, by the questions and promises of this program.
func (r *Report) Judge() {
	questions := Questions()
	for i := range r.Cells {
		c := &r.Cells[i]
		l, err := Find(c.Library)
		for _, q := range questions {
			if err == nil && q.Name == c.Question && c.History != nil {
				c.Promise = l.Promises[q.Name]
				c.judge(q, c.History)
			}
		}
	}
}

// longest bounds one question.
const longest = 2 * time.Minute

// try asks once, and reads what was written down.
func (r *run) try(ctx context.Context, l Library, q Question) (_ *history.History, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	on := r.sites[l.Server]
	t := &try{site: on, library: l, conn: Connect(on.Backends, l.Server, lease)}
	if t.folder, err = os.MkdirTemp(on.supervisor.Folder(), "trial-"); err != nil {
		return nil, err
	}
	files := []string{filepath.Join(t.folder, "history.jsonl")}
	to, err := history.Create(files[0])
	if err != nil {
		return nil, err
	}
	if err := t.run(ctx, to, q.do); err != nil {
		return nil, err
	}
	if _, err := os.Stat(t.ownHistory()); err == nil {
		files = append(files, t.ownHistory())
	}
	return history.Read(files...)
}
