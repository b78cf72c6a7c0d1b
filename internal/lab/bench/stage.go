package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

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
	bare    *bare        // nil where the database is no server
	end     time.Time    // of the run
	items   atomic.Int64 // each measurement sells its own item
	result  *Result
	closers []func(context.Context) error // of the part

	strategies []service.Description // that are measured, as the first replica describes them
}

// replica is the name of the program of the replicas.
func (b *bench) replica() string { return filepath.Base(b.options.Binary) }

// stage is a number of replicas, and as many HTTP baselines. One
// is asked directly, several through the balancer.
type stage struct {
	*bench
	replicas         int
	served, baseline *shop.Cluster
	// alone is what is measured where that is no part of the suite; it needs no baseline.
	alone func() Suite
}

func (s *stage) open(ctx context.Context) (err error) {
	s.options.Progress.Say(fmt.Sprintf("starting %s", count(s.replicas, "replica")))
	if s.served, err = s.start(ctx, shop.Replicas{Count: s.replicas}); err != nil {
		return err
	}
	if s.replicas > 1 {
		s.result.Servers["balancer"] = s.served.Balancer
	}
	if s.alone != nil {
		return nil
	}
	if s.replicas == 1 { // the first of the suite
		if s.strategies, err = s.safe(ctx); err != nil {
			return err
		}
	}
	s.baseline, err = s.start(ctx, shop.Replicas{Command: "baseline", Count: s.replicas, Servers: []string{}})
	return err
}

func (s *stage) suite() Suite {
	if s.alone != nil {
		return s.alone()
	}
	return Suite{Subjects: append(s.limits(), s.sales()...), Ratios: s.ratios()}
}

func (s *stage) share() float64 {
	switch {
	case s.replicas == 1:
		return shareOfOne
	case s.options.Quick:
		return 1
	default:
		return shareOfSeveral
	}
}

// The shares of the time that is left: what is left after both is for the locks.
const (
	shareOfOne     = 0.47
	shareOfSeveral = 0.85
)

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
	var list []service.Description
	for _, d := range known {
		only := s.options.Only
		switch {
		case !d.Guarantees.ExclusiveAcrossReplicas, only != nil && !only.MatchString(d.Name):
		case !d.Available:
			s.note(d.Name + ": not measured: " + d.Note)
		default:
			list = append(list, d)
		}
	}
	slices.SortStableFunc(list, func(a, b service.Description) int {
		switch {
		case a.Guarantees.Fenceable == b.Guarantees.Fenceable:
			return 0
		case a.Guarantees.Fenceable:
			return 1
		default:
			return -1
		}
	})
	return list, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// lockStage is the locks by themselves, without a stockd around them, and the
// memory of a replica that has only its database: a shop that needs no lock.
type lockStage struct {
	*bench
	served *shop.Cluster
}

func (s *lockStage) open(ctx context.Context) (err error) {
	s.options.Progress.Say("starting 1 replica without locks")
	s.served, err = s.start(ctx, shop.Replicas{Count: 1, Servers: s.shop.Servers.Database.Env()})
	return err
}

func (*lockStage) share() float64 { return 1 }

func (s *lockStage) suite() Suite {
	suite := Suite{Subjects: []Subject{{
		Name: "resident memory of a replica under 512 connections", Unit: " MiB", AtMost: 64, Measure: s.memory,
	}}}
	(&handoff{bench: s.bench, contests: make(map[string]*contest)}).join(&suite)
	return suite
}

// memory measures the replica's resident memory after it has served a crowd,
// whose connections are still open.
func (s *lockStage) memory(ctx context.Context, each time.Duration) (Sample, error) {
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
