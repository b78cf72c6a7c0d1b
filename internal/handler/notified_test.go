package handler_test

import (
	"maps"
	"sync"
	"testing"

	"github.com/stockd/stockd/internal/handler"
)

// noted counts what an observer is notified of.
type noted struct {
	mu     sync.Mutex
	counts map[string]int
}

func (n *noted) note(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts[what]++
}

func (n *noted) Began(listener string)        { n.note("began " + listener) }
func (n *noted) Ended(_, route string, _ int) { n.note("ended " + route) }
func (n *noted) Shed(full string)             { n.note("shed " + full) }
func (n *noted) RateLimited(by string)        { n.note("limited by " + by) }
func (n *noted) Panicked()                    { n.note("panicked") }
func (n *noted) seen() map[string]int         { n.mu.Lock(); defer n.mu.Unlock(); return maps.Clone(n.counts) }
func observed() (o *noted)                    { return &noted{counts: make(map[string]int)} }

func TestEachRejectionIsNotifiedOnceByItsLimit(t *testing.T) {
	for want, limits := range map[string]handler.Limits{
		"limited by user":    {User: handler.Rate{PerSecond: onceOnly, Burst: 1}},
		"limited by address": {Address: handler.Rate{PerSecond: onceOnly, Burst: 1}},
	} {
		n := observed()
		a := serveSQLite(t).with(t, func(o *handler.Options) { o.Limits = limits; o.Observer = n })
		for range 3 {
			a.buy(t, "goods_id=1&user_id=u-1")
		}
		if got := n.seen(); got[want] != 2 || len(got) != 3 || got["began public"] != 3 || got["ended /deduct"] != 3 {
			t.Errorf("one purchase and two beyond the rate: %v, want %s twice", got, want)
		}
	}
}

func TestAShedPurchaseIsNotifiedByWhatIsFull(t *testing.T) {
	for _, c := range []struct {
		item, slots int
		want        string
		times       int // of 40 purchases
	}{{1, 1, "shed replica", 39}, {3, 24, "shed item", 28}, {1, 24, "shed strategy", 34}} {
		n := observed()
		_, _, release := serveFlooded(t, c.item, func(o *handler.Options) { o.MaxDeductions = c.slots; o.Observer = n })
		release()
		if got := n.seen(); got[c.want] != c.times || got["shed replica"]+got["shed item"]+got["shed strategy"] != c.times {
			t.Errorf("40 purchases of item %d for %d slots: %v, want %s %d times", c.item, c.slots, got, c.want, c.times)
		}
	}
}
