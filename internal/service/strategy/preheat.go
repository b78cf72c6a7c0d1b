package strategy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

// preheater copies the stock of an item from its row to Redis: at the first sale, and
// again where the row was changed beside the sales of its strategy. One replica does it,
// while the others wait.
//
// A copy counts as long as its mark "ready" is there. The value is its version: the mark
// of the attempt that made it, and version and epochs of the row that it was read in. A restock
// and a recall begin another epoch, so that a purchase which finds the copy empty
// notices them. Each attempt has a mark of its own, so that a late command of one that
// failed cannot restore it.
type preheater struct {
	prefix string // of all keys: databases that share a Redis differ in it
	kind   string // the strategy's own: copies of different kinds do not meet
	owner  string // begins the marks of this replica
	client redis.UniversalClient
	store  *repo.Store
	units  stockCopy
	wait   time.Duration // for a copy, before stock.ErrBusy
	log    *slog.Logger
	// changes has the copies in progress; it may be nil.
	changes *background.Changes

	seen  sync.Map // versions of the copies that this replica knows, by item
	fills singleflight.Group
}

// Bounds of a preheating.
const (
	fillWithin = 30 * time.Second
	fillPoll   = 10 * time.Millisecond
)

// key is the copy of an item. The braces put all keys of one item into one slot of a
// cluster.
func (p *preheater) key(goodsID int64) string {
	return p.prefix + ":{" + lockName(goodsID) + "}:" + p.kind
}

func (p *preheater) ready(goodsID int64) string   { return readyOf(p.key(goodsID)) }
func (p *preheater) filling(goodsID int64) string { return p.key(goodsID) + ":filling" }

func readyOf(key string) string { return key + ":ready" }

// await returns the version of the copy when there is one. The load continues after
// its caller has left, for the next one.
func (p *preheater) await(ctx context.Context, goodsID int64) (version string, err error) {
	if version, ok := p.seen.Load(goodsID); ok {
		return version.(string), nil //nolint:forcetypeassert // nothing else is stored
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("await a copy of item %d: %w", goodsID, context.Cause(ctx))
	}
	filled := p.fills.DoChan(strconv.FormatInt(goodsID, 10), func() (any, error) {
		var version string
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), fillWithin)
		defer cancel()
		err := p.changes.Run(goodsID, stock.Change{Kind: stock.ChangeOfCopy}, func() error {
			return background.Guard(work, p.log, "copy "+lockName(goodsID), func() (err error) {
				version, err = p.fill(work, goodsID)
				return err
			})
		})
		return version, err
	})
	select {
	case result := <-filled:
		version, _ = result.Val.(string)
		return version, result.Err
	case <-ctx.Done():
		return "", fmt.Errorf("await a copy of item %d: %w", goodsID, context.Cause(ctx))
	case <-time.After(p.wait):
		return "", fmt.Errorf("%w: item %d was not copied to Redis within %s", stock.ErrBusy, goodsID, p.wait)
	}
}

// isOf reports whether a copy was read in the present epoch of the row, or in one in
// which only its own strategy has sold since.
func (p *preheater) isOf(version string, row stock.Goods) bool {
	return strings.HasSuffix(version, epochMark(row.EpochFor(p.store.Strategy())))
}

func epochMark(epoch int64) string { return "/" + strconv.FormatInt(epoch, 10) }

// errOutdated reports that something else than the copy's own strategy has changed the row
// since it was copied; it never leaves this package.
var errOutdated = errors.New("the copy is out of date")

// soldAlone reports whether only the copy's own strategy has changed a row since the copy
// was made of it. isOf lets sales of other strategies pass, which SQL then has to compare.
func (p *preheater) soldAlone(version string, row stock.Goods) bool {
	_, mark, _ := strings.Cut(version, "/")
	var read stock.Goods
	_, err := fmt.Sscanf(mark, "%d/%d/", &read.Version, &read.WriterEpoch)
	same := row.WriterEpoch == read.WriterEpoch && (row.Writer == "" || row.Writer == p.store.Strategy())
	return err == nil && (row.Version == read.Version || same)
}

// discardIfCurrent deletes a key that has this value, and none that has another.
const discardIfCurrent = `
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1`

// discard has the copy made anew where it still has this version.
func (p *preheater) discard(ctx context.Context, goodsID int64, version string) error {
	p.seen.CompareAndDelete(goodsID, version)
	if err := p.client.Eval(ctx, discardIfCurrent, []string{p.ready(goodsID)}, version).Err(); err != nil {
		return redisFault(ctx, "discard the copy of an item", err)
	}
	return nil
}

// errOvertaken reports that another attempt loads now.
var errOvertaken = errors.New("another attempt loads the copy")

// fill makes the copy, or waits until another replica has made it.
func (p *preheater) fill(ctx context.Context, goodsID int64) (version string, err error) {
	for {
		version, err = p.client.Get(ctx, p.ready(goodsID)).Result()
		if err == nil {
			p.seen.Store(goodsID, version)
			return version, nil
		}
		if ignoreNil(err) != nil {
			return "", redisFault(ctx, "read the mark of a copy", err)
		}
		mark, err := p.begin(ctx, goodsID)
		switch {
		case err != nil:
			err = redisFault(ctx, "begin to copy an item", err)
		case mark != "":
			err = p.fillBeside(ctx, goodsID, mark)
		default: // another replica is copying
			err = pause.For(ctx, fillPoll)
		}
		if err != nil && !errors.Is(err, errOvertaken) {
			return "", err
		}
	}
}

// begin returns the mark of a new attempt, which is in Redis now, or "" where another
// replica is copying. A mark of this replica is one of an attempt that failed and
// could not delete it: it is replaced.
func (p *preheater) begin(ctx context.Context, goodsID int64) (mark string, err error) {
	mark = p.owner + rand.Text()
	err = p.client.SetArgs(ctx, p.filling(goodsID), mark, redis.SetArgs{Mode: "NX", TTL: fillWithin}).Err()
	if !errors.Is(err, redis.Nil) {
		return mark, err
	}
	current, err := p.client.Get(ctx, p.filling(goodsID)).Result()
	if err != nil || !strings.HasPrefix(current, p.owner) {
		return "", ignoreNil(err)
	}
	return mark, p.client.Set(ctx, p.filling(goodsID), mark, fillWithin).Err()
}

// fillBeside loads units beside the copy, and replaces the copy in one step.
func (p *preheater) fillBeside(ctx context.Context, goodsID int64, mark string) error {
	units, read, err := p.count(ctx, goodsID)
	if err != nil {
		// The next attempt need not wait until this mark expires.
		return errors.Join(err, p.client.Eval(ctx, discardIfCurrent, []string{p.filling(goodsID)}, mark).Err())
	}
	key := p.key(goodsID)
	beside := key + ":" + rand.Text() // what a failed attempt has left there expires
	if err := p.units.fill(ctx, beside, units); err != nil {
		return redisFault(ctx, "copy an item", err)
	}
	err = p.client.Watch(ctx, func(tx *redis.Tx) error {
		if now, err := tx.Get(ctx, p.filling(goodsID)).Result(); now != mark {
			return errors.Join(errOvertaken, ignoreNil(err))
		}
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Del(ctx, key)
			if units > 0 {
				pipe.Rename(ctx, beside, key)
				pipe.Persist(ctx, key)
			}
			pipe.Set(ctx, p.ready(goodsID), mark+read, 0)
			pipe.Del(ctx, p.filling(goodsID))
			return nil
		})
		return err
	}, p.filling(goodsID))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOvertaken), errors.Is(err, redis.TxFailedErr):
		return errOvertaken
	default:
		return redisFault(ctx, "replace the copy of an item", err)
	}
}

// count reads how many units there are to copy, and in which state of the row. No sale of
// before may change it later, and no other attempt have ended since this one began: its copy
// is being sold from.
func (p *preheater) count(ctx context.Context, goodsID int64) (units int64, read string, err error) {
	ended, err := p.client.Exists(ctx, p.ready(goodsID)).Result()
	if err != nil {
		return 0, "", redisFault(ctx, "read the mark of a copy", err)
	}
	if ended > 0 {
		return 0, "", errOvertaken
	}
	goods, err := p.store.GoodsSettled(ctx, goodsID)
	if err != nil {
		return 0, "", err
	}
	if most := p.units.most(); goods.Stock > most {
		return 0, "", fmt.Errorf("%w: %s keeps at most %d units of an item, and item %d has %d",
			stock.ErrStockLimit, p.kind, most, goodsID, goods.Stock)
	}
	read = fmt.Sprintf("/%d/%d%s", goods.Version, goods.WriterEpoch, epochMark(goods.EpochFor(p.store.Strategy())))
	return max(0, goods.Stock), read, nil
}

// ignoreNil takes an empty answer for no failure.
func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
