package hot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service/rescue"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// fillWithin bounds one filling of a counter.
	fillWithin = 5 * time.Second
	// fillAlone is how long others leave it to the replica that has begun.
	fillAlone = 2 * time.Second
	// fillLook is the pause of those who wait for it.
	fillLook = 3 * time.Millisecond
	// fillTries bounds how often a later epoch may be there already.
	fillTries = 5
)

// fill has the counter of a goods installed by one replica, while the others
// look again after a moment. That it is one only saves work: two that install at
// the same time do no harm, because the epochs tell which of them is valid.
func (s *Stock) fill(ctx context.Context, goodsID int64) error {
	p := s.part(goodsID)
	ours, err := s.redis.SetNX(ctx, p.filling(goodsID), s.options.Replica, fillAlone).Result()
	if err != nil {
		return backend("fill", err)
	}
	if !ours {
		if pause.For(ctx, fillLook) != nil {
			return errBusy(ctx, goodsID)
		}
		return nil
	}
	err = s.refill(ctx, goodsID, 0)
	// It ends by itself where it is not deleted.
	_ = s.redis.Del(context.WithoutCancel(ctx), p.filling(goodsID)).Err()
	return err
}

// refill has a counter installed. It does not end with the purchase that asks for
// it: the next one needs it, too.
func (s *Stock) refill(ctx context.Context, goodsID, floor int64) error {
	done := make(chan error, 1)
	go func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), fillWithin)
		defer cancel()
		done <- rescue.Do(own, s.options.Log, "install a counter", func() error { return s.install(own, goodsID, floor) })
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errBusy(ctx, goodsID)
	}
}

// install moves the units of the row into the place, begins an epoch above floor,
// and installs the counter.
func (s *Stock) install(ctx context.Context, goodsID, floor int64) error {
	for range fillTries {
		// From the commit on nothing of an earlier epoch is written: what the stream
		// has of it at the installation is all that is promised beside the units.
		place, err := s.store.Fill(ctx, goodsID, Place, floor)
		if err != nil {
			return notUnknown(fmt.Errorf("fill %s: %w", Place, err))
		}
		p := s.part(goodsID)
		answer, err := p.call(ctx, s.redis, "install", []string{p.counter(goodsID), p.run(), p.orders()},
			goodsID, place.Units, place.Epoch, s.soldOut.channel)
		if err != nil {
			return backend("install the counter", err)
		}
		there, err := strconv.ParseInt(fmt.Sprint(answer), 10, 64)
		if err != nil {
			return backend("install the counter", err)
		}
		if there == place.Epoch {
			s.options.Log.DebugContext(ctx, "counter installed", "goods", goodsID, "units", place.Units, "epoch", place.Epoch)
			return nil
		}
		floor = there // somebody was faster, or the database has lost epochs
	}
	return fmt.Errorf("%w: others install the counter of goods %d all the time", stock.ErrBusy, goodsID)
}

// notUnknown keeps the unknown fate of a filling from being taken for that of a
// purchase: nothing is promised before it has been done again.
func notUnknown(err error) error {
	if failed, is := errors.AsType[*stock.BackendError](err); is && errors.Is(err, stock.ErrUnknownOutcome) {
		return failed
	}
	return err
}

// Restocked moves units that were added to the row of a goods into Redis, where
// the goods is sold from there. Doing it twice moves nothing twice.
func (s *Stock) Restocked(ctx context.Context, goodsID, _ int64) error {
	place, err := s.store.Place(ctx, goodsID, Place)
	if err != nil || place.Epoch == 0 {
		return err
	}
	return s.install(ctx, goodsID, 0)
}
