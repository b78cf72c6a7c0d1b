package bench

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/bench/baseline"
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
	// share is the stage's share of the time that is left, 0 to 1.
	share float64
	// on describes the servers of the replicas; nil: all.
	on []string
	// compared has as many HTTP baselines started beside the replicas.
	compared bool
	// prepare comes before the replicas; it may be nil.
	prepare func(*stage, context.Context) error
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

func (s *stage) open(ctx context.Context) (err error) {
	if s.prepare != nil {
		if err := s.prepare(s, ctx); err != nil {
			return err
		}
	}
	s.options.Progress.Say(fmt.Sprintf("starting %s", count(s.replicas, "replica")))
	if s.served, err = s.start(ctx, shop.Replicas{Count: s.replicas, Servers: s.on}); err != nil {
		return err
	}
	if s.replicas > 1 {
		s.result.Servers["balancer"] = s.served.Balancer
	}
	if !s.compared {
		return nil
	}
	if s.replicas == 1 { // the first of the suite
		if s.strategies, err = s.safe(ctx); err != nil {
			return err
		}
		if s.options.measures(conditional) { // no other one is bought from with tokens
			if err := s.startSigned(ctx); err != nil {
				return fmt.Errorf("start a replica for buyers with tokens: %w", err)
			}
		}
	}
	return s.startPrograms(ctx)
}

// startPrograms starts what stockd is held against: HTTP alone behind each number of replicas, and beside one those that
// sell, too.
func (s *stage) startPrograms(ctx context.Context) (err error) {
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
		if s.programs[program], err = s.start(ctx, asked); err != nil {
			return fmt.Errorf("start %s: %w", program, err)
		}
	}
	return nil
}

// start starts replicas that end with the stage.
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

func (s *stage) create(ctx context.Context, units int64) (goodsID int64, err error) {
	goodsID = s.items.Add(1)
	return goodsID, s.served.Client().CreateGoods(ctx, goodsID, units)
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
func (s *stage) memory(ctx context.Context, each time.Duration) (Sample, error) {
	goodsID := s.items.Add(1)
	if err := s.served.Client().CreateGoods(ctx, goodsID, plenty(conditional)); err != nil {
		return Sample{}, err
	}
	result, err := load.Run(ctx, load.Plan{
		URL: s.served.Replicas[0].URL, Strategy: conditional, GoodsID: goodsID,
		Clients: crowd, Duration: each, Timeout: requestLimit,
	})
	if err != nil {
		return Sample{}, err
	}
	if result.Sold == 0 {
		return Sample{}, fmt.Errorf("none of %d requests was sold: %v", result.Sent, result.Errors)
	}
	peak, err := servers.Resident(s.served.Replicas[0].Pid(), servers.PeakMemory)
	return Sample{Value: float64(peak) / (1 << 20)}, err
}
