package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
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

// CompareSizes has clients of ensembles of one, three and five members take a lock and give it
// back, each under a name of its own, and then read; round after round, one ensemble after the
// other in each. The clients are spread over the members. What they hold is not recorded: that
// would be measured, too.
func CompareSizes(kind string, need scenario.Need) scenario.Step {
	start := zooKeepersOf
	if need == scenario.Etcd {
		start = etcdsOf
	}
	return func(x *scenario.Try) {
		holds, reads := make([][]float64, len(sizes())), make([][]float64, len(sizes()))
		crowds := make([][]sized, len(sizes()))
		for i, members := range sizes() {
			connect := start(x, members)
			for number := range sizeClients {
				contender := x.Contend(fmt.Sprintf("client-%d-of-%d", number+1, members))
				one := sized{contender, connect(contender, number%members)}
				contender.Warm(kind)
				one.read()
				crowds[i] = append(crowds[i], one)
			}
		}
		for round := range sizeRounds + 1 {
			for i, crowd := range crowds {
				held := perS(x, sizeClients, sizeRound, func(number int) {
					lease, err := crowd[number].Unrecorded(kind).Acquire(x, nameOf(x, number))
					x.Must(err)
					x.Must(lease.Release(x))
				})
				read := perS(x, sizeClients, sizeRound, func(number int) { crowd[number].read() })
				if round > 0 { // the first one warms the members up
					holds[i], reads[i] = append(holds[i], held), append(reads[i], read)
				}
			}
		}
		x.Figures(sizeFigures(holds, reads))
	}
}

// sized is one client of an ensemble.
type sized struct {
	*scenario.Contender

	read func()
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

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// ratios divides round by round.
func ratios(of, by []float64) []float64 {
	list := make([]float64, len(of))
	for i := range of {
		list[i] = of[i] / by[i]
	}
	return list
}

// zooKeepersOf starts so many members, and returns how a client is connected to one of them, and reads there.
func zooKeepersOf(x *scenario.Try, members int) func(c *scenario.Contender, member int) (read func()) {
	ctx, cancel := context.WithTimeout(x, sizesReadyFor)
	defer cancel()
	ensemble, err := servers.StartZooKeeperEnsembleOf(ctx, x.Supervisor, members)
	x.Must(err)
	closeLater(x, ensemble)
	return func(c *scenario.Contender, member int) func() {
		address := ensemble.Members[member].Address
		c.Timeout = castTimeout
		c.UseZooKeeper(address, sizeSession)
		reader := backend.NewZooKeeper(backend.ZooKeeperOptions{Servers: []string{address}, SessionTimeout: sizeSession, DialTimeout: castTimeout})
		x.Later(func() error { reader.Close(); return nil })
		return func() {
			link, err := reader.Connected(x)
			x.Must(err)
			_, err = link.List(x, "/zookeeper")
			x.Must(err)
		}
	}
}

// etcdsOf is zooKeepersOf for etcd.
func etcdsOf(x *scenario.Try, members int) func(c *scenario.Contender, member int) (read func()) {
	ctx, cancel := context.WithTimeout(x, sizesReadyFor)
	defer cancel()
	cluster, err := servers.StartEtcdClusterOf(ctx, x.Supervisor, members)
	x.Must(err)
	closeLater(x, cluster)
	return func(c *scenario.Contender, member int) func() {
		c.TTL = sizeSession
		c.UseEtcd(cluster.Members[member], cluster.Members[member].Endpoint)
		reader, err := cluster.Members[member].Open()
		x.Must(err)
		x.Later(reader.Close)
		return func() {
			_, err := reader.Get(x, "none", clientv3.WithSerializable()) // the member alone answers it
			x.Must(err)
		}
	}
}

// latestKey is the key that was created last in etcd.
func latestKey(x *scenario.Try) string {
	ctx, cancel := context.WithTimeout(x, answerWithin)
	defer cancel()
	client, err := x.Backends.Etcd.Open()
	x.Must(err)
	defer client.Close() //nolint:errcheck // nothing is lost with it
	found, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend))
	if err == nil && len(found.Kvs) == 0 {
		err = errors.New("look for the latest key in etcd: there is none")
	}
	x.Must(err)
	return string(found.Kvs[0].Key)
}

// ephemeral asks the server for the ephemeral nodes that have to do with the item of the
// try, and returns the last part of the path of the latest.
func ephemeral(x *scenario.Try) string {
	said := ask(x, "dump")
	found := regexp.MustCompile(fmt.Sprintf(`/\S*lab\S*\D%d/(\S+)`, x.Item)).FindAllStringSubmatch(said, -1)
	if found == nil {
		x.Must(fmt.Errorf("the server knows no node of the lock:\n%s", strings.TrimSpace(said)))
	}
	latest := slices.MaxFunc(found, func(a, b []string) int { return cmp.Compare(number(a[1]), number(b[1])) })
	return latest[1]
}

// number is the part of a node's name by which ZooKeeper counts.
func number(node string) string { return node[max(0, len(node)-sequenceDigits):] }

const sequenceDigits = 10

// answerWithin bounds one question to a ZooKeeper.
const answerWithin = 5 * time.Second

// ask sends ZooKeeper one of its four-letter words.
func ask(x *scenario.Try, word string) string {
	ctx, cancel := context.WithTimeout(x, answerWithin)
	defer cancel()
	said, err := zooKeeper(x).Ask(ctx, word)
	if err != nil {
		x.Must(fmt.Errorf("ask ZooKeeper to %s: %w", word, err))
	}
	return said
}
