package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
)

// Plan says what to run.
type Plan struct {
	// Servers is where the backends are to come from.
	Servers servers.Choice
	// Experiments are made in this order.
	Experiments []Experiment
	// Folder takes the histories: NN-name/part-try.jsonl. Where it is empty they are
	// gone with the run.
	Folder   string
	Progress Progress
	// NextItem, where it is not nil, names an item that nothing else uses, for each try. Otherwise
	// they are counted from 1.
	NextItem func() int64
}

// Progress is notified of the progress of a run.
type Progress interface {
	// Say announces an operation that takes a moment.
	Say(words string)
	// Begin is called once, before the first experiment.
	Begin(experiments int)
	// Try is called when a part is made, the first time or once more.
	Try(e Experiment, p Part, try int)
	// Attempt is called before the function of a try begins, and what it returns when that has ended.
	Attempt(a Attempt) (over func())
	// Part is called when a part was made as often as it had to be, or could not be made. Its
	// history is relative to the folder.
	Part(folder string, p PartResult)
	// Done is called with each experiment.
	Done(r Result)
	// End is called once, after all other calls.
	End()
}

// Run makes the experiments. The report has all that were made, also with an
// error or after the end of ctx; an experiment that could not be made to its end
// is in the report as not run, and in the error.
func Run(ctx context.Context, p Plan) (r *Report, err error) {
	start := time.Now()
	r = &Report{Machine: servers.ThisMachine(), Servers: make(map[string]servers.Info), Start: start}
	defer func() { r.Seconds = time.Since(start).Seconds() }()
	defer p.Progress.End()
	p.Servers.Only = needs(p.Experiments)
	s, err := shop.Open(ctx, shop.Options{Servers: p.Servers, Progress: p.Progress.Say})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	r.Servers = s.Servers.Infos()
	r.Experiments, err = On(ctx, s, p)
	r.Interrupted = ctx.Err() != nil && len(r.Experiments) < len(p.Experiments)
	return r, err
}

// needs are the servers that experiments need beside the database, and those that they start themselves.
func needs(list []Experiment) []string {
	names := []string{}
	for _, e := range list {
		for _, p := range e.Parts {
			for _, need := range p.Stage.Needs {
				names = append(names, string(need))
			}
		}
	}
	return names
}

// On makes the experiments in a shop that is open, as Run does: the results are those that came to
// an end. It does not look at the plan's Servers, and does not call its End.
func On(ctx context.Context, s *shop.Shop, p Plan) (results []Result, err error) {
	if p.Folder == "" {
		p.Folder = filepath.Join(s.Supervisor.Folder(), "lab")
	}
	t := &provisioner{shop: s, plan: p}
	defer func() { err = errors.Join(err, t.end(context.WithoutCancel(ctx))) }()
	p.Progress.Begin(len(p.Experiments))
	var failures []error
	for _, e := range p.Experiments {
		result, err := t.experiment(ctx, e)
		if ctx.Err() != nil {
			return results, errors.Join(append(failures, context.Cause(ctx))...)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("experiment %d, %s: %w", e.Number, e.Name, err))
		}
		p.Progress.Done(result)
		results = append(results, result)
	}
	return results, errors.Join(failures...)
}

// experiment makes every part, also after one that did not hold: a failure that
// did not show itself says nothing about its remedy.
func (t *provisioner) experiment(ctx context.Context, e Experiment) (Result, error) {
	start := time.Now()
	result := Result{Experiment: e}
	var errs []error
	for _, p := range e.Parts {
		part, err := t.part(ctx, e, p)
		if err != nil {
			part.NotRun = err.Error()
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
		t.plan.Progress.Part(t.plan.Folder, part)
		result.Parts = append(result.Parts, part)
		if ctx.Err() != nil {
			break
		}
	}
	result.Seconds = time.Since(start).Seconds()
	result.judge()
	return result, errors.Join(errs...)
}

// maxTries bounds how often a failure is given the chance to show.
const maxTries = 5

// part makes one part until it has come out as it is expected, or as often as it may be tried. A remedy
// that fails once has failed.
func (t *provisioner) part(ctx context.Context, e Experiment, p Part) (result PartResult, err error) {
	result = PartResult{Part: p, Start: time.Now()}
	defer func() { result.End = time.Now() }()
	if result.NotRun = t.lacks(p.Stage); result.NotRun != "" {
		return result, nil
	}
	folder := fmt.Sprintf("%02d-%s", e.Number, e.Name)
	if err := os.MkdirAll(t.inFolder(folder), 0o755); err != nil {
		return result, err
	}
	for result.Tries == 0 || !result.Finding.Holds && !p.Remedy && result.Tries < maxTries {
		result.Tries++
		t.plan.Progress.Try(e, p, result.Tries)
		result.History = fmt.Sprintf("%s/%s-%d.jsonl", folder, p.Name, result.Tries)
		err = t.try(ctx, p, &result)
		if missing, ok := errors.AsType[*servers.MissingError](err); ok {
			result.NotRun = "needs " + missing.Error()
			return result, nil
		}
		if err != nil {
			return result, err
		}
	}
	return result, nil
}

func (t *provisioner) try(ctx context.Context, p Part, result *PartResult) error {
	file := t.inFolder(result.History)
	if err := t.execute(ctx, p, file); err != nil {
		return err
	}
	h, err := history.Read(file)
	if err != nil {
		return err
	}
	result.Finding, result.Contradiction = p.Check(h), ""
	if !p.Orders {
		return nil
	}
	picture := strings.TrimSuffix(result.History, ".jsonl") + "-order.html"
	drawn, err := checker.DrawIllegal(h, t.inFolder(picture))
	if drawn {
		result.Contradiction = picture
	}
	return err
}

func (t *provisioner) inFolder(name string) string { return filepath.Join(t.plan.Folder, name) }

// Attempt is where one try of a part records what happens, while it does.
type Attempt struct {
	Item  int64
	Start time.Time
	// Files are its history, and after it the records of its replicas, which have what happened
	// before Start, too.
	Files []string
}

func attemptOf(x *Try, file string) Attempt {
	a := Attempt{Item: x.Item, Start: x.Start, Files: []string{file}}
	if x.Cluster != nil {
		for _, replica := range x.Cluster.Replicas {
			if record := replica.History(); record != "" {
				a.Files = append(a.Files, record)
			}
		}
	}
	return a
}
