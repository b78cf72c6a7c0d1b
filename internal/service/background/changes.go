package background

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// The kinds of changes of an item.
const (
	Limit        = "limit"         // a limit of one buyer is set
	Recall       = "recall"        // units move from allocations back into the row
	Notice       = "redis-notice"  // redis-stock is notified of a restock or a limit
	RedisCounter = "redis-counter" // redis-stock stages the units of an item
	RedisCopy    = "redis-copy"    // another strategy copies the units to Redis
	UnitRows     = "unit-rows"     // sql-unit makes rows of units
)

// The states of a change.
const (
	InProgress = "in-progress" // on this replica
	Failed     = "failed"      // on this replica, and not made again since
	Unfinished = "unfinished"  // by the marks in the database: on another replica, or cut off
)

// Change is a change of an item that may outlast the request that began it.
type Change struct {
	Kind, State string
	Since       time.Time // its begin, or its failure; zero: unknown
	PerUser     int64     // of a Limit
	Err         error     // of a failure
}

// Changes are the changes of items on one replica: those in progress, and those that failed last. Nil keeps none.
type Changes struct {
	mu    sync.Mutex
	items map[int64][]*ongoing
}

// ongoing is a change that has not succeeded since.
type ongoing struct {
	Change
	running int // attempts; 0: it failed
}

// Run makes a change. It is in progress until work returns, and then gone, or failed until it is made again.
func (c *Changes) Run(goodsID int64, change Change, work func() error) error {
	if c == nil {
		return work()
	}
	c.begin(goodsID, change)
	err := ErrPanicked
	defer func() { c.end(goodsID, change.Kind, err) }()
	err = work()
	return err
}

func (c *Changes) begin(goodsID int64, change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items == nil {
		c.items = make(map[int64][]*ongoing)
	}
	of := c.find(goodsID, change.Kind)
	if of == nil {
		of = &ongoing{}
		c.items[goodsID] = append(c.items[goodsID], of)
	}
	if of.running++; of.running == 1 {
		change.State, change.Since = InProgress, time.Now().UTC()
		of.Change = change
	}
	of.PerUser = change.PerUser
}

func (c *Changes) end(goodsID int64, kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.find(goodsID, kind)
	of.running--
	switch {
	case of.running > 0: // the last attempt decides
	case err == nil, errors.Is(err, stock.ErrUnknownGoods):
		c.items[goodsID] = slices.DeleteFunc(c.items[goodsID], func(o *ongoing) bool { return o == of })
		if len(c.items[goodsID]) == 0 {
			delete(c.items, goodsID)
		}
	default:
		of.State, of.Since, of.Err = Failed, time.Now().UTC(), err
	}
}

func (c *Changes) find(goodsID int64, kind string) *ongoing {
	for _, o := range c.items[goodsID] {
		if o.Kind == kind {
			return o
		}
	}
	return nil
}

// Of lists the changes of an item by their kinds.
func (c *Changes) Of(goodsID int64) (list []Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.items[goodsID] {
		list = append(list, o.Change)
	}
	slices.SortFunc(list, func(a, b Change) int { return strings.Compare(a.Kind, b.Kind) })
	return list
}
