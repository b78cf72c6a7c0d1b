package bench

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/load"
)

const (
	// MostItems are sold at the same time.
	MostItems = 10_000
	// asFastAsOne is the target of many items.
	asFastAsOne = 0.7
	// zipfExponent says how unequal the items are.
	zipfExponent = 1.1
)

// RunItems measures the sale of many items at the same time against that of one, on one replica.
func RunItems(ctx context.Context, o Options, items int) (*Result, error) {
	return measureAlone(ctx, o, func(b *bench) []*stage {
		s := &stage{bench: b, replicas: 1}
		s.alone = func() Suite { return s.ofItems(items) }
		return []*stage{s}
	})
}

// severalItems are those whose sale of many items is measured.
func severalItems() []Setting {
	return []Setting{{Strategy: conditional}, {Strategy: conditional, Group: true}, {Strategy: forUpdate, Group: true}, {Strategy: inRedis}}
}

// ofItems compares many items with one for each strategy that writes several in one transaction,
// and with sql-conditional alone, which does not.
func (s *stage) ofItems(items int) (suite Suite) {
	for _, how := range severalItems() {
		if only := s.options.Only; only != nil && !only.MatchString(how.Strategy) {
			continue
		}
		how.Clients, how.Replicas = hundreds, 1
		by := how.String()
		suite.Subjects = append(suite.Subjects, Subject{Name: by, Setting: how, Unit: "/s", Measure: s.sell(how)})
		for _, zipf := range []bool{false, true} {
			many := how
			many.Items, many.Zipf = items, zipf
			suite.Subjects = append(suite.Subjects, Subject{Name: many.String(), Setting: many, Unit: "/s", Measure: s.sellItems(many)})
			if !how.Group && how.Strategy == conditional {
				continue
			}
			suite.Ratios = append(suite.Ratios,
				Ratio{Name: many.String() + " / one item", Of: many.String(), By: by, AtLeast: asFastAsOne},
				Ratio{Name: many.String() + ", p99 / p50", Of: many.String(), Below: 10})
		}
	}
	return suite
}

// sellItems measures sales of many items, which it makes the first time.
func (s *stage) sellItems(how Setting) func(context.Context, time.Duration) (Sample, error) {
	var of *shelf
	return func(ctx context.Context, each time.Duration) (sample Sample, err error) {
		if of == nil {
			if of, err = s.stockUpItems(ctx, how); err != nil {
				return Sample{}, err
			}
		}
		return s.sellFrom(ctx, each, how, of)
	}
}

// stockUpItems makes the items, and sells each of them twice.
func (s *stage) stockUpItems(ctx context.Context, how Setting) (*shelf, error) {
	of := new(shelf)
	for range how.Items {
		goodsID, err := s.create(ctx, plenty(how.Strategy))
		if err != nil {
			return nil, err
		}
		of.goods = append(of.goods, goodsID)
	}
	var mu sync.Mutex
	next := 0
	of.pick = func() int64 {
		mu.Lock()
		defer mu.Unlock()
		next++
		return of.goods[next%len(of.goods)]
	}
	plan := s.plan(how, of)
	plan.Clients, plan.Requests = few, 2*how.Items
	first, err := load.Run(ctx, plan)
	if err != nil {
		return nil, err
	}
	of.add(first)
	of.pick = func() int64 { return of.goods[rand.IntN(len(of.goods))] }
	if how.Zipf {
		draw := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), zipfExponent, 1, uint64(len(of.goods)-1)) //nolint:gosec // there are items
		of.pick = func() int64 {
			mu.Lock()
			defer mu.Unlock()
			return of.goods[draw.Uint64()]
		}
	}
	return of, nil
}
