package step

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
)

// The figures of CompareSizes, with the number of members behind the first two: how often a lock was
// taken and given back in a second, and how often something was read, medians of the rounds; and
// how many times as much it was with the most members as with one, the median of the rounds.
const (
	HoldsPerSOf   = "holds_per_s_of_"
	ReadsPerSOf   = "reads_per_s_of_"
	HoldsOfMost   = "holds_of_5_to_1"
	ReadsOfMost   = "reads_of_5_to_1"
	sizeRounds    = 5
	sizeRound     = 500 * time.Millisecond
	sizeClients   = 8
	sizeSession   = 30 * time.Second // longer than any pause of a busy machine
	sizesReadyFor = 2 * time.Minute
)

// sizes are those of the ensembles, the smallest first.
func sizes() []int { return []int{1, 3, 5} }

// sized is one client of an ensemble.
type sized struct {
	hold, read func(ctx context.Context) error
}

// CompareSizes has clients of ensembles of one, three and five members take a lock and give it
// back, each under a name of its own, and then read; round after round, one ensemble after the
// other in each. The clients are spread over the members.
func CompareSizes(kind string, need scenario.Need) scenario.Step {
	connect := map[scenario.Need]func(context.Context, *scenario.Environment, string, int) ([]sized, error){
		scenario.ZooKeeper: zooKeepersOf, scenario.Etcd: etcdsOf,
	}[need]
	return func(ctx context.Context, s *scenario.Environment) error {
		crowds := make([][]sized, len(sizes()))
		for i, members := range sizes() {
			starting, cancel := context.WithTimeout(ctx, sizesReadyFor)
			crowd, err := connect(starting, s, kind, members)
			cancel()
			if err != nil {
				return fmt.Errorf("start %d members: %w", members, err)
			}
			crowds[i] = crowd
		}
		holds, reads := make([][]float64, len(crowds)), make([][]float64, len(crowds))
		for round := range sizeRounds + 1 {
			for i, crowd := range crowds {
				held, err := perS(ctx, crowd, func(c sized) func(context.Context) error { return c.hold })
				if err != nil {
					return err
				}
				read, err := perS(ctx, crowd, func(c sized) func(context.Context) error { return c.read })
				if err != nil {
					return err
				}
				if round > 0 { // the first one warms the members up
					holds[i], reads[i] = append(holds[i], held), append(reads[i], read)
				}
			}
		}
		return figures(s, sizeFigures(holds, reads))
	}
}

func sizeFigures(holds, reads [][]float64) map[string]float64 {
	all := make(map[string]float64)
	for i, members := range sizes() {
		of := fmt.Sprint(members)
		all[HoldsPerSOf+of], all[ReadsPerSOf+of] = median(holds[i]), median(reads[i])
		all[HoldsPerSOf+of+"_min"], all[HoldsPerSOf+of+"_max"] = slices.Min(holds[i]), slices.Max(holds[i])
	}
	last := len(holds) - 1
	all[HoldsOfMost], all[ReadsOfMost] = median(ratios(holds[last], holds[0])), median(ratios(reads[last], reads[0]))
	return all
}

// ratios divides round by round.
func ratios(of, by []float64) []float64 {
	list := make([]float64, len(of))
	for i := range of {
		list[i] = of[i] / by[i]
	}
	return list
}

// perS has each of a crowd do something again and again for a round.
func perS(ctx context.Context, crowd []sized, what func(sized) func(context.Context) error) (float64, error) {
	var done atomic.Int64
	errs := make([]error, len(crowd))
	began := time.Now()
	var all sync.WaitGroup
	for i, one := range crowd {
		do := what(one)
		all.Go(func() {
			for time.Since(began) < sizeRound && errs[i] == nil {
				errs[i] = do(ctx)
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

func zooKeepersOf(ctx context.Context, s *scenario.Environment, kind string, members int) (crowd []sized, err error) {
	ensemble, err := servers.StartZooKeeperEnsembleOf(ctx, s.Supervisor, members)
	if err != nil {
		return nil, err
	}
	s.Later(func() error { return ensemble.Close(context.Background()) })
	for i := range sizeClients {
		address := ensemble.Members[i%members].Address
		contender, err := s.Contend(fmt.Sprintf("client-%d-of-%d", i+1, members))
		if err != nil {
			return nil, err
		}
		contender.Timeout = castTimeout
		contender.UseZooKeeper(address, sizeSession)
		reader := backend.NewZooKeeper(backend.ZooKeeperOptions{Servers: []string{address}, SessionTimeout: sizeSession, DialTimeout: castTimeout})
		s.Later(func() error { reader.Close(); return nil })
		one, err := sizedOf(ctx, s, contender, kind, i, func(ctx context.Context) error {
			link, err := reader.Connected(ctx)
			if err == nil {
				_, err = link.List(ctx, "/zookeeper")
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		crowd = append(crowd, one)
	}
	return crowd, nil
}

func etcdsOf(ctx context.Context, s *scenario.Environment, kind string, members int) (crowd []sized, err error) {
	cluster, err := servers.StartEtcdClusterOf(ctx, s.Supervisor, members)
	if err != nil {
		return nil, err
	}
	s.Later(func() error { return cluster.Close(context.Background()) })
	for i := range sizeClients {
		member := cluster.Members[i%members]
		contender, err := s.Contend(fmt.Sprintf("client-%d-of-%d", i+1, members))
		if err != nil {
			return nil, err
		}
		contender.TTL = sizeSession
		if err := contender.UseEtcd(member.Endpoint); err != nil {
			return nil, err
		}
		reader, err := member.Open()
		if err != nil {
			return nil, err
		}
		s.Later(reader.Close)
		one, err := sizedOf(ctx, s, contender, kind, i, func(ctx context.Context) error {
			_, err := reader.Get(ctx, "none", clientv3.WithSerializable()) // the member alone answers it
			return err
		})
		if err != nil {
			return nil, err
		}
		crowd = append(crowd, one)
	}
	return crowd, nil
}

// sizedOf is a client that is connected. What it holds is not recorded: that would be measured, too.
func sizedOf(ctx context.Context, s *scenario.Environment, c *scenario.Contender, kind string, number int, read func(context.Context) error) (sized, error) {
	if err := errors.Join(c.Warm(ctx, kind), read(ctx)); err != nil {
		return sized{}, err
	}
	locker, err := c.Locker(kind)
	if recorded, ok := locker.(interface{ Unwrap() lock.Locker }); ok {
		locker = recorded.Unwrap()
	}
	return sized{
		hold: func(ctx context.Context) error {
			lease, err := locker.Acquire(ctx, nameOf(s, number))
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		},
		read: read,
	}, err
}
