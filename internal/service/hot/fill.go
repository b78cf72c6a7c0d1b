package hot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
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
	err = s.refill(ctx, goodsID)
	// It ends by itself where it is not deleted.
	_ = s.redis.Del(context.WithoutCancel(ctx), p.filling(goodsID)).Err()
	return err
}

// refill has a counter installed, unless another one has done so since we looked. It
// does not end with the purchase that asks for it: the next one needs it, too.
func (s *Stock) refill(ctx context.Context, goodsID int64) error {
	if d, err := s.look(ctx, goodsID); err != nil || d.Installed {
		return err
	}
	done := make(chan error, 1)
	go func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), fillWithin)
		defer cancel()
		done <- rescue.Do(own, s.options.Log, "install a counter", func() error { return s.install(own, goodsID, 0) })
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
		if err := s.settleWritten(ctx, goodsID); err != nil {
			return notUnknown(err)
		}
		there, err := s.installAs(ctx, place)
		if err != nil {
			return err
		}
		if there == place.Epoch {
			s.options.Log.DebugContext(ctx, "counter installed", "goods", goodsID, "units", place.Units, "epoch", place.Epoch)
			return nil
		}
		floor = there // somebody was faster, or the database has lost epochs
	}
	return fmt.Errorf("%w: others install the counter of goods %d all the time", stock.ErrBusy, goodsID)
}

// partial is what the script answers where some of what was put beside is gone.
const partial = "PARTIAL"

// installAs installs the counter of an epoch, and tells which one is there then: 0
// where Redis has lost what was put beside, and a new epoch is to be begun.
func (s *Stock) installAs(ctx context.Context, place repo.Place) (epoch int64, err error) {
	users, err := s.putUsersBeside(ctx, place)
	if err != nil {
		return 0, err
	}
	p, goodsID := s.part(place.GoodsID), place.GoodsID
	keys := []string{p.counter(goodsID), p.users(goodsID), p.run(), p.orders(), p.beside(goodsID, place.Epoch)}
	answer, err := p.call(ctx, s.redis, "install", keys,
		goodsID, place.Units, place.Epoch, s.soldOut.channel, place.PerUser, users)
	if err != nil {
		return 0, backend("install the counter", err)
	}
	if answer == partial {
		return 0, nil
	}
	epoch, err = strconv.ParseInt(fmt.Sprint(answer), 10, 64)
	return epoch, backend("install the counter", err)
}

// putUsersBeside gathers what each buyer has of a goods with a limit, and tells how
// many they are. It is read after the epoch has begun, like the units of the place:
// what is in the ledger by then is in it, and what is not is on the stream.
func (s *Stock) putUsersBeside(ctx context.Context, place repo.Place) (users int, err error) {
	if place.PerUser == 0 {
		return 0, nil
	}
	key := s.part(place.GoodsID).beside(place.GoodsID, place.Epoch)
	err = s.store.EachUsers(ctx, place.GoodsID, func(has map[string]int64) error {
		users += len(has)
		fields := make([]any, 0, 2*len(has))
		for user, units := range has {
			fields = append(fields, user, units)
		}
		_, err := s.redis.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.HSet(ctx, key, fields...)
			pipe.PExpire(ctx, key, fillWithin)
			return nil
		})
		return backend("put buyers beside the counter", err)
	})
	return users, err
}

// LimitChanged installs the counter anew where the goods is sold from Redis: it has
// the limit, and what each buyer has.
func (s *Stock) LimitChanged(ctx context.Context, goodsID int64) error {
	return s.Restocked(ctx, goodsID, 0)
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
