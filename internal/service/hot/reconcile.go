package hot

import (
	"context"
	"fmt"
	"strconv"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/rescue"
)

// Drift compares what Redis may promise of a goods with what the database has.
type Drift struct {
	GoodsID int64 `json:"goods_id"`
	// Installed tells that Redis has a counter that is believed.
	Installed bool `json:"installed"`
	// Redis is what may still be promised, Promised what stands on the stream, and
	// Place what the database has for both.
	Redis    int64 `json:"redis"`
	Promised int64 `json:"promised"`
	Place    int64 `json:"place"`
	// Drift is Redis + Promised − Place: above 0, more may be promised than there
	// is; below, units lie idle. While orders are being settled it is above 0 by
	// those that are in the ledger and still on the stream.
	Drift int64 `json:"drift"`
	Epoch int64 `json:"epoch"`
}

// Promised is how many units of a goods are promised and not in the ledger yet.
// Redis is not asked about goods that were never sold from it.
func (s *Stock) Promised(ctx context.Context, goodsID int64) (int64, error) {
	place, err := s.store.Place(ctx, goodsID, Place)
	if err != nil || place.Epoch == 0 {
		return 0, err
	}
	d, err := s.look(ctx, goodsID)
	return d.Promised, err
}

// Drift looks at a goods.
func (s *Stock) Drift(ctx context.Context, goodsID int64) (Drift, error) {
	place, err := s.store.Place(ctx, goodsID, Place)
	if err != nil {
		return Drift{}, err
	}
	return s.compare(ctx, place)
}

// compare looks at the counter after the place was read. In one epoch the place
// only falls, so that a counter above what was read is above what is there.
func (s *Stock) compare(ctx context.Context, place repo.Place) (Drift, error) {
	d, err := s.look(ctx, place.GoodsID)
	if err != nil {
		return Drift{}, err
	}
	d.Place = place.Units
	if d.Installed {
		d.Drift = d.Redis + d.Promised - d.Place
	}
	if d.Epoch != place.Epoch {
		d.Installed = false // it is being installed at this moment
	}
	return d, nil
}

func (s *Stock) look(ctx context.Context, goodsID int64) (Drift, error) {
	p := s.part(goodsID)
	answer, err := p.call(ctx, s.redis, "look", []string{p.counter(goodsID), p.run()})
	if err != nil {
		return Drift{}, backend("look at the counter", err)
	}
	d, err := readCounter(answer)
	d.GoodsID = goodsID
	return d, backend("look at the counter", err)
}

// readCounter reads what the script shows of a counter: units, promised and epoch, or
// that there is none.
func readCounter(answer any) (d Drift, err error) {
	row, is := answer.([]any)
	if !is || len(row) != 3 {
		return Drift{}, nil
	}
	for i, into := range []*int64{&d.Redis, &d.Promised, &d.Epoch} {
		if *into, err = strconv.ParseInt(fmt.Sprint(row[i]), 10, 64); err != nil {
			return Drift{}, err
		}
	}
	d.Installed = true
	return d, nil
}

// reconcile looks at every goods at intervals until ctx ends.
func (s *Stock) reconcile(ctx context.Context) {
	for pause.For(ctx, s.options.Reconcile) == nil {
		err := rescue.Do(ctx, s.options.Log, "compare counters", func() error { return s.Reconcile(ctx) })
		if err != nil && ctx.Err() == nil {
			s.options.Log.WarnContext(ctx, "counters were not compared", "error", err)
		}
	}
}

// Reconcile looks at every goods that is sold from Redis, reports where Redis and
// the database differ, and repairs it by installing the counter anew: that is
// exact whatever was there. A counter that is too high is replaced at once. One
// that is too low, only where two looks in a row have seen the same and nothing on
// the stream. One of an epoch that is over, when the second look finds that nobody
// installs it: whoever began the next epoch has died, or could not reach Redis.
func (s *Stock) Reconcile(ctx context.Context) error {
	places, err := s.store.Places(ctx, Place)
	if err != nil {
		return err
	}
	var differ int64
	seen := make(map[int64]Drift)
	for _, place := range places {
		d, err := s.compare(ctx, place)
		if err != nil {
			return err
		}
		if d.unexplained() {
			differ += max(d.Drift, -d.Drift)
		}
		switch {
		case !d.Installed && (d.Epoch == 0 || s.before(place.GoodsID) != d):
			seen[place.GoodsID] = d
			continue
		case d.Installed && d.Drift == 0:
			continue
		case !d.Installed, d.Redis > d.Place, d.Promised == 0 && s.before(place.GoodsID) == d:
		default:
			seen[place.GoodsID] = d
			continue
		}
		s.options.Log.WarnContext(ctx, "a counter in Redis had drifted", "goods", d.GoodsID, "redis", d.Redis,
			"promised", d.Promised, "place", d.Place, "drift", d.Drift)
		if err := s.install(ctx, place.GoodsID, 0); err != nil {
			return err
		}
		s.options.Observer.Repaired()
	}
	s.options.Observer.Compared(differ)
	s.remember(seen)
	return nil
}

// unexplained tells that there is a difference which orders that are being settled
// cannot make up.
func (d Drift) unexplained() bool {
	return d.Installed && (d.Redis > d.Place || d.Promised == 0)
}

// before is what the look before this one has seen of a goods.
func (s *Stock) before(goodsID int64) Drift {
	s.looking.Lock()
	defer s.looking.Unlock()
	return s.drifts[goodsID]
}

func (s *Stock) remember(seen map[int64]Drift) {
	s.looking.Lock()
	defer s.looking.Unlock()
	s.drifts = seen
}
