package handler_test

import (
	crand "crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/room"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
)

// openRoom has these items have a waiting room.
func (a api) openRoom(t *testing.T, items ...int64) *room.Room {
	t.Helper()
	client := labtest.RedisClient(lab.Redis(t))
	t.Cleanup(func() { client.Close() }) //nolint:errcheck // the test is over
	return roomOn(client, a.options, items...)
}

func roomOn(client redis.UniversalClient, o handler.Options, items ...int64) *room.Room {
	return room.New(client, room.Options{
		Prefix: "test-" + crand.Text(), Items: items, Rate: 1000, Share: 1, Admission: time.Minute, Away: time.Minute,
		Secret: []byte("a secret of the examples"), Goods: o.Inventory.Goods,
	})
}

// admit waits until a buyer is admitted to an item.
func (a api) admit(t *testing.T, goodsID int64, buyer string) {
	t.Helper()
	joined := a.post(t, fmt.Sprintf("/queue?goods_id=%d&user_id=%s", goodsID, buyer), "X-Test", "")
	joined.is(t, "")
	if joined.header.Get("Retry-After") == "" && joined.body["state"] == "waiting" {
		t.Errorf("no one says when to ask again: %s", joined.text)
	}
	if !labtest.Eventually(10*time.Second, func() bool {
		return a.get(t, fmt.Sprint("/queue/", joined.body["ticket"])).body["state"] == "admitted"
	}) {
		t.Fatalf("%s is not admitted", buyer)
	}
}

func TestAnItemWithAWaitingRoomIsSoldToTheAdmitted(t *testing.T) {
	a := serve(t, lab.Database(t, servers.SQLite))
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 5}`, http.StatusCreated)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 3, "stock": 0}`, http.StatusCreated)
	a = a.with(t, func(o *handler.Options) { o.Room = a.openRoom(t, 2) })
	a.post(t, "/queue?goods_id=2", "X-Test", "").names(t, "user_id")
	for _, buy := range []string{"/deduct?goods_id=2", "/deduct?goods_id=2&user_id=u", "/reservations?goods_id=2&user_id=u", "/orders?lines=1,2&user_id=u"} {
		a.post(t, buy, "X-Test", "").is(t, "not-admitted")
	}
	a.buy(t, "goods_id=1").is(t, "")
	a.admit(t, 2, "u")
	a.buy(t, "goods_id=2&user_id=another").is(t, "not-admitted")
	a.buy(t, "goods_id=2&user_id=u&quantity=6").is(t, "insufficient-stock")
	a.post(t, "/orders?lines=2,3&user_id=u", "Idempotency-Key", "k").is(t, "insufficient-stock") // the line of item 2 was held
	sold := a.post(t, "/deduct?goods_id=2&user_id=u", "Idempotency-Key", "order-1")
	sold.is(t, "")
	again := a.post(t, "/deduct?goods_id=2&user_id=u", "Idempotency-Key", "order-1")
	should.Be(t, again.body["order_id"], sold.body["order_id"], "the order under the same key")
	a.buy(t, "goods_id=2&user_id=u").is(t, "not-admitted")
	for _, buy := range []string{"/reservations?goods_id=2", "/orders?lines=1,2"} {
		a.admit(t, 2, "u")
		a.post(t, buy+"&user_id=u", "X-Test", "").is(t, "")
		a.post(t, buy+"&user_id=u", "X-Test", "").is(t, "not-admitted")
	}
}

func TestACopyOfWhatIsPendingNeedsNoSecondAdmission(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveRedisStock(t, d, lab.Locks(t, d, backend.Redis), strategy.Registry(), redisstock.Options{Linger: time.Hour, Partitions: 2})
	a = a.with(t, func(o *handler.Options) { o.Room = a.openRoom(t, 1) })
	for _, key := range []string{"written at once", "pending"} {
		a.admit(t, 1, "u")
		key = url.QueryEscape(key)
		sold := a.post(t, "/deduct?goods_id=1&user_id=u&strategy=redis-stock", "Idempotency-Key", key)
		again := a.post(t, "/deduct?goods_id=1&user_id=u&strategy=redis-stock", "Idempotency-Key", key)
		again.is(t, "")
		should.Be(t, again.body["order_id"], sold.body["order_id"], "the order under", key)
	}
}

// The room knows nothing of how an item is sold: its units are all sold to who is admitted, and then those who wait learn it.
func TestAnItemWithAWaitingRoomIsSoldOutThroughAnyStrategy(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	a := serveRedisStock(t, d, lab.Locks(t, d, backend.Redis), strategy.Registry(), redisstock.Options{Partitions: 2})
	modes := []string{"sql-conditional&group=true", "sql-bucket", "sql-unit", "sql-optimistic&group=true", "redis-lua&fence=true", "redis-stock", "redis-stock&durable=sql"}
	items := make([]int64, len(modes))
	for i := range modes {
		items[i] = int64(i + 2)
		a.asAdmin(t, http.MethodPost, "/goods", fmt.Sprintf(`{"goods_id": %d, "stock": 5}`, items[i]), http.StatusCreated)
	}
	a = a.with(t, func(o *handler.Options) { o.Room = a.openRoom(t, items...) })
	for i, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			buy := fmt.Sprintf("/deduct?goods_id=%d&strategy=%s&user_id=", items[i], mode)
			for b := range 5 {
				buyer := fmt.Sprint("buyer-", b)
				a.post(t, buy+buyer, "X-Test", "").is(t, "not-admitted")
				a.admit(t, items[i], buyer)
				a.post(t, buy+buyer, "X-Test", "").is(t, "")
			}
			late := a.post(t, fmt.Sprintf("/queue?goods_id=%d&user_id=late", items[i]), "X-Test", "").body["ticket"]
			closed := func() bool { return a.get(t, fmt.Sprint("/queue/", late)).body["state"] == "closed" }
			should.Be(t, labtest.Eventually(10*time.Second, closed), true, "the line is not told that it is sold out")
		})
	}
}
