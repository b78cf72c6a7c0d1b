package bench

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/repo"
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
	return onServers(ctx, o, func(b *bench) (err error) {
		b.end = end
		if b.bare, err = openBare(b.shop.Servers.Database); err != nil && !errors.Is(err, errNeedsMySQL) {
			return err
		}
		defer func() { err = errors.Join(err, b.bare.close()) }()
		return b.run(ctx, b.parts())
	})
}

// onServers measures something on servers of its own.
func onServers(ctx context.Context, o Options, measure func(*bench) error) (result *Result, err error) {
	s, err := shop.Open(ctx, shop.Options{Binary: o.Binary, Servers: o.Servers, Progress: o.Progress.Say})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	result = &Result{Machine: servers.ThisMachine(), Servers: s.Servers.Infos(), Plan: o.plan()}
	if result.Durability, err = durability(ctx, s.Servers); err != nil {
		return nil, err
	}
	return result, measure(&bench{options: o, shop: s, result: result})
}

// durability says which writes the servers keep after a crash: a server that waits for its disk is slower. The
// database is asked, and of the others it is known how the lab starts them.
func durability(ctx context.Context, b *servers.Backends) (map[string]string, error) {
	kept := make(map[string]string)
	if b.Redis != nil && b.Redis.Started == servers.Local {
		kept["redis"] = "it keeps nothing: appendonly=no, no snapshots"
	}
	if b.Etcd != nil {
		kept["etcd"] = "its log is not synced, where it knows --unsafe-no-fsync"
	}
	if b.ZooKeeper != nil {
		kept["zookeeper"] = "its log is not synced: forceSync=no"
	}
	if b.Database.Driver != repo.MySQL {
		kept["database"] = "journal_mode=WAL, synchronous=NORMAL"
		return kept, nil
	}
	bare, err := openBare(b.Database)
	if err != nil {
		return nil, err
	}
	_, rows, err := servers.Rows(ctx, bare.db, durabilityVariables)
	var list []string
	for _, row := range rows {
		list = append(list, row[0]+"="+row[1])
	}
	slices.Sort(list)
	kept["database"] = strings.Join(list, ", ")
	return kept, errors.Join(err, bare.close())
}

const durabilityVariables = `SHOW VARIABLES WHERE variable_name IN
	('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'innodb_doublewrite', 'innodb_buffer_pool_size')`

// part of a run has servers of its own, which end with it.
type part interface {
	open(ctx context.Context) error
	// suite may be asked for once the first part is open.
	suite() Suite
	// share is the part's share of the time that is left, 0 to 1.
	share() float64
}

func (b *bench) parts() []part {
	const several = 3
	list := []part{&stage{bench: b, replicas: 1}, &stage{bench: b, replicas: several}}
	switch {
	case b.options.Quick:
	case len(b.shop.Servers.Missing) == 0:
		list = append(list, &lockStage{bench: b})
	default:
		for name, reason := range b.shop.Servers.Missing {
			b.note("locks by themselves: not measured: without " + name + ": " + reason)
		}
	}
	return list
}

// later has something closed when the part is over, the last one first.
func (b *bench) later(do func(context.Context) error) { b.closers = append(b.closers, do) }

func (b *bench) close(ctx context.Context) (err error) {
	for _, do := range slices.Backward(b.closers) {
		err = errors.Join(err, do(ctx))
	}
	b.closers = nil
	return err
}

// start starts replicas of a part.
func (b *bench) start(ctx context.Context, o shop.Replicas) (*shop.Cluster, error) {
	if o.Count == 1 {
		o.Balancer = servers.Embedded // it is not asked
	}
	c, err := b.shop.Start(ctx, o)
	if err == nil {
		b.later(c.Close)
	}
	return c, err
}

func (b *bench) note(words string) { b.result.Notes = append(b.result.Notes, words) }

// run measures one part after the other. How much there is to measure is known when the first is open.
func (b *bench) run(ctx context.Context, parts []part) error {
	for i, p := range parts {
		if err := b.measure(ctx, p, parts, i == 0); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) measure(ctx context.Context, p part, all []part, first bool) (err error) {
	defer func() { err = errors.Join(err, b.close(context.WithoutCancel(ctx))) }()
	if err := p.open(ctx); err != nil {
		return err
	}
	if first {
		measurements := 0
		for _, p := range all {
			measurements += p.suite().measurements(b.options.Rounds)
		}
		b.options.Progress.Begin(measurements)
	}
	suite := p.suite()
	suite.Rounds, suite.Progress = b.options.Rounds, b.options.Progress
	suite.Pace = Pace{Each: b.options.Each, End: b.end}
	suite.Pace.Until = time.Now().Add(time.Duration(float64(time.Until(b.end)) * p.share()))
	came, err := suite.Run(ctx)
	b.result.add(came)
	return err
}
