package redisstock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
)

// Drift compares what Redis may accept of an item with what the database has.
type Drift struct {
	GoodsID int64 `json:"goods_id"`
	// Loaded: Redis has a counter of the present epoch.
	Loaded bool `json:"installed"`
	// Redis is what may still be accepted, Pending what is on the stream, and Allocation
	// what the database has for both.
	Redis      int64 `json:"redis"`
	Pending    int64 `json:"promised"`
	Allocation int64 `json:"place"`
	// Drift is Redis + Pending − Allocation: above 0, more may be accepted than there
	// is; below, units are idle. While orders are being settled it is above 0 by those
	// that are in the ledger and still on the stream.
	Drift int64 `json:"drift"`
	Epoch int64 `json:"epoch"`
	// Closed: nothing is sold from Redis until the next purchase there. What it has beside
	// Pending is on its way back into the row.
	Closed bool `json:"closed,omitempty"`
	// Rebuilding is the progress of the rebuild of the counter, where there is one.
	Rebuilding *Rebuilding `json:"rebuilding,omitempty"`
}

// Rebuilding is the state of a rebuild of a counter, whichever replica works at it.
type Rebuilding struct {
	Epoch int64 `json:"epoch"`
	// Users are staged so far, of an item with a limit.
	Users int64 `json:"users"`
}

// Pending is how many units of an item are accepted and not in the ledger yet. Redis is
// not asked about items that were never sold from it. stock.ErrBackendUnavailable: it is unknown,
// because Redis does not answer, or has no counter of units that the database has allocated to it.
func (s *Stock) Pending(ctx context.Context, goodsID int64) (int64, error) {
	place, err := s.store.Allocation(ctx, goodsID, Allocation)
	if err != nil || place.Epoch == 0 || isHome(place) {
		return 0, err
	}
	d, err := s.look(ctx, goodsID)
	if err == nil && !d.Loaded && place.Units > 0 {
		err = failed("count pending units", errNoCounter)
	}
	return d.Pending, err
}

var errNoCounter = errors.New("there is no counter")

// Drift looks at an item.
func (s *Stock) Drift(ctx context.Context, goodsID int64) (Drift, error) {
	place, err := s.store.Allocation(ctx, goodsID, Allocation)
	if err != nil {
		return Drift{}, err
	}
	d, err := s.compare(ctx, place)
	if err == nil && !isHome(place) {
		d.Rebuilding, err = s.rebuilding(ctx, goodsID)
	}
	return d, err
}

// rebuilding is the state of the rebuild of a counter, or nil where there is none.
func (s *Stock) rebuilding(ctx context.Context, goodsID int64) (*Rebuilding, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var state struct {
		Epoch int64 `redis:"next_epoch"`
		Users int64 `redis:"next_staged"`
	}
	err := s.redis.HMGet(ctx, s.part(goodsID).counter(goodsID), "next_epoch", "next_staged").Scan(&state)
	if err != nil || state.Epoch == 0 {
		return nil, failed("look at the rebuild", err)
	}
	return &Rebuilding{Epoch: state.Epoch, Users: state.Users}, nil
}

// compare looks at the counter after the place was read. In one epoch the place
// only falls, so that a counter above what was read is above what is there.
func (s *Stock) compare(ctx context.Context, place repo.Allocation) (Drift, error) {
	if isHome(place) {
		return Drift{GoodsID: place.GoodsID, Epoch: place.Epoch, Closed: true}, nil
	}
	d, err := s.look(ctx, place.GoodsID)
	if err != nil {
		return Drift{}, err
	}
	d.Allocation, d.Closed = place.Units, place.Closed
	if d.Loaded {
		d.Drift = d.Redis + d.Pending - d.Allocation
	}
	if d.Epoch != place.Epoch {
		d.Loaded = false // it is being installed at this moment
	}
	return d, nil
}

func (s *Stock) look(ctx context.Context, goodsID int64) (Drift, error) {
	p := s.part(goodsID)
	answer, err := s.ask(ctx, "look", []string{p.counter(goodsID), p.orders()})
	if err != nil {
		return Drift{}, failed("look at the counter", err)
	}
	d, err := readCounter(answer)
	d.GoodsID = goodsID
	return d, failed("look at the counter", err)
}

// readCounter reads what the script shows of a counter: units, pending units and epoch, or
// that there is none.
func readCounter(answer any) (d Drift, err error) {
	row, ok := answer.([]any)
	if !ok || len(row) != 3 {
		return Drift{}, nil
	}
	for i, into := range []*int64{&d.Redis, &d.Pending, &d.Epoch} {
		if *into, err = strconv.ParseInt(fmt.Sprint(row[i]), 10, 64); err != nil {
			return Drift{}, err
		}
	}
	d.Loaded = true
	return d, nil
}

// reconcile looks at every item at intervals until ctx ends.
func (s *Stock) reconcile(ctx context.Context) {
	for pause.For(ctx, s.options.Reconcile) == nil {
		err := background.Guard(ctx, s.options.Log, "compare counters", func() error { return s.Reconcile(ctx) })
		if err != nil && ctx.Err() == nil {
			s.options.Log.WarnContext(ctx, "counters were not compared", "error", err)
		}
	}
}

// repairPatience is how long a look at all counters waits for the rebuild of one, which
// goes on in the background.
const repairPatience = 5 * time.Second

// Reconcile looks at every item that is sold from Redis, reports where Redis and the
// database differ, and repairs it by rebuilding the counter: that is exact whatever was
// there. A recall that did not end is ended. A counter that is too high, or absent, is
// rebuilt at once. One that is too low,
// only where two looks in a row have seen the same and nothing on the stream. One of an
// epoch that is over, when the second look finds that no replica rebuilds it.
//
// An item that fails does not keep the others from being looked at: their errors are
// joined. Of a partition whose server does not answer, one item is asked.
func (s *Stock) Reconcile(ctx context.Context) error {
	s.looking.Lock()
	defer s.looking.Unlock()
	bounded, cancel := context.WithTimeout(ctx, stepWithin)
	places, err := s.store.Allocations(bounded, Allocation)
	cancel()
	if err != nil {
		return err
	}
	var differ int64
	var errs []error
	seen := make(map[int64]Drift)
	silent := make(map[*partition]bool)
	for _, place := range places {
		if ctx.Err() != nil {
			break
		}
		if silent[s.part(place.GoodsID)] {
			continue
		}
		d, err := s.compare(ctx, place)
		if err != nil {
			silent[s.part(place.GoodsID)] = !isAnswer(err)
			errs = append(errs, fmt.Errorf("item %d: %w", place.GoodsID, err))
			continue
		}
		if d.unexplained() {
			differ += max(d.Drift, -d.Drift)
		}
		if !d.needsRebuild(s.drifts[place.GoodsID]) {
			seen[place.GoodsID] = d
			continue
		}
		if err := s.repair(ctx, place, d); err != nil {
			errs = append(errs, fmt.Errorf("item %d: %w", place.GoodsID, err))
		}
	}
	s.options.Observer.Compared(differ)
	s.drifts = seen
	return errors.Join(errs...)
}

// repair rebuilds the counter of an item after a look at it, or ends its recall.
func (s *Stock) repair(ctx context.Context, place repo.Allocation, d Drift) error {
	if d.Closed {
		bounded, cancel := context.WithTimeout(ctx, repairPatience)
		defer cancel()
		_, err := s.Recall(bounded, place.GoodsID)
		return err
	}
	if d.Loaded && d.Drift < 0 { // a replica may have died before it added what came back
		if added, err := s.added(ctx, place.GoodsID); added || err != nil {
			return err
		}
	}
	s.options.Log.WarnContext(ctx, "a counter in Redis had drifted", "goods", d.GoodsID, "redis", d.Redis,
		"pending", d.Pending, "allocation", d.Allocation, "drift", d.Drift)
	if err := s.counterSoon(ctx, place.GoodsID, max(place.Epoch-1, d.Epoch), repairPatience); err != nil {
		return err
	}
	s.options.Observer.Repaired()
	return nil
}

// needsRebuild judges a look at a counter by the one before it.
func (d Drift) needsRebuild(before Drift) bool {
	switch {
	case d.Closed && d.Allocation == 0:
		return false // no counter is needed
	case !d.Loaded:
		return d.Epoch == 0 || before == d
	case d.Closed:
		return d.Pending < d.Allocation
	case d.Drift == 0:
		return false
	default:
		return d.Redis > d.Allocation || d.Pending == 0 && before == d
	}
}

// unexplained reports a difference which orders that are being settled
// cannot make up.
func (d Drift) unexplained() bool {
	return d.Loaded && (d.Redis > d.Allocation || d.Pending == 0)
}
