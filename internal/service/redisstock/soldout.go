package redisstock

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// doubted is how long a replica believes that an item is sold out, everywhere, without
// asking again. It is the most that a lost message costs.
const doubted = time.Second

// limitDoubted is how long an item's buyers at their limit are rejected without a look at what they have given back.
const limitDoubted = 50 * time.Millisecond

// soldOut remembers which items have nothing left, so that a rejection without a key costs
// no round trip, and one with a key none to the database. A replica that installs a counter
// notifies all replicas.
type soldOut struct {
	*backend.RedisChannel

	channel string
	client  redis.UniversalClient

	since    moments
	messages atomic.Int64 // messages so far
}

func newSoldOut(client redis.UniversalClient, channel string, log *slog.Logger) *soldOut {
	o := &soldOut{client: client, channel: channel}
	o.RedisChannel = backend.NewRedisChannel(client, channel, log, o.hear)
	return o
}

// verified reports whether the item was found sold out within the last moment.
func (o *soldOut) verified(goodsID int64) bool {
	return o.since.isRecent(goodsID, doubted)
}

// moments has the last time at which something was found of each item.
type moments struct{ sync.Map }

func (m *moments) isRecent(goodsID int64, within time.Duration) bool {
	last, _ := m.Load(goodsID)
	at, ok := last.(time.Time)
	return ok && time.Since(at) <= within
}

// rejects reports whether a batch may be rejected unseen. A request with a key may be the
// copy of a sale that only Redis knows.
func (o *soldOut) rejects(goodsID int64, batch []stock.Purchase) bool {
	return o.verified(goodsID) && !slices.ContainsFunc(batch, func(p stock.Purchase) bool { return p.Keyed })
}

// mark is taken before Redis is asked, and given back with what it said.
func (o *soldOut) mark() int64 { return o.messages.Load() }

// learn takes note that nothing is left of an item, unless a message came since the mark:
// then the answers may be older than the message.
func (o *soldOut) learn(goodsID, mark int64) {
	o.since.Store(goodsID, time.Now())
	if o.messages.Load() != mark {
		o.since.Delete(goodsID)
	}
}

// announce notifies all replicas that there may be units again. Where Redis does not
// answer, they find out for themselves.
func (o *soldOut) announce(ctx context.Context, goodsID int64) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	_ = o.client.Publish(ctx, o.channel, goodsID).Err()
}

// hear forgets what a message is about, or everything where some may have been lost.
func (o *soldOut) hear(m *redis.Message) {
	o.messages.Add(1)
	if m != nil {
		if goodsID, err := strconv.ParseInt(m.Payload, 10, 64); err == nil {
			o.since.Delete(goodsID)
			return
		}
	}
	o.since.Clear()
}
