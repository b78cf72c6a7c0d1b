package step

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// Page is the page of an item in Redis: how many units are left, and how many are sold.
// A purchase changes one number after the other.
type Page struct {
	// Read is the lock under which visitors read it, Write that of purchases; empty: none.
	Read, Write string
	// AtOnce has both numbers read by one command, and changed by one transaction.
	AtOnce bool
	// Visitors and Buyers come again after a pause, For so long.
	Visitors, Buyers int
	For              time.Duration
}

const (
	// PageUnits are left and sold together, at any time between two purchases.
	PageUnits = 1_000_000
	// Purchases is a figure of Show: how many were made.
	Purchases = "purchases"
	// purchaseWork is what a purchase does between the two numbers.
	purchaseWork = 2 * time.Millisecond
	betweenPages = 10 * time.Millisecond
)

// Show has visitors read the page while buyers buy. What each visitor saw is recorded.
func Show(p Page) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		client, err := s.Backends.Redis.Client()
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // nothing is lost with it
		on := numbers{client, fmt.Sprintf("stockd:lab:{page/%d}:left", s.Item), fmt.Sprintf("stockd:lab:{page/%d}:sold", s.Item)}
		defer client.Del(context.WithoutCancel(ctx), on.left, on.sold)
		if err := client.MSet(ctx, on.left, PageUnits, on.sold, 0).Err(); err != nil {
			return err
		}
		var made atomic.Int64
		crowd := make([]scenario.Step, 0, p.Visitors+p.Buyers)
		for i := range p.Visitors {
			crowd = append(crowd, p.each(fmt.Sprintf("visitor-%d", i+1), p.Read, func(ctx context.Context) error { return p.visit(ctx, s, on) }))
		}
		for i := range p.Buyers {
			crowd = append(crowd, p.each(fmt.Sprintf("buyer-%d", i+1), p.Write, func(ctx context.Context) error {
				made.Add(1)
				return p.buy(ctx, on)
			}))
		}
		if err := Meanwhile(crowd...)(ctx, s); err != nil {
			return err
		}
		return s.Figure(Purchases, float64(made.Load()))
	}
}

// each does something again and again, under a lock where there is one.
func (p Page) each(who, kind string, do func(context.Context) error) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		locker, err := p.locker(s, who, kind)
		if err != nil {
			return err
		}
		for end := time.Now().Add(p.For); time.Now().Before(end); {
			if err := under(ctx, locker, name(s), do); err != nil {
				return err
			}
			if err := pause.About(ctx, betweenPages); err != nil {
				return err
			}
		}
		return nil
	}
}

// locker is nil where there is no lock.
func (Page) locker(s *scenario.Environment, who, kind string) (lock.Locker, error) {
	if kind == "" {
		return nil, nil
	}
	_, locker, err := contend(s, who, kind, []scenario.Need{scenario.Redis})
	return locker, err
}

// under does something under a lock, or without one where it is nil.
func under(ctx context.Context, l lock.Locker, name string, do func(context.Context) error) error {
	if l == nil {
		return do(ctx)
	}
	lease, err := takeWithin(ctx, l, name, patience)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx), lease.Release(context.WithoutCancel(ctx)))
}

// numbers are the keys of a page.
type numbers struct {
	client     *redis.Client
	left, sold string
}

// read reads some of them by one command.
func (n numbers) read(ctx context.Context, keys ...string) (values []int64, err error) {
	found, err := n.client.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, err
	}
	values = make([]int64, len(found))
	for i, one := range found {
		if values[i], err = strconv.ParseInt(fmt.Sprint(one), 10, 64); err != nil {
			return nil, fmt.Errorf("read %s: %w", keys[i], err)
		}
	}
	return values, nil
}

func (p Page) visit(ctx context.Context, s *scenario.Environment, on numbers) error {
	steps := [][]string{{on.left}, {on.sold}}
	if p.AtOnce {
		steps = [][]string{{on.left, on.sold}}
	}
	var seen []int64
	for _, keys := range steps {
		values, err := on.read(ctx, keys...)
		if err != nil {
			return err
		}
		seen = append(seen, values...)
	}
	return s.History.Add(history.Line{Sample: &history.Sample{At: time.Now(), GoodsID: s.Item, Stock: seen[0], Sold: seen[1]}})
}

func (p Page) buy(ctx context.Context, on numbers) error {
	if p.AtOnce {
		_, err := on.client.TxPipelined(ctx, func(both redis.Pipeliner) error {
			return errors.Join(both.Decr(ctx, on.left).Err(), both.Incr(ctx, on.sold).Err())
		})
		return err
	}
	if err := on.client.Decr(ctx, on.left).Err(); err != nil {
		return err
	}
	if err := pause.For(ctx, purchaseWork); err != nil {
		return err
	}
	return on.client.Incr(ctx, on.sold).Err()
}
