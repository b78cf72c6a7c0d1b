//go:build prove

package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// answers are when each order was first answered, by its number.
type answers struct {
	by   string // the strategy
	mu   sync.Mutex
	sold map[string]time.Time
}

func newAnswers() *answers { return &answers{sold: make(map[string]time.Time)} }

func (a *answers) add(o stock.Order) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.sold[o.ID]; !again {
		a.sold[o.ID] = time.Now()
	}
}

// salesOf are the times of the sales of items within a time, in their order.
func salesOf(items []*answers, from, to time.Time) (times []time.Time) {
	for _, told := range items {
		told.mu.Lock()
		for _, at := range told.sold {
			if at.After(from) && at.Before(to) {
				times = append(times, at)
			}
		}
		told.mu.Unlock()
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// gapOf is the longest time without a sale of items.
func gapOf(items []*answers, from, to time.Time) (longest time.Duration) {
	for _, at := range append(salesOf(items, from, to), to) {
		longest, from = max(longest, at.Sub(from)), at
	}
	return longest.Round(time.Millisecond)
}

// What the short run has of a few strategies, with the locks of the others.
func TestProveEveryOtherLockSellsOnNodes(t *testing.T) {
	others := func(name string) bool { return !standsForOthers(name) }
	for kind, start := range map[string]func(*testing.T) []*servers.Database{"Galera": lab.Galera, "Group Replication": lab.Group} {
		t.Run(kind, func(t *testing.T) { sellOnEachNode(t, kind, start(t), ofOneServer, others) })
	}
}

// Twelve times a node is killed in the middle of a sale and restarts, and twelve times it is paused until
// the others have put it out. Each purchase is asked for again under its key, at any node, until it is
// answered: the ledger has what the buyers were told, once.
func TestProveASaleSurvivesTheNodesOfGalera(t *testing.T) {
	surviveNodes(t, lab.OwnNodes(t, "galera", servers.StartGalera), sizeOfGalera, killNode, pauseNode)
}

// The same with the primaries of Group Replication.
func TestProveASaleSurvivesThePrimariesOfAGroup(t *testing.T) {
	surviveNodes(t, lab.OwnNodes(t, "mysql", servers.StartGroup), sizeOfGroup, killNode, pauseNode)
}

// Twelve times a node is cut off from the others, until they have put it out, while replicas go on writing to
// all of them.
func TestProveASaleSurvivesPartitionsOfGalera(t *testing.T) {
	nodes, network := lab.OwnNetwork(t, "galera", servers.StartGalera)
	surviveNodes(t, nodes, sizeOfGalera, cutOff(network, sizeOfGalera))
}

// The same with the primaries of Group Replication.
func TestProveASaleSurvivesPartitionsOfAGroup(t *testing.T) {
	nodes, network := lab.OwnNetwork(t, "mysql", servers.StartGroup)
	surviveNodes(t, nodes, sizeOfGroup, cutOff(network, sizeOfGroup))
}

// faultsEach is how often each fault befalls a node of a cluster.
const faultsEach = 12

// fault befalls one of the nodes, and ends.
type fault func(t *testing.T, nodes []*servers.Database, number int)

func surviveNodes(t *testing.T, nodes []*servers.Database, size string, faults ...fault) {
	t.Helper()
	survival{
		openOn(t, 0, nodes...), nodes, size,
		[]string{"sql-conditional", "sql-conditional grouped", "sql-bucket", "redis-lua grouped"},
		len(faults) * faultsEach / 4, func() int { return mathrand.IntN(len(nodes)) }, time.Second,
	}.of(t, faults...)
}

// survival is a sale of each strategy, in the middle of which nodes have so many faults.
type survival struct {
	shop
	nodes  []*servers.Database
	size   string // the query of how many nodes one sees
	names  []string
	rounds int
	which  func() int    // node is the next
	heals  time.Duration // after a fault
}

func (s survival) of(t *testing.T, faults ...fault) {
	t.Helper()
	for i, name := range s.names {
		t.Run(name, func(t *testing.T) {
			const units = 1_000_000
			goods, told := int64(i+1), newAnswers()
			s.create(t, goods, units)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var buyers sync.WaitGroup
			for range 12 {
				buyers.Go(func() { s.buyUntil(ctx, t, name, goods, told) })
			}
			for round := range s.rounds {
				time.Sleep(time.Second)
				began, number := time.Now(), s.which()
				faults[round%len(faults)](t, s.nodes, number)
				awaitWhole(t, s.nodes, s.nodes[number], s.size)
				time.Sleep(s.heals)
				t.Logf("round %d: %s without a sale", round+1, gapOf([]*answers{told}, began, time.Now()))
			}
			stop()
			buyers.Wait()
			s.wantTold(t, goods, units, told)
			t.Logf("%d sales", len(told.sold))
		})
	}
}

// putOut is longer than the others take to put a silent node out of Galera, and out of a group.
const putOut = 8 * time.Second

// cutOff cuts a node off from the others, and not from its buyers.
func cutOff(network *servers.Network, size string) fault {
	return func(t *testing.T, nodes []*servers.Database, number int) {
		t.Helper()
		must.Do(t, network.Cut(t.Context(), number))
		time.Sleep(putOut)
		if other := nodes[(number+1)%len(nodes)]; !labtest.Eventually(20*time.Second, func() bool { return seen(t, other, size) == len(nodes)-1 }) {
			t.Errorf("while one of %d nodes is cut off, another sees %d", len(nodes), seen(t, other, size))
		}
		must.Do(t, network.Heal(t.Context(), number))
	}
}

func killNode(t *testing.T, nodes []*servers.Database, number int) {
	t.Helper()
	node := nodes[number]
	must.Do(t, node.Kill(t.Context()))
	time.Sleep(time.Second)
	must.Do(t, node.Restart(t.Context()))
}

func pauseNode(t *testing.T, nodes []*servers.Database, number int) {
	t.Helper()
	node := nodes[number]
	must.Do(t, node.Pause(t.Context()))
	time.Sleep(putOut)
	must.Do(t, node.Resume(t.Context()))
}

// The queries of how many nodes a node sees in its cluster.
const (
	sizeOfGalera = `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'wsrep_cluster_size'`
	sizeOfGroup  = `SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE'`
)

// awaitWhole waits until every node sees all of them: another fault before would be one too many. A member
// of Group Replication whose first try to join again fails waits for five minutes, and is restarted.
func awaitWhole(t *testing.T, nodes []*servers.Database, faulty *servers.Database, size string) {
	t.Helper()
	whole := func() bool {
		return !slices.ContainsFunc(nodes, func(node *servers.Database) bool { return seen(t, node, size) != len(nodes) })
	}
	if labtest.Eventually(20*time.Second, whole) {
		return
	}
	t.Log("a node does not come back by itself")
	must.Do(t, faulty.Restart(t.Context()))
	labtest.Await(t, "a whole cluster", time.Minute, whole)
}

func seen(t *testing.T, node *servers.Database, size string) (count int) {
	t.Helper()
	pool, _, err := node.Pool(1, time.Second)
	must.Do(t, err)
	defer pool.Close() //nolint:errcheck // nothing is lost with it
	if err := pool.QueryRowContext(t.Context(), size).Scan(&count); err != nil {
		return 0
	}
	return count
}

// buyUntil buys one purchase after the other. The last one is asked for until it is answered, too.
func (s shop) buyUntil(ctx context.Context, t *testing.T, name string, goods int64, told *answers) {
	for ctx.Err() == nil {
		s.insist(ctx, t, name, goods, keyed(rand.Text(), 1), told, 10*time.Millisecond)
	}
}

// insist asks for a purchase until it is answered.
func (s shop) insist(ctx context.Context, t *testing.T, name string, goods int64, p stock.Purchase, told *answers, again time.Duration) {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(again) {
		err := s.buy(ctx, t, name, goods, p, told)
		if err == nil || t.Failed() {
			return
		}
		if time.Now().After(end) {
			t.Errorf("%s: a purchase is answered with %v", name, err)
		}
	}
}

// buy asks for a purchase, and returns why it was not sold.
func (s shop) buy(ctx context.Context, t *testing.T, name string, goods int64, p stock.Purchase, told *answers) error {
	outcome, err := s.strategy(t, mathrand.IntN(len(s.replicas)), name).Deduct(context.WithoutCancel(ctx), goods, p)
	switch {
	case err != nil:
		return err
	case outcome.Rejected == nil:
		told.add(outcome.Order)
	case !errors.Is(outcome.Rejected, stock.ErrUnknownGoods):
		t.Errorf("%s: a purchase is rejected: %v", name, outcome.Rejected)
	}
	return outcome.Rejected
}

// lineUp has one buyer after another buy. The next one begins when the one before has an answer, or has waited for a second. A buyer
// without its purchase retries every second; at most eight do so at the same time.
func (s shop) lineUp(ctx context.Context, t *testing.T, name string, goods int64, told *answers, buyers *sync.WaitGroup) {
	waiting := make(chan struct{}, 8)
	for ctx.Err() == nil && !t.Failed() {
		p, first := keyed(rand.Text(), 1), make(chan struct{})
		p.Durable = stock.InSQL
		waiting <- struct{}{}
		buyers.Go(func() {
			err := s.buy(ctx, t, name, goods, p, told)
			close(first)
			if err != nil {
				s.insist(ctx, t, name, goods, p, told, time.Second)
			}
			<-waiting
		})
		select {
		case <-first:
		case <-time.After(time.Second):
		}
	}
}

// wantTold compares the ledger with what buyers were told.
func (s shop) wantTold(t *testing.T, goods, units int64, told *answers) {
	t.Helper()
	var audit service.Audit
	var err error
	want := int64(len(told.sold))
	if !labtest.Eventually(time.Minute, func() bool {
		audit, err = s.inventory.AuditInFull(t.Context(), goods)
		return err == nil && audit.Clean && audit.Sold == want && audit.Stock == units-want
	}) {
		t.Errorf("buyers were told of %d sales, and the audit is %+v (%v)", want, audit, err)
	}
}

// Each server of Vitess is killed three times in the middle of a sale of a hundred items on four shards: the tablets, each of
// which is down for five seconds, the gate, the database of the shards, etcd and vtctld. The other shards sell meanwhile. Then the
// first tablet freezes, and they sell again once the gate has noticed that.
func TestProveASaleSurvivesTheServersOfVitess(t *testing.T) {
	v := labtest.Own(t, lab.Supervisor(), "vitess", servers.StartVitess, servers.VitessOptions{Shards: fourShards()})
	sale, end := startShardSale(t, v)
	began := time.Now()
	first := len(v.All) - 1 - len(fourShards()) // of the tablets of the shards, which are before the gate
	for round := range 3 * len(v.All) {
		number := round % len(v.All)
		restart := func() { must.Do(t, v.All[number].Restart(t.Context())) }
		if shard := number - first; shard >= 0 && number < len(v.All)-1 {
			sale.befall(t, fourShards()[shard], "a kill", func() {
				must.Do(t, v.All[number].Kill(t.Context()))
				time.Sleep(5 * time.Second)
				connects(t, v.Database)
				restart()
			})
			continue
		}
		time.Sleep(time.Second)
		restart()
	}
	time.Sleep(time.Second)
	t.Log("nothing was sold for up to", gapOf(sale.items, began, time.Now()))
	for name, ratios := range sale.ratios {
		if others := bench.Median(ratios); others < 0.25 {
			t.Errorf("%s: the other shards sold %.2f times what they sold before", name, others)
		}
	}
	const frozen = 40 * time.Second
	gap := sale.befall(t, fourShards()[0], "a freeze", func() {
		must.Do(t, v.All[first].Pause(t.Context()))
		time.Sleep(frozen)
		must.Do(t, v.All[first].Resume(t.Context()))
	})
	if gap > frozen*3/4 {
		t.Errorf("while a shard was frozen the others sold nothing for %s", gap)
	}
	end()
}

// connects makes a new connection, which needs no certain shard.
func connects(t *testing.T, d *servers.Database) {
	t.Helper()
	pool, _, err := d.Pool(1, 5*time.Second)
	must.Do(t, err)
	must.Do(t, errors.Join(pool.PingContext(t.Context()), pool.Close()))
}

func fourShards() []string { return []string{"-40", "40-80", "80-c0", "c0-"} }

// The primary of one of four shards is moved to another of its three tablets, six times by plan, and once because its
// machine dies, in the middle of a sale of a hundred items.
func TestProveASaleSurvivesTheMovesOfAPrimaryOfVitess(t *testing.T) {
	v := labtest.Own(t, lab.Supervisor(), "mysql", servers.StartVitess, servers.VitessOptions{Shards: fourShards(), Replicated: true})
	sale, end := startShardSale(t, v)
	shard := fourShards()[0]
	const rounds = 6
	for round := range rounds {
		sale.befall(t, shard, "PlannedReparentShard", func() {
			next := v.Tablets[(round+1)%len(v.Tablets)].Alias
			must.Do(t, v.Control(t.Context(), "PlannedReparentShard", "--new-primary="+next, "shop/"+shard))
		})
	}
	sale.befall(t, shard, "EmergencyReparentShard", func() {
		must.Do(t, v.Tablets[rounds%len(v.Tablets)].Kill(t.Context()))
		must.Do(t, v.Control(t.Context(), "EmergencyReparentShard", "shop/"+shard))
	})
	end()
}

// shardSaleLines are how many lines of buyers an item of a shardSale has, by its strategy.
var shardSaleLines = map[string]int{"sql-conditional": 1, "sql-conditional grouped": 8, "redis-stock": 2}

// shardSale is a sale of a hundred items on four shards. Each purchase is asked for again under its key until it is answered.
type shardSale struct {
	items  []*answers
	on     map[string][]*answers // those of each shard
	ratios map[string][]float64  // of what the other shards sold, by strategy, for each fault of one
}

func startShardSale(t *testing.T, v *servers.Vitess) (sale *shardSale, end func()) {
	t.Helper()
	s := openOn(t, 0, v.Database, v.Database)
	const units = 1_000_000
	sale = &shardSale{make([]*answers, 100), make(map[string][]*answers), make(map[string][]float64)}
	for i := range sale.items {
		sale.items[i] = newAnswers()
		sale.items[i].by = []string{"sql-conditional", "sql-conditional", "sql-conditional", "sql-conditional grouped", "redis-stock"}[i%5]
		s.create(t, int64(i+1), units)
	}
	for _, shard := range fourShards() {
		for _, item := range itemsOf(t, v, shard) {
			if item <= int64(len(sale.items)) {
				sale.on[shard] = append(sale.on[shard], sale.items[item-1])
			}
		}
	}
	began := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var buyers sync.WaitGroup
	for i, told := range sale.items {
		for range shardSaleLines[told.by] {
			buyers.Go(func() { s.lineUp(ctx, t, told.by, int64(i+1), told, &buyers) })
		}
	}
	return sale, func() {
		stop()
		buyers.Wait()
		for i, told := range sale.items {
			s.wantTold(t, int64(i+1), units, told)
		}
		t.Logf("%d sales", len(salesOf(sale.items, began, time.Now())))
		for name, ratios := range sale.ratios {
			t.Logf("%s: in %d faults of a shard the others sold %.2f times what they sold before (%.2f)", name, len(ratios), bench.Median(ratios), ratios)
		}
	}
}

// befall logs what the other shards sell from a fault of a shard until that one sells again, and in as long a time before. It
// returns the longest time in which they sold nothing.
func (s *shardSale) befall(t *testing.T, shard, what string, fault func()) (gap time.Duration) {
	t.Helper()
	time.Sleep(10 * time.Second)
	var others []*answers
	for name, items := range s.on {
		if name != shard {
			others = append(others, items...)
		}
	}
	began := time.Now()
	fault()
	returned := time.Now()
	labtest.Await(t, "a sale on "+shard, time.Minute, func() bool { return len(salesOf(s.on[shard], returned, time.Now())) > 0 })
	ended := time.Now()
	lasted, gap := ended.Sub(began), gapOf(others, began, ended)
	t.Logf("%s of %s took %s: %s without a sale on it, and %s on the others", what, shard,
		returned.Sub(began).Round(time.Millisecond), gapOf(s.on[shard], began, ended), gap)
	for name := range shardSaleLines {
		by := slices.DeleteFunc(slices.Clone(others), func(told *answers) bool { return told.by != name })
		before, during := len(salesOf(by, began.Add(-lasted), began)), len(salesOf(by, began, ended))
		s.ratios[name] = append(s.ratios[name], float64(during)/float64(before))
		t.Logf("%s: they sold %.1f in a second, and %.1f before", name, float64(during)/lasted.Seconds(), float64(before)/lasted.Seconds())
	}
	return gap
}

// itemsOf are the items that are on a shard.
func itemsOf(t *testing.T, v *servers.Vitess, shard string) (items []int64) {
	t.Helper()
	for _, item := range onShard(t, v, shard, `SELECT goods_id FROM tb_goods_stock`) {
		items = append(items, must.Get(strconv.ParseInt(item, 10, 64))(t))
	}
	return items
}

// Three replicas write to one node through HAProxy, by the configuration of deploy/haproxy. The node is
// killed, and paused, in the middle of a sale; it becomes the one that is written to when it is back. The
// ledger has what the buyers got, once.
func TestProveASaleSurvivesAFailoverBehindHAProxy(t *testing.T) {
	nodes := lab.OwnNodes(t, "galera", servers.StartGalera)
	surviveFailovers(t, startHAProxy(t, nodes, "galera"), nodes, sizeOfGalera, func() int { return 0 })
}

// The same with a group of one primary, which another member becomes each time.
func TestProveASaleSurvivesAFailoverOfThePrimary(t *testing.T) {
	nodes := lab.OwnNodes(t, "mysql", servers.StartPrimary)
	surviveFailovers(t, startHAProxy(t, nodes, "group"), nodes, sizeOfGroup, func() int { return primary(t, nodes) })
}

// surviveFailovers has a fault befall the node that is written to, six times for each strategy.
func surviveFailovers(t *testing.T, before *servers.Database, nodes []*servers.Database, size string, writing func() int) {
	t.Helper()
	const heals = 4 * time.Second // until it is written to again
	survival{openOn(t, 0, before, before, before), nodes, size, []string{"sql-conditional", "sql-conditional grouped"}, 6, writing, heals}.of(t, killNode, pauseNode)
}

// primary is the number of the member that takes writes.
func primary(t *testing.T, nodes []*servers.Database) (number int) {
	t.Helper()
	const isPrimary = `SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid AND member_role = 'PRIMARY'`
	if !labtest.Eventually(20*time.Second, func() bool {
		number = slices.IndexFunc(nodes, func(node *servers.Database) bool { return seen(t, node, isPrimary) == 1 })
		return number >= 0
	}) {
		t.Fatal("no member is the primary")
	}
	return number
}

// startHAProxy starts HAProxy before the nodes of a kind of cluster, and returns the database as it is reached through it.
func startHAProxy(t *testing.T, nodes []*servers.Database, kind string) *servers.Database {
	t.Helper()
	program, err := servers.Find("haproxy")
	labtest.Need(t, "haproxy", err == nil, "apt-get install haproxy brings it")
	d := *nodes[0]
	configure := func(folder string, port int) (args, env []string, err error) {
		c := must.Get(mysql.ParseDSN(d.DSN))(t)
		c.Addr = servers.Loopback(port)
		d.DSN = c.FormatDSN()
		return []string{"-db", "-f", writeHAProxy(t, folder, c.Addr, nodes, kind)}, nil, nil
	}
	server, err := servers.Launch(t.Context(), lab.Supervisor(), servers.Spec{
		Name: "haproxy", Program: program, Configure: configure,
		Ready: func(ctx context.Context, _ int) error {
			store, err := d.Open(ctx, "lab", 1)
			if err != nil {
				return err
			}
			return store.Close()
		},
	})
	must.Do(t, err)
	t.Cleanup(func() {
		should.Do(t, server.Close(context.Background()))
	})
	time.Sleep(4 * time.Second) // until then HAProxy takes each node for one that may be written to
	return &d
}

// writeHAProxy writes what deploy/haproxy has, with the addresses and the paths of this test.
func writeHAProxy(t *testing.T, folder, address string, nodes []*servers.Database, kind string) string {
	t.Helper()
	words := make([]string, 0, 4+2*len(nodes))
	words = append(words, "/etc/haproxy", folder, "127.0.0.1:3307", address)
	for i, node := range nodes {
		words = append(words, fmt.Sprintf("10.0.0.%d:3306", i+1), must.Get(mysql.ParseDSN(node.DSN))(t).Addr)
	}
	replacer := strings.NewReplacer(words...)
	for name, mode := range map[string]os.FileMode{kind + ".cfg": 0o600, kind + "-check": 0o700} {
		content, err := os.ReadFile(filepath.Join("..", "..", "deploy", "haproxy", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), []byte(replacer.Replace(string(content))), mode)
		}
		must.Do(t, err)
	}
	user := fmt.Sprintf("[client]\nuser=%s\npassword=%s\n", must.Get(mysql.ParseDSN(nodes[0].DSN))(t).User, nodes[0].Password)
	must.Do(t, os.WriteFile(filepath.Join(folder, kind+"-check.cnf"), []byte(user), 0o600))
	return filepath.Join(folder, kind+".cfg")
}
