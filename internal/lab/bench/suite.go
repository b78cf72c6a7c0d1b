package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/keeper"
	"github.com/stockd/stockd/internal/lab/load"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/stock"
)

// Options say how long to measure, and on what.
type Options struct {
	// Binary is a stockd.
	Binary  string
	Servers servers.Choice
	Rounds  int
	// Each measurement takes so long.
	Each time.Duration
	// Say hears of what takes a moment.
	Say      func(words string)
	Progress func(round int, subject string, value float64, unit string)
}

// Run measures the suite on servers of its own.
func Run(ctx context.Context, o Options) (result *Result, on map[string]servers.Info, err error) {
	k, err := keeper.Start()
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	backends, err := servers.StartBackends(ctx, k, o.Servers, o.Say)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, backends.Close(context.WithoutCancel(ctx))) }()
	for name, reason := range backends.Missing {
		return nil, nil, fmt.Errorf("the suite compares locks on real servers, and %s is missing: %s", name, reason)
	}
	database := backends.Database
	c, err := cluster.Start(ctx, k, cluster.Options{Binary: o.Binary, Replicas: 1, Env: database.Env(), Embedded: database.Started == servers.Embedded, Balancer: servers.Embedded})
	if err != nil {
		return nil, nil, err
	}
	bare, err := openBare(database)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, bare.close()) }()
	b := &workbench{options: o, cluster: c, bare: bare}
	if err := b.stock(ctx); err != nil {
		return nil, nil, err
	}
	h := &handover{backends: backends, each: o.Each, contests: make(map[string]*contest)}
	defer func() { err = errors.Join(err, h.close()) }()
	suite := b.suite()
	if err := h.join(&suite); err != nil {
		return nil, nil, err
	}
	result, err = suite.Run(ctx)
	return result, backends.Infos(), err
}

// workbench is what the subjects are measured on: one replica, without a
// balancer, and the same database without a replica.
type workbench struct {
	options Options
	cluster *cluster.Cluster
	bare    *bare
}

// The suite's clients, and the goods that it sells.
const (
	clients      = 64
	crowd        = 512
	overHTTP     = 1 // goods of sql-conditional
	byVersion    = 2 // goods of sql-optimistic
	withoutHTTP  = 3 // goods of the bare loop
	requestLimit = 30 * time.Second
	mebibyte     = 1 << 20
)

// The subjects' names.
const (
	bareLoop      = "bare loop of the statements, 64 clients"
	conditional   = "sql-conditional over HTTP, 64 clients"
	optimisticOne = "sql-optimistic over HTTP, 1 client"
	optimistic64  = "sql-optimistic over HTTP, 64 clients"
	resident      = "resident memory of a replica under 512 connections"
)

func (b *workbench) suite() Suite {
	return Suite{
		Rounds:   b.options.Rounds,
		Progress: b.options.Progress,
		Subjects: []Subject{
			{Name: bareLoop, Unit: "/s", Measure: func(ctx context.Context) (float64, error) {
				return b.bare.measure(ctx, withoutHTTP, clients, b.options.Each)
			}},
			{Name: conditional, Unit: "/s", Measure: b.rate("sql-conditional", overHTTP, clients)},
			{Name: optimisticOne, Unit: "/s", Measure: b.rate("sql-optimistic", byVersion, 1)},
			{Name: optimistic64, Unit: "/s", Measure: b.rate("sql-optimistic", byVersion, clients)},
			{Name: resident, Unit: " MiB", Measure: b.memory},
		},
		Ratios: []Ratio{
			{Name: "sql-conditional over HTTP / bare loop", Of: conditional, By: bareLoop, AtLeast: 0.85},
			{Name: "sql-optimistic, 64 clients / 1 client", Of: optimistic64, By: optimisticOne, AtLeast: 0.5},
		},
		Limits: []Limit{{Subject: resident, AtMost: 64}},
	}
}

func (b *workbench) stock(ctx context.Context) error {
	for _, goods := range []int64{overHTTP, byVersion, withoutHTTP} {
		if err := b.cluster.Client().CreateGoods(ctx, goods, stock.MaxStock/2); err != nil {
			return err
		}
	}
	return nil
}

// rate measures sales a second through a strategy.
func (b *workbench) rate(strategy string, goods int64, clients int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		result, err := b.load(ctx, strategy, goods, clients)
		if err != nil {
			return 0, err
		}
		return float64(result.Sold) / result.Elapsed.Seconds(), nil
	}
}

func (b *workbench) load(ctx context.Context, strategy string, goods int64, clients int) (*load.Result, error) {
	result, err := load.Run(ctx, load.Plan{
		URL: b.cluster.Replicas[0].URL, Strategy: strategy, GoodsID: goods,
		Clients: clients, Duration: b.options.Each, Timeout: requestLimit,
	})
	if err != nil {
		return nil, err
	}
	if result.Sold != result.Sent {
		return nil, fmt.Errorf("%d of %d requests were not sold: %d unknown, errors %v",
			result.Sent-result.Sold, result.Sent, result.Unknown, result.Errors)
	}
	return result, nil
}

// memory measures the replica's resident memory after it has served a crowd,
// whose connections are still open.
func (b *workbench) memory(ctx context.Context) (float64, error) {
	if _, err := b.load(ctx, "sql-conditional", overHTTP, crowd); err != nil {
		return 0, err
	}
	peak, err := peakMemory(b.cluster.Replicas[0].Pid())
	return float64(peak) / mebibyte, err
}
