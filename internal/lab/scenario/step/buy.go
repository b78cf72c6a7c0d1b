// Package step holds what is done in experiments: buyers, the admin that
// stocks and audits, and what happens to replicas meanwhile.
package step

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/stock"
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
	At func(s *scenario.Environment) string
}

// patience is longer than any limit of a replica.
const patience = 20 * time.Second

// Sell has the crowd buy, and waits for all answers.
func Sell(sale Sale) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		writing := &recorder{history: s.History, sale: sale, item: s.Item}
		plan := load.Plan{
			URL: sale.url(s), Strategy: sale.Strategy, Group: sale.Group, Fence: sale.Fence, GoodsID: s.Item,
			Clients: max(1, sale.Clients), Requests: sale.Requests, Duration: sale.Duration,
			Timeout: cmp.Or(sale.Timeout, patience), Key: sale.keys(), Observe: writing.answer,
		}
		if err := untilEnd(ctx, func() error { _, err := load.Run(ctx, plan); return err }); err != nil {
			return err
		}
		return writing.err()
	}
}

// untilEnd runs do, which cannot be cancelled, and abandons it when ctx ends: the
// answer of a paused replica may take long.
func untilEnd(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return errors.Join(err, context.Cause(ctx))
	case <-ctx.Done():
		return context.Cause(ctx)
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

func (sale Sale) url(s *scenario.Environment) string {
	if sale.At != nil {
		return sale.At(s)
	}
	return s.URL(sale.Replica)
}

func (sale Sale) keys() func(int) string {
	if sale.Key == "" {
		return nil
	}
	return func(int) string { return sale.Key }
}

// recorder writes answers into the history. It remembers the first failure: the
// senders cannot do anything about it.
type recorder struct {
	history *history.Writer
	sale    Sale
	item    int64
	failed  atomic.Pointer[error]
}

func (r *recorder) answer(a load.Answer) {
	line := history.Line{Request: &history.Request{
		Start: a.Start, End: a.End, Client: r.sale.First + a.Client, Strategy: r.sale.Strategy, GoodsID: r.item,
		Quantity: 1, Key: a.Key, Outcome: outcomeOf(a.Kind), Problem: a.Problem, Order: a.Order,
		Remaining: a.Remaining, Replica: a.Replica, Token: a.Token, Wait: a.Wait, Hold: a.Hold,
	}}
	if err := r.history.Add(line); err != nil {
		r.failed.CompareAndSwap(nil, &err)
	}
}

func (r *recorder) err() error {
	if failed := r.failed.Load(); failed != nil {
		return errors.Join(*failed)
	}
	return nil
}

func outcomeOf(k load.Kind) history.Outcome {
	switch k {
	case load.Sold:
		return history.Sold
	case load.Rejected:
		return history.Rejected
	case load.Failed:
		return history.Failed
	case load.Unknown:
	}
	return history.Unknown
}

// Stock creates the item of the try with so many units.
func Stock(units int64) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		return s.Client().CreateGoods(ctx, s.Item, units)
	}
}

// Audit writes the audit of the item into the history.
func Audit() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		audit, err := s.Client().Audit(ctx, s.Item)
		if err != nil {
			return err
		}
		return s.History.Add(history.Line{Audit: &history.Audit{At: time.Now(), Audit: audit}})
	}
}

// Watching samples the stock and the sales of the item periodically while
// the steps are done.
func Watching(every time.Duration, steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		watched, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- watch(watched, s, every) }()
		err := InOrder(steps...)(ctx, s)
		stop()
		if watchErr := <-done; err == nil {
			err = watchErr
		}
		return err
	}
}

func watch(ctx context.Context, s *scenario.Environment, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		audit, err := s.Client().AuditNow(ctx, s.Item)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.History.Add(sampleOf(s.Item, audit)); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func sampleOf(item int64, a stock.Audit) history.Line {
	return history.Line{Sample: &history.Sample{At: time.Now(), GoodsID: item, Stock: a.Stock, Sold: a.Sold}}
}

// LongestRead is the figure of ReadAnother.
const LongestRead = "longest_unrelated_read_ms"

// elsewhere is the distance of the id of an idle item from that of the item sold.
const elsewhere = 1 << 40

// ReadAnother reads an idle item so many times, a tenth of a second apart, and
// records the duration of the longest read.
func ReadAnother(times int) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		var longest time.Duration
		for range times {
			began := time.Now()
			if _, err := s.Client().Goods(ctx, s.Item+elsewhere); err != nil {
				return err
			}
			longest = max(longest, time.Since(began))
			if err := Wait(100*time.Millisecond)(ctx, s); err != nil {
				return err
			}
		}
		return s.Figure(LongestRead, float64(longest.Microseconds())/1000)
	}
}

// StockAnother creates the idle item.
func StockAnother() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		return s.Client().CreateGoods(ctx, s.Item+elsewhere, 1)
	}
}

// InOrder does one step after the other.
func InOrder(steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		for _, step := range steps {
			if err := step(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// Meanwhile does all of them at the same time, and waits for the last one.
func Meanwhile(steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, step := range steps {
			group.Go(func() error { return step(ctx, s) })
		}
		return group.Wait()
	}
}

// Wait lets time pass.
func Wait(d time.Duration) scenario.Step {
	return func(ctx context.Context, _ *scenario.Environment) error { return pause.For(ctx, d) }
}
