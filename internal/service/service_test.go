package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// shop is a number of replicas on one database, in one process: they share
// nothing but the database.
type shop struct {
	inventory *service.Inventory
	replicas  []*service.Catalogue
}

func open(t *testing.T, d *servers.Database, replicas int) shop {
	t.Helper()
	return openWith(t, d, d, replicas)
}

// openWith has the locks on a database of their own.
func openWith(t *testing.T, d, locks *servers.Database, replicas int) shop {
	t.Helper()
	var s shop
	for i := range replicas {
		store := labtest.Open(t, d, fmt.Sprintf("replica-%d", i+1))
		catalogue, err := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{
			Store: store, LockWait: copiesWait, Lock: lab.Locks(t, locks),
			Retry: strategy.Retry{Tries: 500, Step: time.Millisecond, Max: 50 * time.Millisecond},
			Group: strategy.Group{Batch: 50, Units: 1000, Queue: 200},
		}, 2*copiesWait)
		if err != nil {
			t.Fatal(err)
		}
		s.inventory = service.NewInventory(store, catalogue)
		s.replicas = append(s.replicas, catalogue)
	}
	return s
}

// copiesWait is long enough for a hundred copies at a lock that is polled, on a
// busy machine: busy would be an honest answer, but not
// the one that is asked for here.
const copiesWait = 45 * time.Second

// create makes an item of the strategy's own.
func (s shop) create(t *testing.T, goodsID, units int64) {
	t.Helper()
	if _, err := s.inventory.Create(t.Context(), goodsID, units, 0, stock.Choice{}, ""); err != nil {
		t.Fatal(err)
	}
}

// grouped marks the name of a strategy whose purchases are to be grouped.
const grouped = " grouped"

func (s shop) strategy(t *testing.T, replica int, name string) *service.Seller {
	t.Helper()
	name, group := strings.CutSuffix(name, grouped)
	return s.in(t, replica, service.Mode{Strategy: name, Group: group})
}

func (s shop) in(t *testing.T, replica int, mode service.Mode) *service.Seller {
	t.Helper()
	seller, err := s.replicas[replica].In(mode)
	if err != nil {
		t.Fatal(err)
	}
	return seller
}

func keyed(key string, units int64) stock.Purchase {
	return stock.Purchase{RequestID: key, Keyed: true, Quantity: units}
}

// names lists the strategies that need nothing but the database: what the
// service does around a strategy is the same for every other.
func (s shop) names() []string {
	var names []string
	for _, d := range s.replicas[0].Describe(context.Background()) {
		if d.Available {
			names = append(names, d.Name)
		}
	}
	return names
}

// each runs a test for every strategy that needs nothing but the database, alone
// and grouped.
func each(t *testing.T, replicas int, test func(t *testing.T, s shop, name string, goods int64)) {
	t.Helper()
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := open(t, d, replicas)
		for i, name := range s.names() {
			t.Run(name, func(t *testing.T) { test(t, s, name, int64(2*i+1)) })
			t.Run(name+grouped, func(t *testing.T) { test(t, s, name+grouped, int64(2*i+2)) })
		}
	})
}

func TestTheSameKeyGetsTheFirstAnswer(t *testing.T) {
	each(t, 2, func(t *testing.T, s shop, name string, goods int64) {
		s.create(t, goods, 10)
		key := rand.Text()
		first, err := s.strategy(t, 0, name).Deduct(t.Context(), goods, keyed(key, 3))
		if err != nil || first.Rejected != nil {
			t.Fatal(err, first.Rejected)
		}
		// Meanwhile another buyer buys, so that the answer would differ.
		if _, err := s.strategy(t, 0, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: 1}); err != nil {
			t.Fatal(err)
		}
		again, err := s.strategy(t, 1, name).Deduct(t.Context(), goods, keyed(key, 3))
		if err != nil || !again.Replayed || again.Order != first.Order {
			t.Errorf("answered again with %+v (%v), want %+v", again, err, first.Order)
		}
		if first.Order.Remaining != 7 {
			t.Errorf("the first answer says that %d are left, want 7", first.Order.Remaining)
		}
		assertSold(t, s, goods, 4)
	})
}

func TestTheSameKeyWithOtherContentIsRejected(t *testing.T) {
	each(t, 1, func(t *testing.T, s shop, name string, goods int64) {
		s.create(t, goods, 10)
		key := rand.Text()
		sv := s.strategy(t, 0, name)
		if _, err := sv.Deduct(t.Context(), goods, keyed(key, 1)); err != nil {
			t.Fatal(err)
		}
		other := goods + 1000
		s.create(t, other, 10)
		user := keyed(key, 1)
		user.UserID = "another buyer"
		for what, err := range map[string]error{
			"quantity": second(sv.Deduct(t.Context(), goods, keyed(key, 2))),
			"goods":    second(sv.Deduct(t.Context(), other, keyed(key, 1))),
			"user":     second(sv.Deduct(t.Context(), goods, user)),
		} {
			if !errors.Is(err, stock.ErrKeyReused) {
				t.Errorf("another %s: %v, want %v", what, err, stock.ErrKeyReused)
			}
		}
		assertSold(t, s, goods, 1)
	})
}

func TestARejectionIsNotStoredAsASale(t *testing.T) {
	each(t, 1, func(t *testing.T, s shop, name string, goods int64) {
		s.create(t, goods, 1)
		key := rand.Text()
		sv := s.strategy(t, 0, name)
		rejected, err := sv.Deduct(t.Context(), goods, keyed(key, 2))
		if err != nil || !errors.Is(rejected.Rejected, stock.ErrInsufficientStock) {
			t.Fatalf("2 of 1: %v, %v", err, rejected.Rejected)
		}
		if _, err := s.inventory.Restock(t.Context(), goods, 1, ""); err != nil {
			t.Fatal(err)
		}
		sold, err := sv.Deduct(t.Context(), goods, keyed(key, 2))
		if err != nil || sold.Rejected != nil || sold.Replayed {
			t.Errorf("after a restock: %v, %+v, want a sale", err, sold)
		}
		assertSold(t, s, goods, 2)
	})
}

// Many copies of one purchase arrive at once, on three replicas, and
// there is just enough for one: every copy must hear of the same order.
func TestManyCopiesAtOnceAreOneSale(t *testing.T) {
	each(t, 3, func(t *testing.T, s shop, name string, goods int64) {
		s.create(t, goods, 2)
		key := rand.Text()
		answers := make([]stock.Outcome, 40)
		var copies sync.WaitGroup
		for i := range answers {
			copies.Go(func() {
				var err error
				answers[i], err = s.strategy(t, i%3, name).Deduct(t.Context(), goods, keyed(key, 2))
				if err != nil || answers[i].Rejected != nil {
					t.Errorf("copy %d: %v, %v", i, err, answers[i].Rejected)
				}
			})
		}
		copies.Wait()
		for i, a := range answers {
			if a.Order != answers[0].Order {
				t.Fatalf("copy %d got %+v, copy 0 got %+v", i, a.Order, answers[0].Order)
			}
		}
		assertSold(t, s, goods, 2)
	})
}

// Copies of a purchase that cannot be served are all rejected, whatever they do
// to each other in the database.
func TestManyCopiesOfARejectionAreRejected(t *testing.T) {
	each(t, 3, func(t *testing.T, s shop, name string, goods int64) {
		s.create(t, goods, 1)
		key := rand.Text()
		var copies sync.WaitGroup
		for i := range 30 {
			copies.Go(func() {
				o, err := s.strategy(t, i%3, name).Deduct(t.Context(), goods, keyed(key, 2))
				if err != nil || !errors.Is(o.Rejected, stock.ErrInsufficientStock) {
					t.Errorf("copy %d: %v, %v, want a rejection", i, err, o.Rejected)
				}
			})
		}
		copies.Wait()
		assertSold(t, s, goods, 0)
	})
}

func TestAnUnknownOutcomeTellsWhatToSendAgain(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		through, cut := labtest.Through(t, d)
		s := openWith(t, through, d, 1) // so that the cut is the sale's, and not the lock's
		for i, name := range append(s.names(), "sql-conditional"+grouped) {
			t.Run(name, func(t *testing.T) {
				goods := int64(i + 1)
				s.create(t, goods, 5)
				commit, nth := "COMMIT", 1
				switch name {
				case "sql-procedure": // it commits by itself
					commit = "CALL stockd_sell"
				case "sql-unit": // it fills its rows first
					nth = 2
				}
				labtest.LoseNth(cut, nth, commit, true)
				sv := s.strategy(t, 0, name)
				lost, err := sv.Deduct(t.Context(), goods, stock.Purchase{Quantity: 1})
				if !errors.Is(err, stock.ErrUnknownOutcome) || lost.Order.RequestID == "" {
					t.Fatalf("%v with request id %q, want %v with one", err, lost.Order.RequestID, stock.ErrUnknownOutcome)
				}
				found, err := sv.Deduct(t.Context(), goods, keyed(lost.Order.RequestID, 1))
				if err != nil || !found.Replayed {
					t.Errorf("sent again: %v, %+v, want the order that was made", err, found)
				}
				assertSold(t, s, goods, 1)
			})
		}
	})
}

func TestAKeyOfTheAdminIsNoKeyOfABuyer(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := open(t, d, 1)
		if _, err := s.inventory.Create(t.Context(), 1, 5, 0, stock.Choice{}, "delivery-1"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), 1, keyed("delivery-1", 5)); err != nil {
			t.Error(err)
		}
		if goods, err := s.inventory.Restock(t.Context(), 1, 5, "delivery-1"); !errors.Is(err, stock.ErrKeyReused) {
			t.Errorf("the key of the creation is answered with %+v, %v; want %v", goods, err, stock.ErrKeyReused)
		}
		assertSold(t, s, 1, 5)
	})
}

func TestAnUnknownStrategyIsAnError(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := open(t, d, 1)
		if _, err := s.replicas[0].In(service.Mode{Strategy: "nonesuch"}); !errors.Is(err, service.ErrUnknownStrategy) {
			t.Errorf("%v, want %v", err, service.ErrUnknownStrategy)
		}
	})
}

// assertSold holds the ledger against what must have been sold.
func assertSold(t *testing.T, s shop, goods, sold int64) {
	t.Helper()
	audit, err := s.inventory.Audit(t.Context(), goods)
	if err != nil {
		t.Fatal(err)
	}
	if audit.Sold != sold || !audit.Clean {
		t.Errorf("audit is %+v, want %d sold, clean", audit, sold)
	}
}

func second(_ stock.Outcome, err error) error { return err }
