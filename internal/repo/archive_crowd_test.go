package repo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// archiveBuyer buys, holds, returns and asks again, as a service does that looks up its keys.
type archiveBuyer struct {
	store *repo.Store
	name  string
	// first are the answers to its keys, and left the units of each that did not come back.
	first map[string]stock.Order
	left  map[string]int64
	sums  stock.Sums
}

// sell sells units of item 1, or holds them where they have a number.
func (b *archiveBuyer) sell(ctx context.Context, key string, units int64, number string) (order stock.Order, err error) {
	p := stock.Purchase{RequestID: stock.BuyerKey(key, b.name), Keyed: true, Quantity: units, UserID: b.name, Number: number}
	if number != "" {
		p.TTL = time.Hour
	}
	err = b.store.InTx(ctx, func(tx *repo.Tx) error {
		goods, err := tx.Goods(ctx, 1)
		if err != nil {
			return err
		}
		if _, err := tx.CountIn(ctx, 1, goods.PerUser, []stock.Purchase{p}); err != nil {
			return err
		}
		orders, err := tx.Append(ctx, repo.Sale{GoodsID: 1, Batch: []stock.Purchase{p}})
		if err != nil {
			return err
		}
		order = orders[0]
		return errOf(tx.SubtractIfEnough(ctx, 1, units))
	})
	return order, err
}

// buy sells under a key, unless it did before.
func (b *archiveBuyer) buy(ctx context.Context, key string, units int64) error {
	request := stock.BuyerKey(key, b.name)
	known, err := b.store.Orders(ctx, request)
	if err != nil {
		return err
	}
	if _, sold := b.first[key]; sold {
		return b.isFirst(key, known)
	}
	if got, found := known[request]; found {
		return fmt.Errorf("key %s has %+v before it was used", key, got)
	}
	order, err := b.sell(ctx, key, units, "")
	if err != nil {
		return err
	}
	b.first[key], b.left[order.ID] = order, units
	b.sums.Sold, b.sums.Orders = b.sums.Sold+units, b.sums.Orders+1
	return nil
}

// isFirst returns an error where a key is not answered with its first answer.
func (b *archiveBuyer) isFirst(key string, known map[string]stock.Order) error {
	first := b.first[key]
	got, found := known[first.RequestID]
	if !found || got.ID != first.ID || got.Quantity != first.Quantity || !got.CreatedAt.Equal(first.CreatedAt) {
		return fmt.Errorf("key %s is answered with %+v, %v; want %+v", key, got, found, first)
	}
	return nil
}

// asksAll asks for all keys again.
func (b *archiveBuyer) asksAll(ctx context.Context) error {
	requests := make([]string, 0, len(b.first))
	for _, first := range b.first {
		requests = append(requests, first.RequestID)
	}
	known, err := b.store.Orders(ctx, requests...)
	for key := range b.first {
		err = errors.Join(err, b.isFirst(key, known))
	}
	return err
}

// reserve holds units, and confirms or releases them.
func (b *archiveBuyer) reserve(ctx context.Context, key string, paid bool) error {
	number := uuid.Must(uuid.NewV7()).String()
	if _, err := b.sell(ctx, key, 2, number); err != nil {
		return err
	}
	if !paid {
		return errOf(b.store.Release(ctx, number))
	}
	p := &repo.Payment{Number: number, Reference: number}
	answers, err := b.store.ConfirmLocked(ctx, p)
	if err := errors.Join(err, answers[p].Rejected); err != nil {
		return err
	}
	b.left[number] = 2
	b.sums.Sold, b.sums.Orders = b.sums.Sold+2, b.sums.Orders+1
	return nil
}

// giveBack returns a unit of any of its orders, under a key that it sends twice.
func (b *archiveBuyer) giveBack(ctx context.Context, key string) error {
	for number, left := range b.left {
		_, err := b.store.GiveBack(ctx, number, 1, stock.ReturnKey.Of(key), false)
		if left == 0 {
			if !errors.Is(err, stock.ErrReturned) {
				return fmt.Errorf("return of an order that is returned: %w", err)
			}
			return nil
		}
		if err != nil {
			return err
		}
		b.left[number]--
		b.sums.Returned++
		if left == 1 {
			return nil
		}
		if _, err = b.store.GiveBack(ctx, number, 1, stock.ReturnKey.Of(key), false); !errors.Is(err, stock.ErrDuplicateRequest) {
			return fmt.Errorf("return under a key that was used: %w", err)
		}
		return nil
	}
	return nil
}

// act does the n-th thing.
func (b *archiveBuyer) act(ctx context.Context, n int) error {
	key := fmt.Sprint(b.name, "-", n)
	switch n % 6 {
	case 3:
		return b.reserve(ctx, key, n%12 == 3)
	case 4:
		return b.giveBack(ctx, key)
	case 5:
		b.sums.Restocked += 3
		_, err := b.store.Restock(ctx, 1, 3, stock.RestockKey.Of(key))
		return err
	}
	if err := b.buy(ctx, key, 1+int64(n%3)); err != nil {
		return err
	}
	for again := range b.first { // any of them
		return b.buy(ctx, again, 0)
	}
	return nil
}

// archiveOften settles what no transaction of this test can still write, and moves it in small
// batches. It calls enough when it has done so twice.
func archiveOften(t *testing.T, s *repo.Store, enough func(), done <-chan struct{}) {
	t.Helper()
	defer enough() // also after a failure
	const rounds = 2
	for round := 0; ; {
		if round == rounds {
			enough()
		}
		select {
		case <-done:
			return
		case <-time.After(50 * time.Millisecond):
		}
		err := s.SettleAll(t.Context())
		if err == nil {
			time.Sleep(50 * time.Millisecond)
			err = errors.Join(s.Age(t.Context()), s.SettleAll(t.Context()), s.SettleAll(t.Context()))
		}
		all := int64(0)
		for moved := int64(1); moved > 0 && err == nil; all += moved {
			moved, err = s.Archive(t.Context(), time.Now(), 1+rand.IntN(30))
		}
		if all > 0 {
			round++
		}
		if err != nil && !errors.Is(err, stock.ErrBusy) {
			t.Error(err)
			return
		}
	}
}

// Buyers buy, hold, give back and ask again, and an admin restocks, while the ledger is archived under
// them: each key has its first answer, each row is listed once, and the audits are exact.
func TestSalesGoOnWhileTheLedgerIsArchived(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").ArchivingAtOnce()
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 1_000_000, PerUser: 1_000_000}, "first"))
		enough, stop := context.WithTimeout(t.Context(), 30*time.Second)
		defer stop()
		buyers := make([]*archiveBuyer, 3)
		var buying, others sync.WaitGroup
		for i := range buyers {
			b := &archiveBuyer{store: s, name: fmt.Sprint("buyer-", i), first: make(map[string]stock.Order), left: make(map[string]int64)}
			buyers[i] = b
			buying.Go(func() {
				for n := 0; n < 24 || enough.Err() == nil; n++ {
					if err := b.act(t.Context(), n); err != nil {
						t.Errorf("%s, %d: %v", b.name, n, err)
						return
					}
				}
			})
		}
		done, seen := make(chan struct{}), []string(nil)
		others.Go(func() { archiveOften(t, s, stop, done) })
		others.Go(func() { seen = follow(t, s, 1, 7, done) })
		buying.Wait()
		close(done)
		others.Wait()
		asksAgain(t, s, buyers, seen)
	})
}

// asksAgain compares the ledger with what the buyers got, with some of it archived and with all of it.
func asksAgain(t *testing.T, s *repo.Store, buyers []*archiveBuyer, seen []string) {
	t.Helper()
	want := stock.Sums{Restocked: 1_000_000}
	for _, b := range buyers {
		want.Restocked, want.Sold, want.Orders = want.Restocked+b.sums.Restocked, want.Sold+b.sums.Sold, want.Orders+b.sums.Orders
		want.Returned += b.sums.Returned
	}
	for range 2 {
		live, archived, err := s.Rows(t.Context())
		if must.Do(t, err); len(archived) == 0 || !slices.IsSorted(slices.Concat(archived, live)) {
			t.Errorf("the archive has %d rows and the ledger %d, or they are not in order", len(archived), len(live))
		}
		for _, b := range buyers {
			must.Do(t, b.asksAll(t.Context()))
		}
		quick, full := bothAudits(t, s, 1)
		got := stock.Sums{Restocked: full.Initial, Sold: full.Sold, Orders: full.Orders, Held: full.Held, Returned: full.Returned}
		buyers := full.Buyers
		if full.Buyers = nil; got != want || !full.Clean || buyers == nil || full != quick {
			t.Errorf("the audits are %+v and %+v, want %+v", quick, full, want)
		}
		must.Do(t, settleNow(t, s), settleNow(t, s), s.AgeTotals(t.Context()))
		listed := allPages(t, s, 1, 11)
		if int64(len(listed)) != want.Orders || len(seen) > len(listed) {
			t.Errorf("%d orders are listed, and %d were seen before; want %d", len(listed), len(seen), want.Orders)
		}
		for i, request := range seen {
			must.Be(t, listed[i].RequestID, request, "order", i, "as it was seen")
		}
		_, err = s.Archive(t.Context(), time.Now(), repo.MaxArchived)
		must.Do(t, err)
	}
}
