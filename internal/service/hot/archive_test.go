package hot_test

import (
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/repo"
)

// A Redis that went back in time unnoticed has an order on its stream that was archived since, and
// another order under its request id: the one is settled, and the other dead-lettered, as if the row
// was in the ledger still.
func TestAnOrderThatComesBackAfterItWasArchivedIsNotWrittenAgain(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	seller := s.replica(t, "seller", idle)
	reported := orders(sell(t, seller, buy(1)))
	settle(t, seller)
	reported = append(reported, sell(t, seller, buy(2)))
	entries, err := s.client.XRange(t.Context(), s.key("orders"), "-", "+").Result()
	if err != nil || len(entries) != 1 {
		t.Fatalf("the stream has %v, %v; want one order", entries, err)
	}
	b := s.replica(t, "b")
	settle(t, b)
	labtest.Archive(t, s.database, s.store)
	same := maps.Clone(entries[0].Values)
	same["at"] = strconv.FormatInt(time.Now().Add(-repo.LeastAge).UnixMilli(), 10)
	other := maps.Clone(same)
	other["order"] = "01a2109e-ed18-7e9e-984c-aaeabf9bb6fc"
	for _, fields := range []map[string]any{same, other} {
		if err := s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key("orders"), Values: fields}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the stream to be empty", func() bool { return s.client.XLen(t.Context(), s.key("orders")).Val() == 0 })
	if n := s.client.XLen(t.Context(), s.key("dead")).Val(); n != 1 {
		t.Errorf("%d orders were dead-lettered, want the one of another number", n)
	}
	for _, order := range reported {
		if got, ok, err := s.store.Order(t.Context(), order.ID); err != nil || !ok || got.RequestID != order.RequestID {
			t.Errorf("order %s is %+v, %v, %v", order.ID, got, ok, err)
		}
	}
	full, err := s.store.AuditInFull(t.Context(), goods)
	if a := s.audit(t); err != nil || a != full || !a.Clean || a.Orders != 2 || a.Sold != 3 {
		t.Errorf("the audits are %+v and %+v (%v), want 2 orders of 3 units", a, full, err)
	}
}
