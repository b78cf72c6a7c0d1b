package handler

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/service"
)

// flood takes places until there is none.
func flood(p *places, goodsID int64, asked *service.Seller) (list []place, full string) {
	for {
		taken, full := p.take(goodsID, asked)
		if full != "" {
			return list, full
		}
		list = append(list, taken)
	}
}

func freeAll(list []place) {
	for _, taken := range list {
		taken.free()
	}
}

func TestNoItemTakesAllPlaces(t *testing.T) {
	p := newPlaces(1200)
	first, full := flood(p, 1, nil)
	if len(first) != 600 || full != fullItem {
		t.Fatalf("alone an item has %d places of 1200 and the %s is full, want 600", len(first), full)
	}
	second, _ := flood(p, 2, nil)
	third, _ := flood(p, 3, nil)
	if len(second) != 300 || len(third) != 150 {
		t.Errorf("the next items have %d and %d places, want half of what is free each: 300 and 150", len(second), len(third))
	}
	// What ends makes the shares equal: no item takes a place while it has more than are free.
	for range 10_000 {
		for id, list := range map[int64]*[]place{1: &first, 2: &second, 3: &third} {
			(*list)[0].free()
			*list = (*list)[1:]
			again, _ := flood(p, id, nil)
			*list = append(*list, again...)
		}
	}
	for id, list := range map[int64][]place{1: first, 2: second, 3: third} {
		if len(list) < 290 || len(list) > 310 {
			t.Errorf("of three items that are flooded, %d has %d places of 1200, want about 300", id, len(list))
		}
	}
	if honest, _ := flood(p, 4, nil); len(honest) < 145 {
		t.Errorf("a fourth item has %d places beside three that are flooded, want 150", len(honest))
	}
}

func TestPurchasesThatAskForAnotherStrategyLeavePlacesToTheItemsOwn(t *testing.T) {
	p := newPlaces(1200)
	slow, full := flood(p, 1, new(service.Seller))
	if len(slow) != 300 || full != fullStrategy {
		t.Fatalf("a strategy that requests ask for has %d places of 1200 and the %s is full, want 300", len(slow), full)
	}
	another, _ := flood(p, 1, new(service.Seller))
	if len(another) == 0 {
		t.Error("another strategy of the item has no place")
	}
	for range 100 { // modes that do not exist in such numbers
		list, _ := flood(p, 1, new(service.Seller))
		another = append(another, list...)
	}
	if all := len(slow) + len(another); all > 400 {
		t.Errorf("purchases that ask for other strategies have %d places of 1200, want at most 400", all)
	}
	own, full := flood(p, 1, nil)
	if len(own) != 200 || full != fullItem {
		t.Errorf("the item's own strategy has %d places beside them and the %s is full, want 200", len(own), full)
	}
	if other, _ := flood(p, 2, new(service.Seller)); len(other) != 150 {
		t.Errorf("another item has %d places by a strategy that is asked for, want 150", len(other))
	}
	freeAll(own)
	freeAll(slow)
	freeAll(another)
	if len(p.asked) != 1 || len(p.items) != 1 {
		t.Errorf("%d modes and %d items are remembered, want those that have places", len(p.asked), len(p.items))
	}
}

func TestTheLastPlaceIsTaken(t *testing.T) {
	p := newPlaces(1)
	taken, full := p.take(1, new(service.Seller))
	if full != "" {
		t.Fatalf("the only place is not given: the %s is full", full)
	}
	if _, full := p.take(2, nil); full != fullReplica {
		t.Errorf("beyond it the %q is full", full)
	}
	taken.free()
	if _, full := p.take(2, nil); full != "" {
		t.Errorf("given back, it is not given again: the %s is full", full)
	}
	if _, full := newPlaces(0).take(1, nil); full != "" {
		t.Errorf("without a bound the %s is full", full)
	}
}

// Nothing is left of any number of items, and the bound holds.
func TestPlacesAreBoundedAndForgotten(t *testing.T) {
	const most = 50
	p, modes := newPlaces(most), []*service.Seller{nil, {}, {}}
	var taken atomic.Int64
	var crowd sync.WaitGroup
	for range 8 {
		crowd.Go(func() {
			var mine []place
			for range 5000 {
				if got, full := p.take(rand.Int64N(100), modes[rand.N(len(modes))]); full == "" {
					if now := taken.Add(1); now > most {
						t.Errorf("%d places are taken of %d", now, most)
					}
					mine = append(mine, got)
				}
				if len(mine) > 0 && rand.N(2) == 0 {
					taken.Add(-1)
					mine[0].free()
					mine = mine[1:]
				}
			}
			taken.Add(int64(-len(mine)))
			freeAll(mine)
		})
	}
	crowd.Wait()
	if p.taken != 0 || len(p.items) != 0 || len(p.asked) != 0 {
		t.Errorf("%d places, %d items and %d modes are left", p.taken, len(p.items), len(p.asked))
	}
}

// BenchmarkPlaces compares a place with a slot of a channel, which bounds the whole alone.
func BenchmarkPlaces(b *testing.B) {
	b.Run("places of an item", func(b *testing.B) { benchmarkPlaces(b, nil) })
	b.Run("places of a strategy", func(b *testing.B) { benchmarkPlaces(b, new(service.Seller)) })
	b.Run("a channel", func(b *testing.B) {
		slots := make(chan struct{}, 8192)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				slots <- struct{}{}
				<-slots
			}
		})
	})
}

func benchmarkPlaces(b *testing.B, asked *service.Seller) {
	b.Helper()
	b.ReportAllocs()
	p := newPlaces(8192)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			taken, full := p.take(1, asked)
			if full != "" {
				b.Fatal(full)
			}
			taken.free()
		}
	})
}
