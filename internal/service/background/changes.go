package background

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// Changes are the changes of items on one replica: those in progress, and those that failed last. Nil keeps none.
type Changes struct {
	mu    sync.Mutex
	items map[int64][]*ongoing
}

// ongoing is a change that has not succeeded since.
type ongoing struct {
	stock.Change
	running int // attempts; 0: it failed
}

// Run makes a change. It is in progress until work returns, and then gone, or failed until it is made again.
func (c *Changes) Run(goodsID int64, change stock.Change, work func() error) error {
	if c == nil {
		return work()
	}
	c.begin(goodsID, change)
	err := ErrPanicked
	defer func() { c.end(goodsID, change.Kind, err) }()
	err = work()
	return err
}

func (c *Changes) begin(goodsID int64, change stock.Change) {
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
		change.State, change.Since = stock.ChangeInProgress, time.Now().UTC()
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
		of.State, of.Since, of.Err = stock.ChangeFailed, time.Now().UTC(), err
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

// Of lists the changes of an item, in any order.
func (c *Changes) Of(goodsID int64) (list []stock.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.items[goodsID] {
		list = append(list, o.Change)
	}
	return list
}
