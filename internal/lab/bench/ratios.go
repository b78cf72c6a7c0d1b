package bench

import (
	"slices"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/bench/baseline"
	"github.com/stockd/stockd/internal/service"
)

// The strategies that a target names.
const (
	conditional = "sql-conditional"
	forUpdate   = "sql-for-update"
	optimistic  = "sql-optimistic"
	bucket      = "sql-bucket"
	inRedis     = "redis-stock"
)

// ratios are the targets that a stage can measure; one whose
// subjects were not measured has no row.
func (s *stage) ratios() []Ratio {
	if s.replicas == 1 {
		list := s.ratiosOfOne()
		for _, strategy := range s.strategies {
			list = append(list, s.costRatios(strategy)...)
		}
		return append(list, s.rivalRatios()...)
	}
	baseline := httpAlone(usual, s.replicas)
	grouped, alone := s.name(conditional, true, usual), s.name(conditional, false, usual)
	list := []Ratio{
		{Name: "sql-conditional grouped / alone, " + count(s.replicas, "replica"), Of: grouped, By: alone, AtLeast: 5},
		{Name: "sql-conditional grouped / HTTP baseline", Of: grouped, By: baseline, AtLeast: 0.45},
		{Name: "redis-stock / HTTP baseline", Of: s.name(inRedis, false, usual), By: baseline, AtLeast: 0.55},
		{Name: "sql-bucket / sql-conditional, alone", Of: s.name(bucket, false, usual), By: alone, AtLeast: 1.5},
	}
	for _, strategy := range s.strategies {
		list = append(list, s.ratiosOf(strategy)...)
	}
	slices.SortStableFunc(list, func(a, b Ratio) int { return slices.Index(topics(), a.Topic) - slices.Index(topics(), b.Topic) })
	return list
}

func (s *stage) name(strategy string, group bool, clients int) string {
	return Setting{Strategy: strategy, Group: group, Clients: clients, Replicas: s.replicas}.String()
}

func (s *stage) ratiosOfOne() []Ratio {
	return []Ratio{
		{Name: "sql-conditional grouped / alone, 1 replica", Of: s.name(conditional, true, usual), By: s.name(conditional, false, usual), AtLeast: 7},
		// Eleven round trips to four.
		{Name: "sql-conditional reserved and paid / sold at once, alone", Of: s.paid(false).Name, By: s.name(conditional, false, usual), AtLeast: 0.33},
		{Name: "sql-conditional reserved and paid / sold at once, grouped", Of: s.paid(true).Name, By: s.name(conditional, true, usual), AtLeast: 0.33},
		{Name: "sql-conditional over HTTP / bare loop", Of: s.name(conditional, false, usual), By: bareLoop, AtLeast: 0.85},
		{Name: "sql-optimistic, 64 clients / 1 client", Of: s.name(optimistic, false, usual), By: s.name(optimistic, false, one), AtLeast: 0.5},
	}
}

// rivalRatios hold a grouped sale against the programs that are no stockd, and a sale from Redis against HTTP alone.
func (s *stage) rivalRatios() (list []Ratio) {
	for _, how := range s.rivals() {
		r := Ratio{Name: "sql-conditional grouped / " + how.String(), Of: s.name(conditional, true, how.Clients), By: how.String(), AtLeast: 0.9}
		if how.Kind == baseline.Update {
			r.AtLeast = 7
			list = append(list, Ratio{Name: "processor time of " + r.Name, Of: r.Of, By: r.By, Cost: true, Below: 0.12})
		}
		list = append(list, r)
	}
	if !s.options.Quick {
		list = append(list, Ratio{Name: "redis-stock / HTTP baseline, 256 clients", Of: s.name(inRedis, false, hundreds), By: httpAlone(hundreds, s.replicas), AtLeast: 0.5})
	}
	return list
}

// The targets that many strategies share.
const (
	lockGrouped  = "each lock, grouped / alone"
	voteGrouped  = "each lock of etcd and ZooKeeper, grouped / alone"
	crowdGrouped = "each strategy grouped, 512 clients / 64 clients"
	tailUsual    = "each strategy grouped, p99 / p50 of 64 clients"
	tailCrowd    = "each strategy grouped, p99 / p50 of 512 clients"
	lockCost     = "each lock grouped, processor time / HTTP baseline"

	lockCostHundreds = lockCost + ", 256 clients"
)

// topics are in the order in which they are shown; single targets come first.
func topics() []string {
	return []string{"", lockGrouped, voteGrouped, crowdGrouped, tailUsual, tailCrowd, lockCost, lockCostHundreds}
}

func (s *stage) ratiosOf(d service.Description) []Ratio {
	few, many := s.name(d.Name, true, usual), s.name(d.Name, true, crowd)
	list := []Ratio{
		{Topic: crowdGrouped, Name: d.Name, Of: many, By: few, AtLeast: 0.8},
		{Topic: tailUsual, Name: d.Name, Of: few, Below: 10},
		{Topic: tailCrowd, Name: d.Name, Of: many, Below: 10},
	}
	if !d.Guarantees.Fenceable {
		return list // no lock
	}
	grouped := Ratio{Topic: lockGrouped, Name: d.Name, Of: few, By: s.name(d.Name, false, usual), AtLeast: 5}
	if slices.Contains(d.Needs, string(backend.Etcd)) || slices.Contains(d.Needs, string(backend.ZooKeeper)) {
		grouped.Topic, grouped.AtLeast = voteGrouped, 10
	}
	return slices.Concat(list, []Ratio{grouped})
}

// price is a target of what a sale costs in processor time: below so many times HTTP alone, with
// the usual clients and with hundreds.
type price struct {
	topic           string
	group           bool
	usual, hundreds float64
}

// prices are the targets of a strategy, on one replica.
func (s *stage) prices(d service.Description) []price {
	switch {
	case s.replicas > 1:
	case d.Name == conditional:
		return []price{{group: false, usual: 11, hundreds: 11}, {group: true, usual: 2.6, hundreds: 2.2}}
	case d.Name == inRedis:
		return []price{{usual: 2.8, hundreds: 2.8}}
	case d.Guarantees.Fenceable:
		return []price{{topic: lockCost, group: true, usual: 4, hundreds: 2.7}}
	}
	return nil
}

// costRatios hold the processor time of a sale against that of HTTP alone, on one replica.
func (s *stage) costRatios(d service.Description) (list []Ratio) {
	for _, p := range s.prices(d) {
		for _, clients := range s.costed() {
			r := Ratio{
				Topic: p.topic, Name: "processor time of " + Setting{Strategy: d.Name, Group: p.group}.strategy() + " / HTTP baseline",
				Of: s.name(d.Name, p.group, clients), By: httpAlone(clients, s.replicas), Cost: true, Below: p.usual,
			}
			if clients == hundreds {
				r.Name, r.Below = r.Name+", 256 clients", p.hundreds
				if r.Topic != "" {
					r.Topic = lockCostHundreds
				}
			}
			list = append(list, r)
		}
	}
	return list
}
