package strategy_test

import (
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/fault"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// Redis is away in the middle of a copying: the mark of it is still there, and the
// replica goes on where it began, long before the mark expires.
func TestACopyingThatWasCutOffIsGoneOnWith(t *testing.T) {
	cuts := map[string]fault.Rule{
		"at its mark": {Sent: ":filling", Do: fault.LoseReply},
		"at its end":  {Sent: "\r\npersist\r\n", Do: fault.Lose},
	}
	server := lab.OwnRedis(t)
	way := labtest.NewProxy(t, server.Address)
	d := lab.Database(t, servers.SQLite)
	store := labtest.Open(t, d, "replica-1")
	locks := lab.Locks(t, d)
	locks.RedisOptions = labtest.RedisOptions(server)
	locks.RedisOptions.Addresses = []string{way.Address}
	locks.Redis = lock.NewRedisClient(locks.RedisOptions)
	var goods int64
	for _, entry := range strategy.Registry() {
		if entry.Name != "redis-decr" && entry.Name != "redis-list" {
			continue
		}
		for name, rule := range cuts {
			goods++
			t.Run(entry.Name+" "+name, func(t *testing.T) {
				if err := store.CreateGoods(t.Context(), goods, 10, rand.Text()); err != nil {
					t.Fatal(err)
				}
				s := entry.New(strategy.Deps{
					Store: store.As(entry.Name), Lock: locks, LockWait: time.Second, Retry: strategy.Retry{Tries: 1},
					Log: slog.New(slog.DiscardHandler),
				})
				closeAfter(t, s)
				cut := way.Arm(rule)
				_, _ = s.Deduct(t.Context(), goods, oneUnit()) // as it may be
				<-cut.Reached()
				for range 7 {
					outcomes, err := s.Deduct(t.Context(), goods, oneUnit())
					if err != nil || outcomes[0].Refused != nil {
						t.Fatalf("after it was cut off: %+v (%v)", outcomes, err)
					}
				}
			})
		}
	}
}

func oneUnit() []stock.Purchase {
	return []stock.Purchase{{Quantity: 1, RequestID: rand.Text()}}
}
