package load

import (
	"maps"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// tally counts the answers of one client.
type tally struct {
	counts     [4]int // by Kind
	errors     map[string]int
	orders     []string
	replicas   map[string]bool
	strategies map[string]bool
	latency    *hdrhistogram.Histogram // of all
	sales      *hdrhistogram.Histogram // of those that sold
	lastSale   time.Time
}

func newTally() *tally {
	return &tally{
		errors: make(map[string]int), replicas: make(map[string]bool), strategies: make(map[string]bool),
		latency: NewHistogram(), sales: NewHistogram(),
	}
}

func (t *tally) add(r Answer, took time.Duration) {
	t.counts[r.Kind]++
	Record(t.latency, took)
	switch r.Kind {
	case Sold:
		if t.lastSale = time.Now(); r.Order != "" { // a look has none
			t.orders = append(t.orders, r.Order)
		}
		t.strategies[r.Strategy] = true
		if r.Replica != "" {
			t.replicas[r.Replica] = true
		}
		Record(t.sales, took)
	case Failed:
		t.errors[r.Problem]++
	case Rejected, Unknown:
	}
}

func merge(tallies []*tally, elapsed time.Duration) *Result {
	r := &Result{Errors: make(map[string]int), Elapsed: elapsed, Latency: NewHistogram(), SaleLatency: NewHistogram()}
	orders, replicas, strategies := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	for _, t := range tallies {
		for _, n := range t.counts {
			r.Sent += n
		}
		r.Sold += t.counts[Sold]
		r.Rejected += t.counts[Rejected]
		r.Unknown += t.counts[Unknown]
		for problem, n := range t.errors {
			r.Errors[problem] += n
		}
		for _, order := range t.orders {
			if orders[order] {
				r.Duplicates++
			}
			orders[order] = true
		}
		maps.Copy(replicas, t.replicas)
		maps.Copy(strategies, t.strategies)
		r.Latency.Merge(t.latency)
		r.SaleLatency.Merge(t.sales)
	}
	r.Replicas, r.Strategies = slices.Sorted(maps.Keys(replicas)), slices.Sorted(maps.Keys(strategies))
	return r
}
