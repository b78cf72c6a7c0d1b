package experiments

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/stock"
)

// Sale is a crowd that buys units one by one, each client the next one when it has the answer to the last.
type Sale struct {
	Strategy     string
	Group, Fence bool
	// Item is what they buy; 0: that of the try.
	Item int64
	// Replica is where they go, from 1; 0: to the balancer. URL is where else they go: to a proxy.
	Replica int
	URL     string
	// Clients are how many, 1 where it is 0; FirstClient is the number of the first one, where several crowds buy.
	Clients, FirstClient int
	// Requests ends the sale after so many, Duration after so long.
	Requests int
	Duration time.Duration
	// Key is an Idempotency-Key that all requests carry.
	Key string
}

// patience is longer than any limit of a replica.
const patience = 20 * time.Second

// stock creates the item of the try with so many units.
func (x *Try) stock(units int64) { x.Must(x.Client().CreateGoods(x, x.Item, units)) }

// sell has the crowd buy, and waits for all answers: those of a paused replica not beyond the end of the try.
func (x *Try) sell(sale Sale) {
	sale.Item = cmp.Or(sale.Item, x.Item)
	plan := load.Plan{
		URL: cmp.Or(sale.URL, x.URL(sale.Replica)), Strategy: sale.Strategy, Group: sale.Group, Fence: sale.Fence, GoodsID: sale.Item,
		Clients: max(1, sale.Clients), Requests: sale.Requests, Duration: sale.Duration, Timeout: patience,
		Observe: func(a load.Answer) { x.Fail(x.History.Add(sale.line(a))) },
	}
	if sale.Key != "" {
		plan.Key = func(int) string { return sale.Key }
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

// buy has one client buy one unit at a replica, from 1. It has a number of its own for each replica.
func (x *Try) buy(replica int, sale Sale) {
	sale.Replica, sale.FirstClient, sale.Clients, sale.Requests = replica, replica-1, 1, 1
	x.sell(sale)
}

// line is an answer as the history has it.
func (sale Sale) line(a load.Answer) history.Line {
	outcomes := map[load.Kind]history.Outcome{load.Sold: history.Sold, load.Rejected: history.Rejected, load.Failed: history.Failed, load.Unknown: history.Unknown}
	return history.Line{Request: &history.Request{
		Start: a.Start, End: a.End, Client: sale.FirstClient + a.Client, Strategy: sale.Strategy, GoodsID: sale.Item,
		Quantity: 1, Key: a.Key, Outcome: outcomes[a.Kind], Problem: a.Problem, Order: a.Order,
		Remaining: a.Remaining, Replica: a.Replica, Token: a.Token, Wait: a.Wait, Hold: a.Hold,
	}}
}

// audit writes the audit of the item into the history.
func (x *Try) audit() { x.auditBy(x.Client(), x.Item) }

// auditBy is the audit of any item, by a replica that has it.
func (x *Try) auditBy(c shop.Client, item int64) stock.Audit {
	audit, err := c.Audit(x, item)
	x.Must(err)
	x.Add(history.Line{Audit: &history.Audit{At: time.Now(), Audit: audit}})
	return audit
}

// watching samples the stock and the sales of the item ten times a second while something is done.
func (x *Try) watching(do func()) {
	x.meanwhile(do, func(during context.Context) {
		audit, err := x.Client().AuditNow(during, x.Item)
		if during.Err() != nil {
			return
		}
		x.Must(err)
		x.Add(history.Line{Sample: &history.Sample{At: time.Now(), GoodsID: x.Item, Stock: audit.Stock, Sold: audit.Sold}})
		_ = pause.For(during, 100*time.Millisecond) // what ends it ends the watch
	})
}

// meanwhile does something again and again while something else is done.
func (x *Try) meanwhile(do func(), again func(during context.Context)) {
	during, stop := context.WithCancel(x)
	x.Together(func() {
		defer stop()
		do()
	}, func() {
		for during.Err() == nil {
			again(during)
		}
	})
}

// sleep lets time pass.
func (x *Try) sleep(d time.Duration) { x.Must(pause.For(x, d)) }

// lockName is the name for which contenders ask in this try.
func (x *Try) lockName() string { return fmt.Sprintf("lab/%d", x.Item) }

// itemName is that of one of several items.
func (x *Try) itemName(item int) string { return fmt.Sprintf("%s/%d", x.lockName(), item) }
