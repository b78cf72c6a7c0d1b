package experiments

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
)

func ensembleSize() []Part {
	return []Part{compareSizes("zk-sequential", ZooKeeper, (*Try).zooKeepersOf), compareSizes("etcd", Etcd, (*Try).etcdsOf)}
}

// compareSizes expects that five members grant a lock less often than one, and that reads, which need
// no agreement, fall less.
func compareSizes(kind string, need Need, start ensemble) Part {
	return Part{
		Name: kind, Stage: on(need),
		Do: func(x *Try) { x.compareSizes(kind, start) },
		Check: checker.All(checker.AtMost("holds_of_5_to_1", 0.9), checker.Exceeds("reads_of_5_to_1", "holds_of_5_to_1"), checker.Reported(
			"holds_per_s_of_1", "holds_per_s_of_1_min", "holds_per_s_of_1_max",
			"holds_per_s_of_3", "holds_per_s_of_3_min", "holds_per_s_of_3_max",
			"holds_per_s_of_5", "holds_per_s_of_5_min", "holds_per_s_of_5_max",
			"reads_per_s_of_1", "reads_per_s_of_3", "reads_per_s_of_5")),
	}
}

const (
	sizeClients   = 8
	sizeSession   = 30 * time.Second // longer than any pause of a busy machine
	sizesReadyFor = 2 * time.Minute
)

// ensemble starts so many members, and returns how a client is connected to one of them, and reads there.
type ensemble func(x *Try, members int) func(c *contender, member int) (read func())

// sized is one client of an ensemble.
type sized struct {
	*contender

	read func()
}

// compareSizes has clients take a lock and give it back, and then read, round after round, one ensemble after the
// other in each. What they hold is not recorded: that would be measured, too.
func (x *Try) compareSizes(kind string, start ensemble) {
	sizes := []int{1, 3, 5}
	holds, reads, crowds := make([][]float64, len(sizes)), make([][]float64, len(sizes)), make([][]sized, len(sizes))
	for i, members := range sizes {
		connect := start(x, members)
		for number := range sizeClients {
			c := x.contend(fmt.Sprintf("client-%d-of-%d", number+1, members))
			one := sized{c, connect(c, number%members)}
			c.warm(kind)
			one.read()
			crowds[i] = append(crowds[i], one)
		}
	}
	for round := range 1 + 5 {
		for i, crowd := range crowds {
			held := x.perS(sizeClients, 500*time.Millisecond, func(number int) {
				lease := flow.Get(crowd[number].unrecorded(kind).Acquire(x, x.itemName(number)))(x.Flow)
				x.Must(lease.Release(x))
			})
			read := x.perS(sizeClients, 500*time.Millisecond, func(number int) { crowd[number].read() })
			if round > 0 { // the first one warms the members up
				holds[i], reads[i] = append(holds[i], held), append(reads[i], read)
			}
		}
	}
	all := map[string]float64{"holds_of_5_to_1": median(ratios(holds[2], holds[0])), "reads_of_5_to_1": median(ratios(reads[2], reads[0]))}
	for i, members := range sizes {
		held := fmt.Sprintf("holds_per_s_of_%d", members)
		all[held], all[held+"_min"], all[held+"_max"] = median(holds[i]), slices.Min(holds[i]), slices.Max(holds[i])
		all[fmt.Sprintf("reads_per_s_of_%d", members)] = median(reads[i])
	}
	x.Figures(all)
}

// perS has so many do something again and again at the same time, and returns how often it was done in a second.
func (x *Try) perS(crowd int, lasts time.Duration, do func(i int)) float64 {
	var done atomic.Int64
	began := time.Now()
	x.Each(crowd, func(i int) {
		for time.Since(began) < lasts {
			do(i)
			done.Add(1)
		}
	})
	return float64(done.Load()) / time.Since(began).Seconds()
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// ratios divides round by round.
func ratios(of, by []float64) []float64 {
	list := make([]float64, len(of))
	for i := range of {
		list[i] = of[i] / by[i]
	}
	return list
}

func (x *Try) zooKeepersOf(members int) func(c *contender, member int) (read func()) {
	ctx, cancel := context.WithTimeout(x, sizesReadyFor)
	defer cancel()
	started := flow.Get(servers.StartZooKeeperEnsemble(ctx, x.Supervisor, members))(x.Flow)
	x.closeLater(started)
	return func(c *contender, member int) func() {
		to := started.Members[member].Conn()
		c.timeout = heldUp
		c.connect(to, sizeSession)
		reader := flow.Get(to.Connect(servers.Limits{Session: sizeSession, Timeout: heldUp}))(x.Flow)
		x.Later(reader.Close)
		return func() {
			link := flow.Get(reader.ZooKeeper.Connected(x))(x.Flow)
			flow.Get(link.List(x, "/zookeeper"))(x.Flow)
		}
	}
}

func (x *Try) etcdsOf(members int) func(c *contender, member int) (read func()) {
	ctx, cancel := context.WithTimeout(x, sizesReadyFor)
	defer cancel()
	started := flow.Get(servers.StartEtcdCluster(ctx, x.Supervisor, members))(x.Flow)
	x.closeLater(started)
	return func(c *contender, member int) func() {
		c.ttl = sizeSession
		c.connect(started.Members[member].Conn(), sizeSession)
		reader := flow.Get(started.Members[member].Open())(x.Flow)
		x.Later(reader.Close)
		return func() {
			_, err := reader.Get(x, "none", clientv3.WithSerializable()) // the member alone answers it
			x.Must(err)
		}
	}
}
