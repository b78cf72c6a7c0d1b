package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/bench/baseline"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// bench is what all stages of a run share.
type bench struct {
	options Options
	shop    *shop.Shop
	bare    *sql.DB      // nil where the database is no server
	end     time.Time    // of the run; zero: not known
	pace    *Pace        // nil until the first stage is open
	items   atomic.Int64 // each measurement sells its own item
	result  *Result
	closers []func(context.Context) error // of the stage

	strategies []service.Description // that are measured, as the first replica describes them
}

// replica is the name of the program of the replicas.
func (b *bench) replica() string { return filepath.Base(b.shop.Binary) }

// stage is a number of replicas, with what is measured on them. One is asked directly, several through
// the balancer.
type stage struct {
	*bench
	replicas int
	// on describes the servers of the replicas; nil: all.
	on []string
	// compared has as many HTTP baselines started beside the replicas.
	compared bool
	// prepare comes before the replicas; it may be nil.
	prepare func(*stage, *flow.Flow)
	// suite may be asked for once the first stage is open.
	suite func(*stage) Suite

	served   *shop.Cluster
	programs map[string]*shop.Cluster // those of the package baseline that run beside it
	soldBy   map[string]int           // what each of them has sold
	empty    *stage                   // whose ledger has no rows

	signed *shop.Cluster // a replica whose buyers have tokens
	token  string        // of one of them
	sign   func() string // makes a token of another one
}

func (s *stage) open(x *flow.Flow) {
	if s.prepare != nil {
		s.prepare(s, x)
	}
	s.options.Progress.Say(fmt.Sprintf("starting %s", count(s.replicas, "replica")))
	s.served = s.start(x, shop.Replicas{Count: s.replicas, Servers: s.on})
	if s.replicas > 1 {
		s.result.Servers["balancer"] = s.served.Balancer
	}
	if !s.compared {
		return
	}
	if s.replicas == 1 { // the first of the suite
		s.strategies = flow.Get(s.safe(x))(x)
		if s.options.measures(conditional) { // no other one is bought from with tokens
			s.startSigned(x)
		}
	}
	s.startPrograms(x)
}

// startPrograms starts what stockd is held against: HTTP alone behind each number of replicas, and beside one those that
// sell, too.
func (s *stage) startPrograms(x *flow.Flow) {
	s.programs, s.soldBy = make(map[string]*shop.Cluster), make(map[string]int)
	for _, program := range baseline.Programs() {
		asked := shop.Replicas{Command: baseline.Command(program), Count: s.replicas}
		switch {
		case program == baseline.HTTP:
			asked.Servers = []string{}
		case s.replicas > 1:
			continue
		case s.bare == nil || s.shop.Servers.Redis == nil:
			s.note(program + ": not measured: it needs a MariaDB or MySQL, and a Redis")
			continue
		default:
			s.note(program + " does not have: " + baseline.Lacks(program))
		}
		s.programs[program] = s.start(x, asked)
	}
}

// start starts replicas that end with the stage.
func (b *bench) start(x *flow.Flow, o shop.Replicas) *shop.Cluster {
	if o.Count == 1 {
		o.Balancer = servers.Embedded // it is not asked
	}
	c := flow.Get(b.shop.Start(x, o))(x)
	b.later(c.Close)
	return c
}

func (s *stage) url(c *shop.Cluster) string {
	if s.replicas == 1 {
		return c.Replicas[0].URL
	}
	return c.URL
}

// plenty is more than can be sold while it is measured. A strategy that keeps a
// token for each unit takes no more than a million of them.
func plenty(strategy string) int64 {
	const tokens = 500_000
	if strategy == "redis-list" {
		return tokens
	}
	return stock.MaxStock / 2
}

func (s *stage) create(x *flow.Flow, units int64) (goodsID int64) {
	goodsID = s.items.Add(1)
	x.Must(s.served.Client().CreateGoods(x, goodsID, units))
	return goodsID
}

// safe asks a replica for the strategies that never oversell, those first that are
// no locks: they stand beside the limits that they are held against.
func (s *stage) safe(ctx context.Context) ([]service.Description, error) {
	known, err := s.served.Client().Strategies(ctx)
	if err != nil {
		return nil, err
	}
	var plain, locks []service.Description
	for _, d := range known {
		switch {
		case !d.Guarantees.ExclusiveAcrossReplicas, !s.options.measures(d.Name):
		case !d.Available:
			s.note(d.Name + ": not measured: " + d.Note)
		case d.Guarantees.Fenceable:
			locks = append(locks, d)
		default:
			plain = append(plain, d)
		}
	}
	return append(plain, locks...), nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// memory measures the replica's resident memory after it has served a crowd,
// whose connections are still open.
func (s *stage) memory(x *flow.Flow, each time.Duration) Sample {
	plan := s.plan(Setting{Strategy: conditional}, &shelf{goods: []int64{s.create(x, plenty(conditional))}})
	plan.Clients, plan.Duration = crowd, each
	if result := flow.Get(load.Run(x, plan))(x); result.Sold == 0 {
		x.Must(fmt.Errorf("none of %d requests was sold: %v", result.Sent, result.Errors))
	}
	peak := flow.Get(servers.Resident(s.served.Replicas[0].Pid(), servers.PeakMemory))(x)
	return Sample{Value: float64(peak) / (1 << 20)}
}
