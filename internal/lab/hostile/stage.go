package hostile

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/nginx"
	"github.com/stockd/stockd/pkg/client"
)

// The items of a run. Those of other strategies are numbered from slowItem on.
const (
	baselineItem = 1
	hotItem      = 2
	lineItem     = 3 // it always has a waiting room, and no honest buyer wants it
	slowItem     = 100
)

// lineUnits are few: who is admitted and does not buy keeps others out.
const lineUnits = 5

const perUser = 2

const slowUnits = 300

type stage struct {
	plan    Plan
	shop    *shop.Shop
	cluster *shop.Cluster
	items   []int64
	slow    []int64
	names   []string // of all strategies
	issuer  issuer
}

func (s *stage) start(x *flow.Flow) {
	s.plan.Progress("starting servers and replicas")
	s.shop = flow.Get(shop.Open(x, shop.Options{Servers: s.plan.Servers}))(x)
	if s.plan.Tokens {
		s.issuer.secret = rand.Text() + rand.Text()
	}
	s.cluster = flow.Get(s.shop.Start(x, shop.Replicas{
		Count: Replicas, Limits: limits(), Env: slices.Concat(environment(s.plan.Config), s.issuer.env(), s.rooms(), s.plan.Env),
	}))(x)
	s.createItems(x)
}

// environment is what production.yaml leaves to its shop.
func environment(config string) []string {
	return []string{
		"STOCKD_CONFIG=" + config,
		"STOCKD_HTTP_TRUSTED_PROXIES=127.0.0.1", // the balancer; no attacker comes from there
		"STOCKD_HTTP_DRAIN_DELAY=0s",
	}
}

// rooms has items sold to admitted buyers alone. The rate is above that of honest buyers, so that the line does not grow by itself.
func (s *stage) rooms() []string {
	if s.shop.Servers.Redis == nil {
		return nil
	}
	items := strconv.Itoa(lineItem)
	if s.plan.Room {
		items += fmt.Sprintf(",%d,%d", baselineItem, hotItem)
	}
	return []string{"STOCKD_QUEUE_ITEMS=" + items, "STOCKD_QUEUE_SECRET=" + rand.Text() + rand.Text(), fmt.Sprintf("STOCKD_QUEUE_RATE=%g", 2*s.plan.HonestRate)}
}

// limits are those that docs/production.md gives a shop for one address.
func limits() nginx.Limits {
	return nginx.Limits{
		Rate: 50, Burst: 100, Connections: 50, ConnectionRate: 20, AllConnections: 2000, AllConnectionRate: 1000, HideUpstream: true,
	}
}

func (s *stage) logs() (paths []string) {
	for _, r := range s.cluster.Replicas {
		paths = append(paths, r.Log())
	}
	return paths
}

// chunk is how many units of the hot item are added when it is sold out. Honest buyers
// alone buy two of them in the time of the attack.
func (s *stage) chunk() int64 { return int64(s.plan.HonestRate*s.plan.Duration.Seconds()/2) + 1 }

// createItems puts on sale what honest buyers want, and an item of each other strategy
// that works here.
func (s *stage) createItems(x *flow.Flow) {
	lab := s.cluster.Client().Owner()
	alone := int64(2*s.plan.HonestRate*s.plan.Baseline.Seconds()) + 1
	wanted := map[int64]int64{baselineItem: alone, hotItem: s.chunk()}
	if s.shop.Servers.Redis != nil {
		wanted[lineItem] = lineUnits
	}
	for item, units := range wanted {
		x.Must(lab.Create(x, client.NewItem{GoodsID: item, Stock: units, PerUser: new(int64(perUser))}))
		s.items = append(s.items, item)
	}
	for _, strategy := range flow.Get(lab.Strategies(x))(x) {
		s.names = append(s.names, strategy.Name)
		if !strategy.Available || strategy.RequiresFence || !strategy.Guarantees.ExclusiveAcrossReplicas {
			continue
		}
		item := slowItem + int64(len(s.slow))
		x.Must(lab.Create(x, client.NewItem{GoodsID: item, Stock: slowUnits, Choice: &client.Choice{Strategy: strategy.Name}}))
		s.items, s.slow = append(s.items, item), append(s.slow, item)
	}
}

func (s *stage) target(crowd *crowd) target {
	t := target{
		public: strings.TrimPrefix(s.cluster.URL, "http://"), adminToken: s.cluster.Client().Token,
		hot: hotItem, slow: s.slow, strategies: s.names, issuer: s.issuer, stolen: crowd.stolen,
	}
	for _, r := range s.cluster.Replicas {
		t.admins = append(t.admins, strings.TrimPrefix(r.AdminURL, "http://"))
	}
	return t
}
