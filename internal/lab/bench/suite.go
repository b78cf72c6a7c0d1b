package bench

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
)

// Options say what to measure, how long, and on what.
type Options struct {
	Servers servers.Choice
	// Items, Ledger or Growth is measured in place of the suite: the sale of so many items at the same
	// time against that of one, a ledger of so many rows against an empty one, or how sales grow with
	// clients, items and replicas. Each of them needs Each.
	Items  int
	Ledger int64
	Growth bool
	// Rounds is how often each subject with a target is measured.
	Rounds int
	// Each measurement takes so long; 0: as long as all of them may take Within.
	Each   time.Duration
	Within time.Duration
	// Quick leaves out every crowd but the usual one, and the locks by themselves.
	Quick bool
	// Only names the strategies that are measured; nil: all.
	Only     *regexp.Regexp
	Progress Progress
}

// Strategies are those that are measured where their servers are there.
func (o Options) Strategies() (names []string) {
	for _, how := range o.settings() {
		names = append(names, how.Strategy)
	}
	return slices.Compact(names)
}

// settings are those whose sales are measured, without their clients and replicas.
func (o Options) settings() (list []Setting) {
	switch {
	case o.Items > 0:
		return []Setting{{Strategy: conditional}, {Strategy: conditional, Group: true}, {Strategy: forUpdate, Group: true}, {Strategy: inRedis}}
	case o.Growth:
		return grown()
	}
	for _, entry := range strategy.Registry() {
		if entry.Guarantees.ExclusiveAcrossReplicas {
			list = append(list, Setting{Strategy: entry.Name})
		}
	}
	return list
}

// measures tells whether a strategy is to be measured.
func (o Options) measures(name string) bool { return o.Only == nil || o.Only.MatchString(name) }

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

// Run measures on servers of its own. The result has what was measured, also with an error; it is nil
// where that is nothing.
func Run(ctx context.Context, o Options) (*Result, error) {
	b := &bench{options: o}
	err := flow.Do(ctx, b.run)
	return b.result, err
}

func (b *bench) run(x *flow.Flow) {
	o := b.options
	if o.Each == 0 {
		b.end = time.Now().Add(o.Within - toStop)
	}
	if o.Ledger > 0 {
		o.Servers.Redis, o.Servers.ZooKeeper, o.Servers.Etcd = servers.None, servers.None, servers.None
	}
	b.shop = flow.Get(shop.Open(x, shop.Options{Servers: o.Servers, Progress: o.Progress.Say}))(x)
	defer func() { x.Fail(b.shop.Close(x)) }()
	if b.shop.Servers.Database.Driver == repo.MySQL {
		b.bare = openBare(x, b.shop.Servers.Database)
		defer func() { x.Fail(b.bare.Close()) }()
	}
	durable := durability(x, b.shop.Servers, b.bare)
	b.result = &Result{Machine: servers.ThisMachine(), Servers: b.shop.Servers.Infos(), Durability: durable, Plan: o.plan()}
	stages := b.stages()
	for _, s := range stages {
		s.measure(x, stages)
	}
}

// durability says which writes the servers keep after a crash: a server that waits for its disk is slower. The
// database is asked, and of the others it is known how the lab starts them.
func durability(x *flow.Flow, b *servers.Backends, database *sql.DB) map[string]string {
	kept := map[string]string{"database": "journal_mode=WAL, synchronous=NORMAL"}
	if b.Redis != nil && b.Redis.Started == servers.Local {
		kept["redis"] = "it keeps nothing: appendonly=no, no snapshots"
	}
	if b.Etcd != nil {
		kept["etcd"] = "its log is not synced, where it knows --unsafe-no-fsync"
	}
	if b.ZooKeeper != nil {
		kept["zookeeper"] = "its log is not synced: forceSync=no"
	}
	if database == nil {
		return kept
	}
	_, rows, err := servers.Rows(x, database, durabilityVariables)
	x.Must(err)
	list := make([]string, 0, len(rows))
	for _, row := range rows {
		list = append(list, row[0]+"="+row[1])
	}
	slices.Sort(list)
	kept["database"] = strings.Join(list, ", ")
	return kept
}

const durabilityVariables = `SHOW VARIABLES WHERE variable_name IN
	('innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'innodb_doublewrite', 'innodb_buffer_pool_size')`

// stages are those of what the options ask for. The servers of one end before the next begins.
func (b *bench) stages() (list []*stage) {
	switch o := b.options; {
	case o.Growth:
		for n := range maxGrown {
			list = append(list, &stage{bench: b, replicas: n + 1, suite: (*stage).growth})
		}
		return list
	case o.Items > 0:
		return []*stage{{bench: b, replicas: 1, suite: (*stage).ofItems}}
	case o.Ledger > 0:
		return []*stage{{bench: b, replicas: 1, on: b.shop.Servers.Database.Env(), prepare: (*stage).fillLedger, suite: (*stage).ofLedger}}
	}
	const several = 3
	list = []*stage{
		{bench: b, replicas: 1, compared: true, suite: (*stage).sales},
		{bench: b, replicas: several, compared: true, suite: (*stage).sales},
	}
	switch {
	case b.options.Quick:
	case len(b.shop.Servers.Missing) == 0:
		list = append(list, &stage{bench: b, replicas: 1, on: b.shop.Servers.Database.Env(), suite: (*stage).locks})
	default:
		for name, reason := range b.shop.Servers.Missing {
			b.note("locks by themselves: not measured: without " + name + ": " + reason)
		}
	}
	return list
}

// later has something closed when the stage is over, the last one first.
func (b *bench) later(do func(context.Context) error) { b.closers = append(b.closers, do) }

func (b *bench) close(ctx context.Context) (err error) {
	for _, do := range slices.Backward(b.closers) {
		err = errors.Join(err, do(ctx))
	}
	b.closers = nil
	return err
}

func (b *bench) note(words string) { b.result.Notes = append(b.result.Notes, words) }

// measure opens one of the stages, and closes it in the end. How much there is to measure is known when the first is open.
func (s *stage) measure(x *flow.Flow, stages []*stage) {
	defer func() { x.Fail(s.close(context.WithoutCancel(x))) }()
	s.open(x)
	if s.pace == nil {
		measurements := 0
		for _, each := range stages {
			measurements += each.suite(each).measurements(s.options.Rounds)
		}
		s.options.Progress.Begin(measurements)
		s.pace = newPace(s.options.Each, s.end, measurements)
	}
	suite := s.suite(s)
	suite.Rounds, suite.Progress, suite.Pace = s.options.Rounds, s.options.Progress, s.pace
	measured, err := suite.Run(x)
	s.result.add(measured)
	x.Must(err)
}
