package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/load"
)

// Playing is the phase in which an experiment is made: nothing is sold beside it.
const Playing Phase = "playing"

// Play is an experiment of the lab as the page shows it: what it is, and what is known so far of what came of it. A verdict
// is there when its last part is over.
type Play struct {
	experiments.Result

	Parts []PlayPart `json:"parts"`
	// Chinese is title and claim.
	Chinese experiments.Words `json:"zh"`
	// Error is why it could not be made to its end.
	Error string `json:"error,omitempty"`
	// Recordings are of the parts that were made.
	Recordings []Recording `json:"-"`
}

// PlayPart is a part of it. Its tries count from 1; 0: it was not begun.
type PlayPart struct {
	experiments.PartResult

	// Over tells that it was made, or could not be made.
	Over bool `json:"over"`
	// Chinese is what it does, expects and says, as far as there are words for it.
	Chinese experiments.PartWords `json:"zh"`
	// Figures and Tables are of a report: the tables have what a replay does not show. Trouble is why there is no recording.
	Figures []Fact  `json:"figures,omitempty"`
	Tables  []Table `json:"tables,omitempty"`
	Trouble string  `json:"trouble,omitempty"`
	// Mark is that of a library on trial, whose questions are the parts.
	Mark string `json:"mark,omitempty"`
}

func (*Play) kind() string { return "play" }

func (p *Play) apply(s *State) { s.Play = p.copy() }

// copy is what the state keeps: the original goes on.
func (p *Play) copy() *Play {
	if p == nil {
		return nil
	}
	one := *p
	one.Parts = slices.Clone(p.Parts)
	return &one
}

// performance is the experiment that is being made: the experiments.Progress of its run.
type performance struct {
	session *Session
	cancel  context.CancelFunc

	mu       sync.Mutex
	play     Play
	meter    *meter
	settings Settings // of the sale before, for the form
	machines []Machine
}

// Programme is what can be played, and what is said of it.
type Programme struct {
	Experiments []Play             `json:"experiments"`
	Narration   []experiments.Line `json:"narration"`
}

// Programme lists the experiments.
func (s *Session) Programme() Programme {
	p := Programme{Experiments: make([]Play, len(s.experiments)), Narration: experiments.Narration()}
	for i, e := range s.experiments {
		p.Experiments[i] = playOf(e)
	}
	return p
}

func playOf(e experiments.Experiment) Play {
	p := Play{Result: experiments.Result{Experiment: e}, Chinese: experiments.Chinese(e.Name)}
	for _, part := range e.Parts {
		p.Parts = append(p.Parts, PlayPart{PartResult: experiments.PartResult{Part: part}, Chinese: experiments.ChinesePart(e.Name, part.Name)})
	}
	return p
}

// Play makes an experiment of the lab, by the code of stocklab lab run, on the servers of the session.
// It returns when it has begun; Stop ends it.
func (s *Session) Play(name string) error {
	i := slices.IndexFunc(s.experiments, func(e experiments.Experiment) bool { return e.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: %q is not an experiment", errInput, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	p := &performance{session: s, cancel: cancel, play: playOf(s.experiments[i]), settings: s.sale.Settings}
	s.played, s.run, s.item = p, nil, s.item+1
	s.sale = Sale{Phase: Playing, Settings: s.sale.Settings, Item: s.item, Modes: []Mode{}}
	s.hub.publish(began{s.sale})
	s.hub.publish(&p.play)
	s.jobs.Go(func() { s.perform(ctx, p, s.experiments[i]) })
	return nil
}

// perform makes the experiment and ends it.
func (s *Session) perform(ctx context.Context, p *performance, e experiments.Experiment) {
	defer p.cancel()
	err := s.ground.experiment(ctx, experiments.Plan{
		Experiments: []experiments.Experiment{e}, Progress: p, NextItem: s.nextItem,
	})
	p.mu.Lock()
	if err != nil && ctx.Err() == nil {
		p.play.Error = err.Error()
	}
	s.hub.publish(&p.play)
	p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter, s.sale.Phase, s.sale.Settings = nil, Ended, p.settings
	s.hub.publish(s.sale)
}

func (s *Session) nextItem() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.item++
	return s.item
}

// experiment makes experiments. The replicas of a sale would take part of what is measured: they end, and
// the next sale starts them again.
func (s *stage) experiment(ctx context.Context, plan experiments.Plan) (err error) {
	plan.Folder = filepath.Join(s.shop.Supervisor.Folder(), "played")
	defer func() { err = errors.Join(err, os.RemoveAll(plan.Folder)) }()
	s.mu.Lock()
	list := slices.Clone(s.machines)
	s.mu.Unlock()
	if err := s.closeCluster(ctx); err != nil {
		return err
	}
	for _, m := range list {
		if err := s.restore(ctx, m); err != nil {
			return err
		}
	}
	_, err = experiments.On(ctx, s.shop, plan)
	s.publish() // without the replicas of the experiment
	return err
}

// restore undoes what was done to a server by hand.
func (s *stage) restore(ctx context.Context, m Machine) error {
	if m.Kind != "server" {
		return nil
	}
	if slices.Contains(m.Can, Right) {
		if err := s.act(ctx, m.Name, Right); err != nil {
			return err
		}
	}
	return s.heal(ctx, m)
}

// Say is part of experiments.Progress: the state of a part tells it.
func (*performance) Say(string) {}

// Begin is part of experiments.Progress.
func (*performance) Begin(int) {}

// End is part of experiments.Progress.
func (*performance) End() {}

// Try shows that a part is made, the first time or once more.
func (p *performance) Try(e experiments.Experiment, part experiments.Part, try int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(e.Parts, func(one experiments.Part) bool { return one.Name == part.Name })
	p.play.Parts[i].Tries = try
	p.session.hub.publish(&p.play)
}

// Done shows the verdict.
func (p *performance) Done(r experiments.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.play.Verdict, p.play.Seconds = r.Verdict, r.Seconds
	p.session.hub.publish(&p.play)
}

// Attempt draws a try while it is made.
func (p *performance) Attempt(a experiments.Attempt) (over func()) {
	s := p.session
	p.mu.Lock()
	of := newMeter()
	p.meter, p.machines = of, nil
	p.mu.Unlock()
	s.mu.Lock()
	s.meter, s.sale.Item, s.sale.Settings.Stock = of, a.Item, 0
	s.hub.publish(began{s.sale})
	s.hub.publish(machines{})
	s.mu.Unlock()
	s.follow.attempt(a.Files, func(l history.Line) bool { return p.take(l, a.Start) })
	s.sampler.look(a.Item, false)
	return func() {
		s.follow.rest()
		s.measure(time.Now())
		s.sampler.look(0, false)
	}
}

// take shows a line of the records of a try, and tells whether it is of a lease to show.
func (p *performance) take(l history.Line, start time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.Lease != nil:
		if l.Lease.At.Before(start) {
			return false
		}
		p.appear(l.Lease.Holder)
		return true
	case l.Mark != nil && !l.Mark.At.Before(start):
		if checker.Ends(*l.Mark) {
			go p.session.follow.died(l.Mark.Who, l.Mark.At) // it waits for the follower, which waits for us
		}
		p.session.hub.publish(Mark{At: millis(l.Mark.At), Who: l.Mark.Who, What: l.Mark.What})
	case l.Request != nil:
		p.meter.observe(answerOf(*l.Request))
	}
	return false
}

// appear adds a lane.
func (p *performance) appear(holder string) {
	if slices.ContainsFunc(p.machines, func(m Machine) bool { return m.Name == holder }) {
		return
	}
	p.machines = append(p.machines, laneOf(holder))
	slices.SortFunc(p.machines, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	p.session.hub.publish(machines(slices.Clone(p.machines)))
}

// Part shows what came of a part, and keeps its recording.
func (p *performance) Part(folder string, r experiments.PartResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, err := history.Read(filepath.Join(folder, r.History))
	r.History, r.Contradiction = "", "" // they are removed with the folder
	i := slices.IndexFunc(p.play.Parts, func(one PlayPart) bool { return one.Name == r.Name })
	p.play.Parts[i] = PartOf(p.play.Name, r)
	if err == nil && r.NotRun == "" {
		recording := OfPart(fmt.Sprint(p.play.Number, " ", p.play.Name), p.play.Parts[i], h)
		p.session.hub.look(recording.addSeen)
		p.play.Recordings = append(p.play.Recordings, recording)
	}
	p.session.hub.publish(&p.play)
}

// OfPart is the recording of a part of an experiment, or of a library on trial, made from its history.
func OfPart(of string, part PlayPart, h *history.History) Recording {
	r := OfHistory(of+", "+part.Name, h)
	r.Part, r.Narration = &part, experiments.Narration()
	return r
}

// PartOf is a part that was made, or could not be.
func PartOf(experiment string, p experiments.PartResult) PlayPart {
	part := PlayPart{PartResult: p, Over: true, Chinese: experiments.ChinesePart(experiment, p.Name)}
	part.Chinese.Says = p.Finding.Chinese()
	return part
}

// answerOf is a request as a meter takes it.
func answerOf(r history.Request) load.Answer {
	return load.Answer{Start: r.Start, End: r.End, Kind: kinds()[r.Outcome], Problem: r.Problem}
}

// Recordings are those of what the page shows: of each part of an experiment that is over, or of the
// sale as far as it has come.
func (s *Session) Recordings() ([]Recording, error) {
	s.mu.Lock()
	p := s.played
	s.mu.Unlock()
	if p == nil {
		r, err := s.Recording()
		return []Recording{r}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.play.Recordings), nil
}
