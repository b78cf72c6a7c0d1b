package service_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// The items 1 and 8 are on different shards.
const here, there = 1, 8

// Each strategy that is available sells what there is of items on both shards.
func TestVitessSellsWhatThereIs(t *testing.T) {
	v := lab.Vitess(t)
	absent := func(e strategy.Entry) bool { return e.NotOnShards != "" }
	sellOnEachNode(t, "Vitess", []*servers.Database{v.Database, v.Database}, absent, standsForOthers)
	sums := must.Get(labtest.Open(t, v.Database, "auditor").AuditAll(t.Context()))(t)
	should.Be(t, sums.Oversold+sums.Lost+sums.Vanished, 0)
}

// A key and a number are of one order, whatever the shard of its item, and the feed has each order once, in the order of
// their numbers.
func TestVitessKeepsKeysAndNumbersOverShards(t *testing.T) {
	v := lab.Vitess(t)
	s, store := openOn(t, 0, v.Database), labtest.Open(t, v.Database, "reader")
	s.create(t, here, 100)
	s.create(t, there, 100)
	first := must.Get(s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), here, keyed("key", 1)))(t)
	again := must.Get(s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), here, keyed("key", 1)))(t)
	should.Be(t, again.Replayed && again.Order.ID == first.Order.ID, true, "a copy gets the first order")
	for _, name := range []string{"sql-conditional", "sql-for-update", "sql-optimistic", "redis-stock"} {
		should.Reject(s.strategy(t, 0, name).Deduct(t.Context(), there, keyed("key", 1)))(t, stock.ErrKeyReused)
	}
	before := must.Get(strconv.ParseInt(first.Order.ID, 10, 64))(t)
	const orders = 20
	numbers := make([]string, 0, orders)
	for i := range orders {
		outcome := must.Get(s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), []int64{here, there}[i%2], stock.Purchase{Quantity: 1}))(t)
		numbers = append(numbers, outcome.Order.ID)
		found, ok, err := store.Order(t.Context(), outcome.Order.ID)
		if err != nil || !ok || found.RequestID != outcome.Order.RequestID {
			t.Errorf("order %s is %+v (%v)", outcome.Order.ID, found, err)
		}
	}
	var listed []string
	labtest.Eventually(time.Minute, func() bool {
		must.Do(t, store.SettleAll(t.Context()))
		orders, _, err := store.OrdersAfter(t.Context(), 0, before, 1000)
		must.Do(t, err)
		listed = listed[:0]
		for _, o := range orders {
			if slices.Contains(numbers, o.ID) {
				listed = append(listed, o.ID)
			}
		}
		return slices.Equal(listed, numbers)
	})
	should.Be(t, slices.Equal(listed, numbers), true, "the feed has each order once, in order")
}

// The row by which Vitess finds a request is on the shard that stockd takes it to be on, so that those of one shard are asked
// for together. A purchase without a key needs no shard but that of its item.
func TestVitessFindsARequestWhereItIsTakenToBe(t *testing.T) {
	v := lab.Vitess(t)
	s, store := openOn(t, 0, v.Database), labtest.Open(t, v.Database, "reader")
	for goods := range int64(8) {
		s.create(t, 3000+goods, 10)
		for i := range 4 {
			sold := must.Get(s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), 3000+goods, stock.Purchase{Quantity: 1, UserID: strconv.Itoa(i)}))(t)
			should.Be(t, store.ShardOf(sold.Order.RequestID), store.ShardOfItem(3000+goods), "the shard of a request without a key")
		}
	}
	for number, shard := range []string{"-80", "80-"} {
		items := onShard(t, v, shard, `SELECT goods_id FROM tb_goods_stock`)
		requests := onShard(t, v, shard, `SELECT request_id FROM lookup_request`)
		if len(items) == 0 || len(requests) == 0 {
			t.Errorf("%s has %d items and %d requests", shard, len(items), len(requests))
		}
		for _, key := range slices.Concat(items, requests) {
			should.Be(t, store.ShardOf(key), number, "the shard of", key)
		}
	}
}

// onShard is the first column of what a query finds on one shard.
func onShard(t *testing.T, v *servers.Vitess, shard, query string) (column []string) {
	t.Helper()
	d := must.Get(v.With(func(c *mysql.Config) { c.DBName = "shop:" + shard }))(t)
	pool := must.Get(d.Raw())(t)
	defer pool.Close() //nolint:errcheck // it was only read
	_, rows, err := servers.Rows(t.Context(), pool, query)
	must.Do(t, err)
	for _, row := range rows {
		column = append(column, row[0])
	}
	return column
}

// Copies of a correction that come at the same moment get the answer of the first, and not that nothing is left.
func TestVitessAnswersCopiesThatComeAtOnce(t *testing.T) {
	s := openOn(t, 0, lab.Vitess(t).Database)
	for goods := range int64(5) {
		s.create(t, 2000+goods, 5)
		var copies sync.WaitGroup
		for range 4 {
			copies.Go(func() {
				_, by, err := s.inventory.Correct(t.Context(), 2000+goods, stock.Correction{By: -5, Reason: "count"}, strconv.FormatInt(2000+goods, 10))
				if err != nil || by != -5 {
					t.Errorf("a copy is answered with %d, %v", by, err)
				}
			})
		}
		copies.Wait()
	}
}

// Reservations are found and confirmed by their numbers. A basket whose items are apart is rejected, and its units come back.
func TestVitessRejectsABasketOverShards(t *testing.T) {
	v := lab.Vitess(t)
	s := openOn(t, 0, v.Database)
	all, _ := s.reservations(t, v.Database)
	for _, id := range []int64{2, 9, 10, 16} {
		s.create(t, id, 5)
	}
	_, err := all[0].Sell(t.Context(), basketOf(2, 9, 10, 16), s.holdBy(t, 0, "sql-conditional"))
	should.Fail(t, err, stock.ErrApart, "a basket over shards is answered with")
	s.leaves(t, map[int64]int64{2: 5, 9: 5, 10: 5, 16: 5})
	numbers := s.holds(t, "sql-conditional", 2, 2, time.Minute)
	other := s.holds(t, "sql-conditional", 9, 1, time.Minute)
	confirm := func(number string) error { return errOf(all[0].Confirm(t.Context(), number, "paid")) }
	must.Do(t, confirm(numbers[0]))
	should.Fail(t, confirm(other[0]), stock.ErrReferenceUsed, "a reference of another shard is answered with")
	for _, number := range []string{numbers[1], other[0]} {
		_, _, err := all[0].Release(t.Context(), number)
		must.Do(t, err)
	}
	s.leaves(t, map[int64]int64{2: 4, 9: 5})
}
