// Package step holds what is done in experiments: buyers, the admin that
// stocks and audits, and what happens to replicas meanwhile.
package step

import (
	"cmp"
	"context"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/pause"
)

// Sale is a crowd that buys units one by one, each client the next one when it
// has the answer to the last.
type Sale struct {
	Strategy string
	Group    bool
	Fence    bool
	// Replica is where they go, from 1; 0: to the balancer.
	Replica int
	// Clients are how many, 1 where it is 0; First is the number of the first one,
	// where several crowds buy.
	Clients, First int
	// Requests ends the sale after so many, Duration after so long.
	Requests int
	Duration time.Duration
	// Key is an Idempotency-Key that all requests carry.
	Key string
	// Timeout is how long a client waits for an answer; 20 s where it is 0.
	Timeout time.Duration
	// At is where else they go, instead of Replica: a proxy.
	At func(x *scenario.Try) string
}

// patience is longer than any limit of a replica.
const patience = 20 * time.Second

// Sell has the crowd buy, and waits for all answers: those of a paused replica not beyond the end of the try.
func Sell(sale Sale) scenario.Step {
	return func(x *scenario.Try) {
		plan := load.Plan{
			URL: sale.url(x), Strategy: sale.Strategy, Group: sale.Group, Fence: sale.Fence, GoodsID: x.Item,
			Clients: max(1, sale.Clients), Requests: sale.Requests, Duration: sale.Duration,
			Timeout: cmp.Or(sale.Timeout, patience), Key: sale.keys(),
			Observe: func(a load.Answer) { x.Fail(x.History.Add(sale.line(a, x.Item))) },
		}
		done := make(chan error, 1)
		go func() { _, err := load.Run(x, plan); done <- err }()
		select {
		case err := <-done:
			x.Must(err)
		case <-x.Done():
		}
		x.Must(context.Cause(x))
	}
}

// Buy has one client buy one unit.
func Buy(sale Sale) scenario.Step {
	sale.Clients, sale.Requests = 1, 1
	return Sell(sale)
}

// BuyBehind has one client buy at replica 1 and, when that replica has reached its
// failpoint and the steps between are done, another client at replica 2.
func BuyBehind(sale Sale, between ...scenario.Step) scenario.Step {
	first, second := sale, sale
	first.Replica, second.Replica, second.First = 1, 2, 1
	return Meanwhile(Buy(first), InOrder(Reached(1), InOrder(between...), Buy(second)))
}

func (sale Sale) url(x *scenario.Try) string {
	if sale.At != nil {
		return sale.At(x)
	}
	return x.URL(sale.Replica)
}

func (sale Sale) keys() func(int) string {
	if sale.Key == "" {
		return nil
	}
	return func(int) string { return sale.Key }
}

// line is an answer as the history has it.
func (sale Sale) line(a load.Answer, item int64) history.Line {
	return history.Line{Request: &history.Request{
		Start: a.Start, End: a.End, Client: sale.First + a.Client, Strategy: sale.Strategy, GoodsID: item,
		Quantity: 1, Key: a.Key, Outcome: outcomes()[a.Kind], Problem: a.Problem, Order: a.Order,
		Remaining: a.Remaining, Replica: a.Replica, Token: a.Token, Wait: a.Wait, Hold: a.Hold,
	}}
}

func outcomes() map[load.Kind]history.Outcome {
	return map[load.Kind]history.Outcome{load.Sold: history.Sold, load.Rejected: history.Rejected, load.Failed: history.Failed, load.Unknown: history.Unknown}
}

// Stock creates the item of the try with so many units.
func Stock(units int64) scenario.Step {
	return func(x *scenario.Try) { x.Must(x.Client().CreateGoods(x, x.Item, units)) }
}

// Audit writes the audit of the item into the history.
func Audit() scenario.Step {
	return func(x *scenario.Try) {
		audit, err := x.Client().Audit(x, x.Item)
		x.Must(err)
		x.Add(history.Line{Audit: &history.Audit{At: time.Now(), Audit: audit}})
	}
}

// Watching samples the stock and the sales of the item periodically while
// the steps are done.
func Watching(every time.Duration, steps ...scenario.Step) scenario.Step {
	return func(x *scenario.Try) {
		beside(x, func(during context.Context) {
			audit, err := x.Client().AuditNow(during, x.Item)
			if during.Err() != nil {
				return
			}
			x.Must(err)
			x.Add(history.Line{Sample: &history.Sample{At: time.Now(), GoodsID: x.Item, Stock: audit.Stock, Sold: audit.Sold}})
			_ = pause.For(during, every) // what ends it ends the watch
		}, steps...)
	}
}

// beside does something again and again while the steps are done.
func beside(x *scenario.Try, again func(during context.Context), steps ...scenario.Step) {
	during, stop := context.WithCancel(x)
	x.Together(func() {
		defer stop()
		InOrder(steps...)(x)
	}, func() {
		for during.Err() == nil {
			again(during)
		}
	})
}

// LongestRead is the figure of ReadAnother.
const LongestRead = "longest_unrelated_read_ms"

// elsewhere is the distance of the id of an idle item from that of the item sold.
const elsewhere = 1 << 40

// ReadAnother reads an idle item so many times, a tenth of a second apart, and
// records the duration of the longest read.
func ReadAnother(times int) scenario.Step {
	return func(x *scenario.Try) {
		var longest time.Duration
		for range times {
			began := time.Now()
			_, err := x.Client().Goods(x, x.Item+elsewhere)
			x.Must(err)
			longest = max(longest, time.Since(began))
			wait(x, 100*time.Millisecond)
		}
		x.Figure(LongestRead, float64(longest.Microseconds())/1000)
	}
}

// StockAnother creates the idle item.
func StockAnother() scenario.Step {
	return func(x *scenario.Try) { x.Must(x.Client().CreateGoods(x, x.Item+elsewhere, 1)) }
}

// InOrder does one step after the other.
func InOrder(steps ...scenario.Step) scenario.Step {
	return func(x *scenario.Try) {
		for _, step := range steps {
			step(x)
		}
	}
}

// Meanwhile does all of them at the same time, and waits for the last one.
func Meanwhile(steps ...scenario.Step) scenario.Step {
	return func(x *scenario.Try) { x.Each(len(steps), func(i int) { steps[i](x) }) }
}

// Wait lets time pass.
func Wait(d time.Duration) scenario.Step {
	return func(x *scenario.Try) { wait(x, d) }
}

func wait(x *scenario.Try, d time.Duration) { x.Must(pause.For(x, d)) }
