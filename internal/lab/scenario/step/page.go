package step

import (
	"context"
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
	return func(x *scenario.Try) {
		client := redisOf(x)
		on := numbers{client, fmt.Sprintf("stockd:lab:{page/%d}:left", x.Item), fmt.Sprintf("stockd:lab:{page/%d}:sold", x.Item)}
		defer client.Del(context.WithoutCancel(x), on.left, on.sold)
		x.Must(client.MSet(x, on.left, PageUnits, on.sold, 0).Err())
		var made atomic.Int64
		x.Each(p.Visitors+p.Buyers, func(i int) {
			if i < p.Visitors {
				p.again(x, fmt.Sprintf("visitor-%d", i+1), p.Read, func() { p.visit(x, on) })
				return
			}
			p.again(x, fmt.Sprintf("buyer-%d", i-p.Visitors+1), p.Write, func() {
				made.Add(1)
				p.buy(x, on)
			})
		})
		x.Figure(Purchases, float64(made.Load()))
	}
}

// again does something again and again, under a lock where there is one.
func (p Page) again(x *scenario.Try, who, kind string, do func()) {
	var locker lock.Locker
	if kind != "" {
		locker = x.Contend(who, scenario.Redis).Locker(kind)
	}
	for end := time.Now().Add(p.For); time.Now().Before(end); {
		under(x, locker, do)
		x.Must(pause.About(x, betweenPages))
	}
}

// numbers are the keys of a page.
type numbers struct {
	client     *redis.Client
	left, sold string
}

// read reads some of them by one command.
func (n numbers) read(x *scenario.Try, keys ...string) (values []int64) {
	found, err := n.client.MGet(x, keys...).Result()
	x.Must(err)
	for _, one := range found {
		value, err := strconv.ParseInt(fmt.Sprint(one), 10, 64)
		x.Must(err)
		values = append(values, value)
	}
	return values
}

func (p Page) visit(x *scenario.Try, on numbers) {
	var seen []int64
	if p.AtOnce {
		seen = on.read(x, on.left, on.sold)
	} else {
		seen = append(on.read(x, on.left), on.read(x, on.sold)...)
	}
	x.Add(history.Line{Sample: &history.Sample{At: time.Now(), GoodsID: x.Item, Stock: seen[0], Sold: seen[1]}})
}

func (p Page) buy(x *scenario.Try, on numbers) {
	if p.AtOnce {
		_, err := on.client.TxPipelined(x, func(both redis.Pipeliner) error {
			both.Decr(x, on.left)
			both.Incr(x, on.sold)
			return nil
		})
		x.Must(err)
		return
	}
	x.Must(on.client.Decr(x, on.left).Err())
	wait(x, purchaseWork)
	x.Must(on.client.Incr(x, on.sold).Err())
}
