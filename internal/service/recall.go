package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// RecalledItem is what came of the recall of an item, in all allocations together.
type RecalledItem struct {
	GoodsID int64 `json:"goods_id"`
	stock.Recalled

	// Allocations are those that had units, or pending orders.
	Allocations []RecalledAllocation `json:"allocations"`
}

// RecalledAllocation is what came of the recall of one allocation.
type RecalledAllocation struct {
	Strategy string `json:"strategy"`
	stock.Recalled
}

// recaller moves the units of items from the allocations of strategies back into their
// rows. All callers on this replica that want the same share one recall.
type recaller struct {
	// holders lists the strategies that hold units of an item outside of its row.
	holders func(ctx context.Context, goodsID int64) ([]string, error)
	offers  map[string]*offer // by the name of the strategy
	flights singleflight.Group
	log     *slog.Logger
	changes *background.Changes
}

// recallWithin bounds a recall, which goes on when its callers have left.
const recallWithin = 10 * time.Second

// recall recalls what an item has in all allocations but that of one strategy, or of none
// where that is empty. stock.ErrBackendUnavailable: a backend that holds units does not
// answer; what other allocations had is back. Where ctx ends, the recall goes on.
func (r *recaller) recall(ctx context.Context, goodsID int64, but string) (RecalledItem, error) {
	flight := r.flights.DoChan(strconv.FormatInt(goodsID, 10)+" "+but, func() (any, error) {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), recallWithin)
		defer cancel()
		recalled := RecalledItem{GoodsID: goodsID, Allocations: []RecalledAllocation{}}
		err := r.changes.Run(goodsID, stock.Change{Kind: stock.ChangeByRecall}, func() error {
			return background.Guard(own, r.log, "recall units", func() error { return r.each(own, &recalled, but) })
		})
		return recalled, err
	})
	select {
	case result := <-flight:
		recalled, _ := result.Val.(RecalledItem)
		return recalled, result.Err
	case <-ctx.Done():
		return RecalledItem{}, fmt.Errorf("recall the units of item %d: %w", goodsID, context.Cause(ctx))
	}
}

func (r *recaller) each(ctx context.Context, recalled *RecalledItem, but string) error {
	names, err := r.holders(ctx, recalled.GoodsID)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if name == but {
			continue
		}
		one, err := r.one(ctx, recalled.GoodsID, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("recall the units of %s: %w", name, err))
			continue
		}
		recalled.Returned += one.Returned
		recalled.Pending += one.Pending
		recalled.Allocations = append(recalled.Allocations, RecalledAllocation{name, one})
	}
	return errors.Join(errs...)
}

func (r *recaller) one(ctx context.Context, goodsID int64, name string) (stock.Recalled, error) {
	if o, ok := r.offers[name]; ok {
		if allocator, ok := o.strategy.(strategy.Allocator); ok {
			return allocator.Recall(ctx, goodsID)
		}
	}
	return stock.Recalled{}, &stock.BackendError{Backend: name, Err: errors.New("this replica does not know the allocation")}
}

// recallFor recalls the units that a purchase or a correction is short of, for another try: after a pause where nothing
// came back.
func (r *recaller) recallFor(ctx context.Context, goodsID int64, but string, short *stock.AllocatedError, vain *vainRecalls, try int) error {
	recalled, err := r.recall(ctx, goodsID, but)
	switch {
	case errors.Is(err, stock.ErrUnknownOutcome): // of the recall: nothing of what it is for was sent
		return nil
	case err != nil && recalled.Returned == 0: // otherwise another backend had what may suffice
		return err
	}
	if vain.add(short, recalled); recalled.Returned > 0 {
		return nil
	}
	if err := pause.For(ctx, time.Duration(try)*time.Millisecond); err != nil {
		return fmt.Errorf("recall the units of item %d: %w", goodsID, err)
	}
	return nil
}

// vainRecalls are recalls in a row that returned nothing, while nothing was moved between
// the row and the allocations.
type vainRecalls struct {
	first   *stock.AllocatedError // the rejection before the first of them
	count   int
	pending int64 // found by the last of them
}

// add counts a recall that followed a rejection.
func (v *vainRecalls) add(short *stock.AllocatedError, recalled RecalledItem) {
	if recalled.Returned > 0 {
		*v = vainRecalls{}
		return
	}
	if v.first == nil || v.first.Version != short.Version {
		*v = vainRecalls{first: short}
	}
	v.count++
	v.pending = recalled.Pending
}

// prove reports whether a rejection that follows the recalls is final: all that is
// allocated is pending. The first recall may have begun before the purchase, for another
// one; the second began after the first had ended.
func (v *vainRecalls) prove(short *stock.AllocatedError) bool {
	return v.count >= 2 && short.Version == v.first.Version && short.Units <= v.pending
}
