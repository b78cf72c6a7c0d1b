// Package live is stocklab live: a sale on real servers and replicas, controlled and
// watched from a page. What the page shows is measured: answers, the stock row and the
// ledger, the leases that the replicas record, and what the servers say.
package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/pause"
)

// Options say what to run.
type Options struct {
	// Servers is where the backends are to come from.
	Servers servers.Choice
	// External is replicas that others run, with their admin API; without a URL, servers and
	// replicas are started.
	External shop.Client
	// Proxies puts one before each server, so that the way to it can be slowed and cut.
	Proxies bool
	// RedisFaults starts a Redis with a replica that can take over, and masters of redlock whose
	// clocks can be moved. Both need Redis on this machine, and the clocks libfaketime.
	RedisFaults bool
	// Class is the address at which phones buy, which the page shows; empty: it shows none.
	Class string
	// Experiments can be played.
	Experiments []experiments.Experiment
	// Progress is notified of what takes a moment.
	Progress func(words string)
}

// Session is one sale after the other on the same servers. It must be closed.
type Session struct {
	hub    *hub
	ground ground
	follow *follower
	lenses map[string]*lens // the ways to look at the servers, by their names
	class  class
	at     string // Options.Class

	experiments []experiments.Experiment
	sampler     *sampler

	ctx  context.Context
	stop context.CancelFunc
	jobs sync.WaitGroup

	mu     sync.Mutex
	sale   Sale
	run    *run         // nil while nothing is sold
	meter  *meter       // of the run, or of a try of the experiment; nil: there is none
	played *performance // the experiment on the page; nil: a sale is
	item   int64
	acting []string // what is being done to machines, in words
}

// Begin starts the servers, and replicas that wait for a sale.
func Begin(ctx context.Context, o Options) (_ *Session, err error) {
	s := &Session{at: o.Class, experiments: o.Experiments, sale: Sale{Phase: Idle, Settings: defaults(), Modes: []Mode{}}}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx)) // it ends with Close
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.hub = newHub()
	s.follow = &follower{hub: s.hub}
	if o.External.URL != "" {
		err = s.visit(ctx, o)
	} else {
		err = s.open(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	s.sampler = &sampler{audit: s.ground.audit, count: s.queue}
	if s.lenses, err = s.ground.lenses(); err != nil {
		return nil, err
	}
	return s, s.begin(ctx)
}

// open starts servers and replicas.
func (s *Session) open(ctx context.Context, o Options) (err error) {
	stage := &stage{hub: s.hub, follow: s.follow}
	s.ground, s.follow.trapped = stage, stage.trapped
	return stage.open(ctx, o, s.sale.Settings.layout())
}

// visit sells on replicas that others run. Items of theirs have small numbers, and those of
// an earlier session earlier ones.
func (s *Session) visit(ctx context.Context, o Options) error {
	o.Progress("asking " + o.External.URL + " for its replicas")
	g := &guest{to: o.External}
	if _, err := g.recount(ctx); err != nil {
		return err
	}
	s.ground, s.item = g, time.Now().UnixMilli()
	s.sale.Settings.Replicas = len(g.replicas)
	s.every(recountEvery, func(time.Time) { s.recount(g) }) // replicas of others come and go
	return nil
}

// begin makes the state that every page begins with, and the jobs that change it.
func (s *Session) begin(ctx context.Context) error {
	c, err := s.ground.client()
	if err != nil {
		return err
	}
	known, err := c.Strategies(ctx)
	if err != nil {
		return err
	}
	s.follow.sale(0)
	s.hub.look(func(state *State) {
		s.ground.show(state)
		state.Class = s.at
		began{s.sale}.apply(state)
		strategies(known).apply(state)
	})
	s.every(followEvery, s.passOn)
	s.every(lookEvery, func(time.Time) { s.sampler.lookOnce(s.ctx) })
	s.every(measureEvery, func(time.Time) { s.sampler.countOnce(s.ctx) })
	s.every(measureEvery, s.measureAll)
	return nil
}

// Close ends the sale, the replicas and the servers.
func (s *Session) Close() error {
	s.stop() // the sale with it
	s.mu.Lock()
	r := s.run
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), actWithin)
	defer cancel()
	var errs []error
	if s.ground != nil {
		errs = append(errs, s.ground.quit(ctx))
	}
	if r != nil {
		r.legs.Wait()
	}
	s.jobs.Wait()
	for _, l := range s.lenses {
		errs = append(errs, l.close())
	}
	if s.ground != nil {
		errs = append(errs, s.ground.close(ctx))
	}
	return errors.Join(errs...)
}

// Start begins a sale. It returns when the settings are accepted; the sale is seen to begin.
func (s *Session) Start(settings Settings) error {
	if err := errors.Join(settings.check(s.known()), s.ground.check(settings)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return err
	}
	s.item++
	s.played = nil
	s.hub.publish((*Play)(nil))
	s.sale = Sale{Phase: Starting, Settings: settings, Item: s.item, Modes: []Mode{}}
	s.hub.publish(began{s.sale})
	s.follow.sale(s.item)
	s.class.touch()
	ctx, cancel := context.WithCancel(s.ctx)
	s.run = &run{ctx: ctx, cancel: cancel, item: s.item, settings: settings}
	r := s.run
	s.jobs.Go(func() {
		if err := s.admit(r); err != nil {
			s.end(r, nil, err)
		}
	})
	return nil
}

// ready says why neither a sale nor an experiment can begin now; the caller holds mu. One that began
// while a machine is being killed would be judged as if nothing had been done.
func (s *Session) ready() error {
	switch {
	case s.sale.Phase.active():
		return fmt.Errorf("%w: the sale is %s", errConflict, s.sale.Phase)
	case len(s.acting) > 0:
		return fmt.Errorf("%w: %s is not done yet: start again when it is", errConflict, s.acting[0])
	default:
		return nil
	}
}

// admit prepares replicas and item, and lets the clients in.
func (s *Session) admit(r *run) error {
	if err := s.ground.prepare(r.ctx, r.item, r.settings); err != nil {
		return err
	}
	c, err := s.ground.client()
	if err != nil {
		return err
	}
	known, err := c.Strategies(r.ctx)
	if err != nil {
		return err
	}
	s.hub.publish(strategies(known))
	if err := c.CreateGoods(r.ctx, r.item, r.settings.Stock); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sale.Phase != Starting { // it was stopped meanwhile
		return r.ctx.Err()
	}
	r.url, r.until, r.meter = c.URL, time.Now().Add(longest), newMeter()
	s.meter = r.meter
	s.sampler.look(r.item, r.settings.Room > 0)
	s.lead(r, r.settings.Mode)
	return nil
}

// lead begins a leg; the caller holds mu.
func (s *Session) lead(r *run, m Mode) {
	r.leg(m, func() { s.jobs.Go(func() { s.finish(r) }) })
	s.sale.Phase, s.sale.Modes = Selling, append([]Mode(nil), r.modes...)
	s.hub.publish(s.sale)
	mark := Mark{At: millis(time.Now()), What: "sell", Detail: m.String()}
	if len(r.modes) > 1 {
		mark.Phantom = s.sampler.phantom(r.item)
	}
	s.hub.publish(mark)
}

// Pause lets no further request in.
func (s *Session) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sale.Phase != Selling {
		return fmt.Errorf("%w: the sale is %s", errConflict, s.sale.Phase)
	}
	r := s.run
	r.endLeg()
	s.jobs.Go(func() {
		if pause.For(r.ctx, time.Until(r.until)) == nil {
			s.finish(r)
		}
	})
	s.sale.Phase = Halted
	s.hub.publish(s.sale)
	s.hub.publish(Mark{At: millis(time.Now()), What: "halt"})
	return nil
}

// Switch sells in another mode from now on, and goes on with a sale that is paused.
func (s *Session) Switch(m Mode) error {
	if err := m.check(s.known()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sale.Phase != Selling && s.sale.Phase != Halted {
		return fmt.Errorf("%w: the sale is %s", errConflict, s.sale.Phase)
	}
	s.run.endLeg()
	s.lead(s.run, m)
	return nil
}

// Continue goes on with a paused sale as it was sold last.
func (s *Session) Continue() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sale.Phase != Halted {
		return fmt.Errorf("%w: the sale is %s", errConflict, s.sale.Phase)
	}
	s.lead(s.run, s.run.modes[len(s.run.modes)-1])
	return nil
}

// Correct takes the units off the row that earlier lost updates have left there. Requests of an earlier mode are waited for:
// their writes would undo it.
func (s *Session) Correct() error {
	s.mu.Lock()
	r, p := s.run, s.sale.Phase
	if p != Selling && p != Halted {
		s.mu.Unlock()
		return fmt.Errorf("%w: the sale is %s", errConflict, p)
	}
	earlier := slices.Clone(r.answered)
	if p == Selling {
		earlier = earlier[:len(earlier)-1]
	}
	s.mu.Unlock()
	for _, answered := range earlier {
		<-answered // a request has a time limit
	}
	ctx, cancel := context.WithTimeout(r.ctx, lookWithin)
	defer cancel()
	by, err := s.ground.correct(ctx, r.item)
	if err == nil {
		s.hub.publish(Mark{At: millis(time.Now()), What: "correct", Detail: strconv.FormatInt(-by, 10)})
	}
	return err
}

// Stop ends the sale; the audit follows the last answer. One that has ended, or is ending, stays as it is: it may have ended by
// itself on the way of this command.
func (s *Session) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.sale.Phase {
	case Starting:
		s.run.cancel()
		s.sale.Phase = Stopping
		s.hub.publish(s.sale)
	case Playing:
		s.played.cancel()
	case Selling, Halted:
		r := s.run
		s.jobs.Go(func() { s.finish(r) })
	case Stopping, Ended:
	default:
		return fmt.Errorf("%w: the sale is %s", errConflict, s.sale.Phase)
	}
	return nil
}

// finish waits for the last answers and judges the sale.
func (s *Session) finish(r *run) {
	s.mu.Lock()
	if s.run != r || s.sale.Phase != Selling && s.sale.Phase != Halted {
		s.mu.Unlock()
		return // it is being finished
	}
	r.endLeg()
	s.sale.Phase = Stopping
	s.hub.publish(s.sale)
	s.mu.Unlock()
	r.legs.Wait()
	v, err := r.judge(r.ctx, s.ground, s.known())
	if v != nil {
		_ = s.follow.step(time.Now().Add(settle)) // what it cannot read now is no evidence
		v.excuse(s.follow.overlaps(), r.losesLock(s.known()))
	}
	s.end(r, v, err)
}

// end shows what the sale came to.
func (s *Session) end(r *run, v *Verdict, err error) {
	r.cancel()
	s.sampler.look(0, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run, s.meter = nil, nil
	s.sale.Phase, s.sale.Verdict = Ended, v
	if err != nil && !errors.Is(err, context.Canceled) {
		s.sale.Error = err.Error()
	}
	if r.meter != nil && v != nil { // the last point is the audit's
		p := r.meter.read(time.Now())
		p.Seen, p.Stock, p.Sold, p.Oversold, p.Lost = p.At, v.Left, v.Sold, v.Oversold, v.Lost
		s.hub.publish(p)
	}
	s.hub.publish(Mark{At: millis(time.Now()), What: "end"})
	s.hub.publish(s.sale)
}

// Act does something to a replica or a server.
func (s *Session) Act(name, what string) error {
	end, err := s.beginAct(name, what)
	if err != nil {
		return err
	}
	defer end()
	err = s.ground.act(s.ctx, name, what) // also where the reader does not wait for it
	if what == Add || what == Remove {
		s.resized()
	}
	return err
}

// beginAct notes that something is being done to a machine, until end is called.
func (s *Session) beginAct(name, what string) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.sale.Phase; p == Starting || p == Playing {
		return nil, fmt.Errorf("%w: the sale is %s", errConflict, p)
	}
	if what == Trap {
		if err := s.untrappable(); err != nil {
			return nil, err
		}
	}
	s.disturb()
	if what == Trap { // it may last until its replica goes on, which the next sale sees to
		return func() {}, nil
	}
	words := what + " " + name
	s.acting = append(s.acting, words)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.Index(s.acting, words)
		s.acting = slices.Delete(s.acting, i, i+1)
	}, nil
}

// untrappable says why no purchase can be paused as the sale is sold now; the caller holds mu.
func (s *Session) untrappable() error {
	if s.run == nil || len(s.run.modes) == 0 {
		return nil
	}
	if now := s.run.modes[len(s.run.modes)-1].Strategy; slices.Contains(withoutFailpoint(), now) {
		return fmt.Errorf("%w: %s has no failpoint at which a purchase could be paused: %s or %s the replica, or switch to another strategy",
			errConflict, now, Kill, Pause)
	}
	return nil
}

// disturb has requests that fail from now on be no evidence against the strategy of the sale; the caller holds mu.
func (s *Session) disturb() {
	if s.run != nil {
		s.run.faults.Store(true)
	}
}

// resized shows how many replicas there are now. A sale is judged by the most that it had.
func (s *Session) resized() {
	s.mu.Lock()
	defer s.mu.Unlock()
	replicas := 0
	s.hub.look(func(state *State) {
		for _, m := range state.Machines {
			if m.Kind == "replica" {
				replicas++
			}
		}
	})
	if p := s.sale.Phase; p == Selling || p == Halted {
		s.run.settings.Replicas = max(s.run.settings.Replicas, replicas)
	}
	if s.sale.Settings.Replicas != replicas {
		s.sale.Settings.Replicas = replicas
		s.hub.publish(s.sale)
	}
}

// every does something in equal distances until the session ends.
func (s *Session) every(distance time.Duration, do func(now time.Time)) {
	s.jobs.Go(func() {
		tick := time.NewTicker(distance)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				do(now)
			case <-s.ctx.Done():
				return
			}
		}
	})
}

// passOn passes on what the replicas have recorded.
func (s *Session) passOn(now time.Time) {
	if err := s.follow.step(now); err != nil && s.ctx.Err() == nil {
		s.hub.publish(Mark{At: millis(now), What: "gap", Detail: err.Error()})
	}
}

// measureEvery is the distance of two points.
const measureEvery = 250 * time.Millisecond

// measureAll publishes a point of the sale, and the buyers.
func (s *Session) measureAll(now time.Time) {
	s.measure(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if list, changed := s.class.buyers(s.item); changed {
		s.hub.publish(list)
	}
}

// measure publishes a point while there is a sale, or an experiment.
func (s *Session) measure(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meter == nil {
		return
	}
	p := s.meter.read(now)
	s.sampler.fill(&p, s.sale.Item)
	if p.Seen > 0 && s.sale.Settings.Stock == 0 { // the item of an experiment is there
		s.sale.Settings.Stock = p.Stock + p.Sold - p.Lost
		s.hub.publish(s.sale)
	}
	s.hub.publish(p)
}

// known are the strategies that the replicas have.
func (s *Session) known() (list strategies) {
	s.hub.look(func(state *State) { list = state.Strategies })
	return list
}
