package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// A reader is behind from when the first order is there that it has not asked beyond, also when
// it does not ask again.
func TestAReaderThatStopsIsBehindByTheFirstOrderItHasNotDealtWith(t *testing.T) {
	store := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	must.Do(t, store.CreateGoods(t.Context(), 1, 10, "create"))
	buy := func(id string) {
		if err := store.InTx(t.Context(), func(tx *repo.Tx) error {
			_, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: id, Quantity: 1}}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	feed := service.NewFeed(store)
	buy("dealt with")
	_, next, err := feed.List(t.Context(), "", service.Page{}, 10)
	must.Do(t, err)
	for reader, page := range map[string]service.Page{
		"at the end": {After: next}, "of another item": {GoodsID: 2}, "at the beginning": {},
	} {
		must.Do(t, errOf(feed.List(t.Context(), reader, page, 10)))
	}
	lags := func() map[string]time.Duration {
		lags := must.Get(feed.Lags(t.Context()))(t)
		must.Be(t, len(lags), 3, "the readers that lag", lags)
		return lags
	}
	time.Sleep(time.Millisecond)
	if l := lags(); l["at the end"] != 0 || l["of another item"] != 0 || l["at the beginning"] < time.Millisecond || l["at the beginning"] > time.Minute {
		t.Errorf("with one order they lag by %v", l)
	}
	buy("new")
	time.Sleep(time.Millisecond)
	if l := lags(); l["at the end"] < time.Millisecond || l["of another item"] != 0 || l["at the beginning"] <= l["at the end"] {
		t.Errorf("with a new order they lag by %v", l)
	}
	for range 2 {
		if _, next, err = feed.List(t.Context(), "at the end", service.Page{After: next}, 10); err != nil {
			t.Fatal(err)
		}
	}
	should.Be(t, lags()["at the end"], 0, "when one has dealt with it they lag by")
	must.Do(t, errOf(feed.List(t.Context(), "at the end", service.Page{}, 10)))
	if l := lags(); l["at the end"] < time.Millisecond {
		t.Errorf("when one begins anew they lag by %v", l)
	}
}

// A reader that asks for the steps of reservations gets them, and is behind by one that it has not
// dealt with. An order of a replica with a fast clock is no lag.
func TestAReaderOfEveryStepIsBehindByAStep(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	store := labtest.Open(t, d, "r")
	must.Do(t, store.CreateGoods(t.Context(), 1, 10, "create"))
	if err := store.InTx(t.Context(), func(tx *repo.Tx) error {
		_, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: "held", Quantity: 1, TTL: time.Hour, Number: "0190c7a0-0000-7000-8000-000000000000"}}})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	feed := service.NewFeed(store)
	for steps, kinds := range map[bool][]stock.Kind{false: nil, true: stock.Steps()} {
		if list, _, err := feed.List(t.Context(), fmt.Sprint(steps), service.Page{GoodsID: 1, Kinds: kinds}, 10); err != nil || steps != (len(list) == 1) {
			t.Errorf("with every step %v the feed is %+v, %v", steps, list, err)
		}
	}
	time.Sleep(time.Millisecond)
	if lags, err := feed.Lags(t.Context()); err != nil || lags["false"] != 0 || lags["true"] < time.Millisecond {
		t.Errorf("they lag by %v, %v", lags, err)
	}
	must.Get(openPool(t, d).ExecContext(t.Context(), `UPDATE tb_stock_ledger SET created_at = '2999-01-01 00:00:00'`))(t)
	should.Be(t, must.Get(feed.Lags(t.Context()))(t)["true"], 0, "by an order of the future they lag by")
}

func TestTheReaderThatAskedLongestAgoIsForgotten(t *testing.T) {
	const maxReaders = 16 // as docs/feed.md has it
	feed := service.NewFeed(labtest.Open(t, lab.Database(t, servers.SQLite), "r"))
	ask := func(reader string) {
		must.Do(t, errOf(feed.List(t.Context(), reader, service.Page{}, 1)))
		time.Sleep(time.Microsecond)
	}
	for i := range maxReaders {
		ask(fmt.Sprint(i))
	}
	ask("0")
	ask("5")
	lags := must.Get(feed.Lags(t.Context()))(t)
	should.Be(t, len(lags), maxReaders, "after another page for two, the replica remembers the readers", lags)
	ask("another")
	lags = must.Get(feed.Lags(t.Context()))(t)
	if _, first := lags["0"]; len(lags) != maxReaders || !first {
		t.Errorf("after %d readers and another one, the replica remembers %v", maxReaders, lags)
	}
	if _, second := lags["1"]; second {
		t.Error("it remembers the one that asked longest ago")
	}
}

// A page is bounded by rows, too, so that the ledger of a sale does not keep a reader from them for ever.
func TestAReaderOfRareKindsIsGivenThemInTheEnd(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	store := labtest.Open(t, d, "r")
	must.Do(t, store.CreateGoods(t.Context(), 1, 10, "create"), store.SetLimit(t.Context(), 1, 2))
	must.Get(openPool(t, d).ExecContext(t.Context(), `UPDATE tb_stock_ledger SET id = 250000 WHERE kind = 'limit'`))(t)
	feed := service.NewFeed(store)
	page := service.Page{Kinds: []stock.Kind{stock.LimitSet}}
	for _, want := range []int64{100_000, 200_000, 250_000} {
		list, next, err := feed.List(t.Context(), fmt.Sprint(page.After), page, 10)
		if found := len(list) == 1; err != nil || next != want || found != (want == 250_000) {
			t.Errorf("after %d the feed has %+v and goes on after %d, want %d (%v)", page.After, list, next, want, err)
		}
		page.After = next
	}
	time.Sleep(time.Millisecond)
	if lags, err := feed.Lags(t.Context()); err != nil || lags["0"] < time.Millisecond {
		t.Errorf("they lag by %v, %v", lags, err)
	}
}
