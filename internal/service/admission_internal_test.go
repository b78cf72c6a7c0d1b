package service

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// flood takes slots until there is none.
func flood(p *slots, goodsID int64, asked Mode) (list []slot, full string) {
	for {
		taken, err := p.take(goodsID, asked)
		if shed, ok := errors.AsType[*ShedError](err); ok {
			return list, shed.Full
		}
		list = append(list, taken)
	}
}

func releaseAll(list []slot) {
	for _, taken := range list {
		taken.release()
	}
}

func TestNoItemTakesAllSlots(t *testing.T) {
	p := newSlots(1200)
	first, full := flood(p, 1, Mode{})
	if len(first) != 600 || full != fullItem {
		t.Fatalf("alone an item has %d slots of 1200 and the %s is full, want 600", len(first), full)
	}
	second, _ := flood(p, 2, Mode{})
	third, _ := flood(p, 3, Mode{})
	if len(second) != 300 || len(third) != 150 {
		t.Errorf("the next items have %d and %d slots, want half of what is free each: 300 and 150", len(second), len(third))
	}
	// What ends makes the shares equal: no item takes a slot while it has more than are free.
	for range 10_000 {
		for id, list := range map[int64]*[]slot{1: &first, 2: &second, 3: &third} {
			(*list)[0].release()
			*list = (*list)[1:]
			again, _ := flood(p, id, Mode{})
			*list = append(*list, again...)
		}
	}
	for id, list := range map[int64][]slot{1: first, 2: second, 3: third} {
		if len(list) < 290 || len(list) > 310 {
			t.Errorf("of three items that are flooded, %d has %d slots of 1200, want about 300", id, len(list))
		}
	}
	if honest, _ := flood(p, 4, Mode{}); len(honest) < 145 {
		t.Errorf("a fourth item has %d slots beside three that are flooded, want 150", len(honest))
	}
}

func TestPurchasesThatAskForAnotherStrategyLeaveSlotsToTheItemsOwn(t *testing.T) {
	p := newSlots(1200)
	slow, full := flood(p, 1, Mode{Strategy: "slow"})
	if len(slow) != 300 || full != fullStrategy {
		t.Fatalf("a strategy that requests ask for has %d slots of 1200 and the %s is full, want 300", len(slow), full)
	}
	another, _ := flood(p, 1, Mode{Strategy: "another"})
	if len(another) == 0 {
		t.Error("another strategy of the item has no slot")
	}
	for i := range 100 { // modes that do not exist in such numbers
		list, _ := flood(p, 1, Mode{Strategy: strconv.Itoa(i)})
		another = append(another, list...)
	}
	if all := len(slow) + len(another); all > 400 {
		t.Errorf("purchases that ask for other strategies have %d slots of 1200, want at most 400", all)
	}
	own, full := flood(p, 1, Mode{})
	if len(own) != 200 || full != fullItem {
		t.Errorf("the item's own strategy has %d slots beside them and the %s is full, want 200", len(own), full)
	}
	other, _ := flood(p, 2, Mode{Strategy: "slow"})
	should.Be(t, len(other), 150, "the slots of another item by a strategy that is asked for")
	releaseAll(own)
	releaseAll(slow)
	releaseAll(another)
	if len(p.asked) != 1 || len(p.items) != 1 {
		t.Errorf("%d modes and %d items are remembered, want those that have slots", len(p.asked), len(p.items))
	}
}

func TestWhatAskedForAnotherStrategyGivesItsShareBack(t *testing.T) {
	p := newSlots(1200)
	_, _ = p.take(1, Mode{}) // the item stays known
	for round := range 3 {
		list, _ := flood(p, 1, Mode{Strategy: "slow"})
		should.Be(t, len(list), 300, "in round … a strategy that requests ask for has … slots", round)
		releaseAll(list)
	}
}

func TestTheLastSlotIsTaken(t *testing.T) {
	p := newSlots(1)
	taken := must.Get(p.take(1, Mode{Strategy: "slow"}))(t)
	if _, err := p.take(2, Mode{}); !errors.Is(err, stock.ErrBusy) || !strings.Contains(err.Error(), "this replica serves") {
		t.Errorf("beyond it: %v", err)
	}
	taken.release()
	if _, err := p.take(2, Mode{}); err != nil {
		t.Errorf("given back, it is not given again: %v", err)
	}
	if _, err := newSlots(0).take(1, Mode{}); err != nil {
		t.Errorf("without a bound: %v", err)
	}
}

// Nothing is left of any number of items, and the bound holds.
func TestSlotsAreBoundedAndForgotten(t *testing.T) {
	const most = 50
	p, modes := newSlots(most), []Mode{{}, {Strategy: "a"}, {Strategy: "b"}}
	var taken atomic.Int64
	var crowd sync.WaitGroup
	for range 8 {
		crowd.Go(func() {
			var mine []slot
			for range 5000 {
				if got, err := p.take(rand.Int64N(100), modes[rand.N(len(modes))]); err == nil {
					if now := taken.Add(1); now > most {
						t.Errorf("%d slots are taken of %d", now, most)
					}
					mine = append(mine, got)
				}
				if len(mine) > 0 && rand.N(2) == 0 {
					taken.Add(-1)
					mine[0].release()
					mine = mine[1:]
				}
			}
			taken.Add(int64(-len(mine)))
			releaseAll(mine)
		})
	}
	crowd.Wait()
	if p.taken != 0 || len(p.items) != 0 || len(p.asked) != 0 {
		t.Errorf("%d slots, %d items and %d modes are left", p.taken, len(p.items), len(p.asked))
	}
}
