package bench

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/strategy"
)

// Options say how long to measure, and on what.
type Options struct {
	// Binary is a stockd.
	Binary  string
	Servers servers.Choice
	// Rounds is how often each subject with a target is measured.
	Rounds int
	// Each measurement takes so long; 0: as long as all of them may take Within.
	Each   time.Duration
	Within time.Duration
	// Quick leaves out every crowd but the usual one, and the locks by themselves.
	Quick bool
	// Only names the strategies that are measured; nil: every safe one.
	Only     *regexp.Regexp
	Progress Progress
}

// SuiteStrategies are those that Run measures where their servers are there.
func SuiteStrategies() (names []string) {
	for _, entry := range strategy.Registry() {
		if entry.Guarantees.ExclusiveAcrossReplicas {
			names = append(names, entry.Name)
		}
	}
	return names
}

// ItemsStrategies are those that RunItems measures.
func ItemsStrategies() (names []string) {
	for _, how := range severalItems() {
		names = append(names, how.Strategy)
	}
	return slices.Compact(names)
}

// GrowthStrategies are those that RunGrowth measures.
func GrowthStrategies() (names []string) {
	for _, g := range grown() {
		names = append(names, g.Strategy)
	}
	return names
}

func (o Options) crowds() []int {
	if o.Quick {
		return []int{usual}
	}
	return []int{one, few, usual, crowd}
}

func (o Options) plan() string {
	words := count(o.Rounds, "round")
	if o.Each > 0 {
		return words + " of " + o.Each.String()
	}
	return words + " within " + o.Within.String()
}

// What it takes to stop all servers in the end.
const toStop = 10 * time.Second

// Run measures the suite on servers of its own. The result has what was
// measured, also with an error; it is nil where that is nothing.
func Run(ctx context.Context, o Options) (*Result, error) {
	end := time.Now().Add(o.Within - toStop)
	return onServers(ctx, o, func(b *bench, result *Result) (err error) {
		b.end = end
		if b.bare, err = openBare(b.backends.Database); err != nil && !errors.Is(err, errNeedsMySQL) {
			return err
		}
		defer func() { err = errors.Join(err, b.bare.close()) }()
		return b.run(ctx, result)
	})
}

// onServers measures something on servers of its own.
func onServers(ctx context.Context, o Options, measure func(*bench, *Result) error) (result *Result, err error) {
	k, err := servers.StartSupervisor()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	backends, err := servers.StartBackends(ctx, k, o.Servers, o.Progress.Say)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, backends.Close(context.WithoutCancel(ctx))) }()
	result = &Result{Machine: servers.ThisMachine(), Servers: backends.Infos(), Plan: o.plan()}
	if result.Durability, err = durability(ctx, backends); err != nil {
		return nil, err
	}
	return result, measure(&bench{options: o, supervisor: k, backends: backends}, result)
}

// measureAlone measures stages that are no part of the suite, each measurement for as long as the
// options say.
func measureAlone(ctx context.Context, o Options, stages func(*bench) []*stage) (*Result, error) {
	return onServers(ctx, o, func(b *bench, result *Result) error {
		list, measurements := stages(b), 0
		for _, s := range list {
			measurements += s.suite().measurements(o.Rounds)
		}
		o.Progress.Begin(measurements)
		for _, s := range list {
			if err := b.measure(ctx, s, result, func() error { return nil }); err != nil {
				return err
			}
		}
		return nil
	})
}

// part of a run has servers of its own.
type part interface {
	open(ctx context.Context) error
	// suite may be asked for once the first part is open.
	suite() Suite
	close(ctx context.Context) error
	// share is the part's share of the time that is left, 0 to 1.
	share() float64
}

func (b *bench) parts() []part {
	const several = 3
	list := []part{&stage{bench: b, replicas: 1}, &stage{bench: b, replicas: several}}
	if !b.options.Quick && len(b.backends.Missing) == 0 {
		list = append(list, &lockStage{bench: b})
	}
	return list
}

func (b *bench) run(ctx context.Context, result *Result) error {
	parts := b.parts()
	for i, p := range parts {
		err := b.measure(ctx, p, result, func() error {
			if i > 0 {
				return nil
			}
			return b.plan(ctx, parts, result)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) plan(ctx context.Context, parts []part, result *Result) (err error) {
	first, ok := parts[0].(*stage)
	if !ok {
		return nil
	}
	if b.strategies, err = first.safe(ctx, result); err != nil {
		return err
	}
	for name, reason := range b.backends.Missing {
		if b.options.Quick {
			break // they would have been left out anyhow
		}
		result.Notes = append(result.Notes, "locks by themselves: not measured: without "+name+": "+reason)
	}
	measurements := 0
	for _, p := range parts {
		measurements += p.suite().measurements(b.options.Rounds)
	}
	b.options.Progress.Begin(measurements)
	return nil
}

func (b *bench) measure(ctx context.Context, p part, result *Result, ready func() error) (err error) {
	defer func() { err = errors.Join(err, p.close(context.WithoutCancel(ctx))) }()
	if err := p.open(ctx); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	if s, ok := p.(*stage); ok && s.replicas > 1 {
		result.Servers["balancer"] = s.served.Balancer
	}
	suite := p.suite()
	suite.Rounds, suite.Progress = b.options.Rounds, b.options.Progress
	suite.Pace = Pace{Each: b.options.Each, End: b.end}
	suite.Pace.Until = time.Now().Add(time.Duration(float64(time.Until(b.end)) * p.share()))
	came, err := suite.Run(ctx)
	result.add(came)
	return err
}
