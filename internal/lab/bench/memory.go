package bench

import (
	"context"
	"errors"
	"time"

	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
)

// lockStage is the locks by themselves, without a stockd around them, and the
// memory of a replica that has only its database: a shop that needs no lock.
type lockStage struct {
	*bench
	served   *cluster.Cluster
	handover *handover
}

func (s *lockStage) open(ctx context.Context) (err error) {
	s.options.Progress.Say("starting 1 replica without locks")
	s.handover = &handover{backends: s.backends, contests: make(map[string]*later)}
	s.served, err = cluster.Start(ctx, s.keeper, cluster.Options{
		Binary: s.options.Binary, Replicas: 1, Env: s.backends.Database.Env(), Balancer: servers.Embedded,
		Embedded: s.backends.Database.Started == servers.Embedded,
	})
	return err
}

func (s *lockStage) close(ctx context.Context) (err error) {
	if s.handover != nil {
		err = s.handover.close()
	}
	if s.served != nil {
		err = errors.Join(err, s.served.Close(ctx))
	}
	return err
}

func (*lockStage) share() float64 { return 1 }

const (
	resident = "resident memory of a replica under 512 connections"
	mebibyte = 1 << 20
)

func (s *lockStage) suite() Suite {
	suite := Suite{
		Subjects: []Subject{{Name: resident, Unit: " MiB", Measure: s.memory}},
		Limits:   []Limit{{Subject: resident, AtMost: 64}},
	}
	if s.handover == nil { // only to be counted
		s.handover = &handover{backends: s.backends, contests: make(map[string]*later)}
	}
	s.handover.join(&suite)
	return suite
}

// memory measures the replica's resident memory after it has served a crowd,
// whose connections are still open.
func (s *lockStage) memory(ctx context.Context, each time.Duration) (Sample, error) {
	goodsID := s.items.Add(1)
	if err := s.served.Client().CreateGoods(ctx, goodsID, plenty(conditional)); err != nil {
		return Sample{}, err
	}
	_, err := load.Run(ctx, load.Plan{
		URL: s.served.Replicas[0].URL, Strategy: conditional, GoodsID: goodsID,
		Clients: crowd, Duration: each, Timeout: requestLimit,
	})
	if err != nil {
		return Sample{}, err
	}
	peak, err := servers.Resident(s.served.Replicas[0].Pid(), servers.PeakMemory)
	return Sample{Value: float64(peak) / mebibyte}, err
}
