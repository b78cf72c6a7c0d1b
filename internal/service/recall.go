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
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/rescue"
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
// rows. All callers on this replica who want the same share one recall.
type recaller struct {
	store    *repo.Store
	services map[string]*Service // by the name of the strategy
	flights  singleflight.Group
	log      *slog.Logger
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
		err := rescue.Do(own, r.log, "recall units", func() error { return r.each(own, &recalled, but) })
		return recalled, err
	})
	select {
	case result := <-flight:
		recalled, _ := result.Val.(RecalledItem)
		return recalled, result.Err
	case <-ctx.Done():
		return RecalledItem{}, fmt.Errorf("recall the units of goods %d: %w", goodsID, context.Cause(ctx))
	}
}

func (r *recaller) each(ctx context.Context, recalled *RecalledItem, but string) error {
	names, err := r.store.Allocators(ctx, recalled.GoodsID)
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
	if s, ok := r.services[name]; ok {
		if allocator, ok := s.bare.(strategy.Allocator); ok {
			return allocator.Recall(ctx, goodsID)
		}
	}
	return stock.Recalled{}, &stock.BackendError{Backend: name, Err: errors.New("this replica does not know the allocation")}
}

// recallTries bounds how often a purchase is offered for which units are recalled: other
// purchases may take them in between, or another strategy moves them again.
const recallTries = 20

// offer offers a purchase to the strategy, and again when what was in the way of it is
// recalled from the allocations of other strategies.
func (s *Service) offer(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	var vain vainRecalls
	for try := range recallTries {
		outcome, err := s.once(ctx, goodsID, p)
		short, ok := errors.AsType[*stock.AllocatedError](outcome.Refused)
		if err != nil || !ok {
			return outcome, err
		}
		if vain.prove(short) {
			return stock.Outcome{Refused: stock.ErrInsufficientStock}, nil
		}
		recalled, err := s.recalls.recall(ctx, goodsID, s.entry.Name)
		if errors.Is(err, stock.ErrUnknownOutcome) { // of the recall: nothing of the purchase was sent
			continue
		}
		if err != nil && recalled.Returned == 0 { // otherwise another backend had what may suffice
			return stock.Outcome{}, err
		}
		if vain.add(short, recalled); recalled.Returned > 0 {
			continue
		}
		if err := pause.For(ctx, time.Duration(try)*time.Millisecond); err != nil {
			return stock.Outcome{}, fmt.Errorf("recall the units of goods %d: %w", goodsID, err)
		}
	}
	return stock.Outcome{}, fmt.Errorf("%w: the units of goods %d are moved all the time", stock.ErrBusy, goodsID)
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
