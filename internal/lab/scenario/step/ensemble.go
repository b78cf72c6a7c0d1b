package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
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

// latestKey is the key that was created last in etcd.
func latestKey(ctx context.Context, s *scenario.Environment) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	client, err := s.Backends.Etcd.Open()
	if err != nil {
		return "", err
	}
	defer client.Close() //nolint:errcheck // nothing is lost with it
	found, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if err == nil && len(found.Kvs) == 0 {
		err = errors.New("there is none")
	}
	if err != nil {
		return "", fmt.Errorf("look for the latest key in etcd: %w", err)
	}
	return string(found.Kvs[0].Key), nil
}

// lateSession outlasts what a proxy holds up.
const lateSession = 6 * time.Second

// LateWatch has two contenders want one name of a lock in ZooKeeper. The second
// one's watch of the first one's node comes to the server when that is gone. It
// waits for no longer than within.
func LateWatch(kind string, within time.Duration) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		if err := proxy(s, s.Backends.ZooKeeper.Address); err != nil {
			return err
		}
		first, err := queuer(s, "first", kind, s.Backends.ZooKeeper.Address, lateSession)
		if err != nil {
			return err
		}
		second, err := queuer(s, "second", kind, s.Proxy.Address, lateSession)
		if err != nil {
			return err
		}
		lease, err := takeWithin(ctx, first, name(s), reachedWithin)
		if err != nil {
			return err
		}
		node, err := ephemeral(ctx, s)
		if err != nil {
			return err
		}
		return InOrder(Arm(servers.Rule{Sent: node, Do: servers.Hold}), Meanwhile(
			func(ctx context.Context, s *scenario.Environment) error { return hold(ctx, second, name(s), within, 0) },
			InOrder(Met(), func(ctx context.Context, _ *scenario.Environment) error { return lease.Release(ctx) }, Pass()),
		))(ctx, s)
	}
}

func queuer(s *scenario.Environment, name, kind, address string, session time.Duration) (lock.Locker, error) {
	c, err := s.Contend(name)
	if err != nil {
		return nil, err
	}
	if kind != sourcelock.NodeCache && kind != sourcelock.NodeCacheTimeout {
		c.Timeout = castTimeout
		c.UseZooKeeper(address, session)
		return c.Locker(kind)
	}
	l, err := sourcelock.NewNodeCache(kind, address, session)
	if err != nil {
		return nil, err
	}
	return c.Record(kind, l), nil
}

// ephemeral asks the server for the ephemeral nodes that have to do with the item of the
// try, and returns the last part of the path of the latest.
func ephemeral(ctx context.Context, s *scenario.Environment) (string, error) {
	said, err := ask(ctx, s, "dump")
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(fmt.Sprintf(`/\S*lab\S*\D%d/(\S+)`, s.Item)).FindAllStringSubmatch(said, -1)
	if found == nil {
		return "", fmt.Errorf("the server knows no node of the lock:\n%s", strings.TrimSpace(said))
	}
	latest := slices.MaxFunc(found, func(a, b []string) int { return cmp.Compare(number(a[1]), number(b[1])) })
	return latest[1], nil
}

// number is the part of a node's name by which ZooKeeper counts.
func number(node string) string { return node[max(0, len(node)-sequenceDigits):] }

const sequenceDigits = 10

// answerWithin bounds one question to a ZooKeeper.
const answerWithin = 5 * time.Second

// ask sends ZooKeeper one of its four-letter words.
func ask(ctx context.Context, s *scenario.Environment, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	said, err := zooKeeper(s).Ask(ctx, word)
	if err != nil {
		return "", fmt.Errorf("ask ZooKeeper to %s: %w", word, err)
	}
	return said, nil
}
