package service

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// shelf answers a search for items when it is opened.
type shelf struct {
	opened   chan struct{}
	existing map[int64]bool
	searches [][]int64
}

func (s *shelf) find(_ context.Context, ids ...int64) (map[int64]bool, error) {
	s.searches = append(s.searches, ids)
	<-s.opened
	return s.existing, nil
}

func newShelf(most int, existing ...int64) (*shelf, *items) {
	s := &shelf{opened: make(chan struct{}), existing: make(map[int64]bool)}
	for _, id := range existing {
		s.existing[id] = true
	}
	return s, &items{newSwitches(nil), share(s.find), mostRecent[int64, struct{}](most)}
}

// share shares a query as a catalogue does.
func share[K comparable, V any](query queue.Query[K, V]) *queue.Shared[K, V] {
	return queue.Share(query, nil, queue.Options[int, []K, map[K]V]{
		Doing: "ask", Most: 100, Within: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
}

func TestOneSearchFindsTheItemsOfAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, i := newShelf(10, 7)
		var callers sync.WaitGroup
		for n := range int64(100) {
			callers.Go(func() {
				err := i.require(t.Context(), n)
				if known := n == 7; known != (err == nil) || !known && !errors.Is(err, stock.ErrUnknownGoods) {
					t.Errorf("item %d: %v", n, err)
				}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		should.Fail(t, i.require(ctx, 7), context.DeadlineExceeded) // a caller whose time is over
		close(s.opened)
		callers.Wait()
		if len(s.searches) > 2 {
			t.Errorf("%d searches, want the first caller's and one for all others", len(s.searches))
		}
	})
}

func TestAnItemIsSearchedOnceAndAnUnknownOneEachTime(t *testing.T) {
	s, i := newShelf(10, 6, 7)
	close(s.opened)
	for range 3 {
		should.Do(t, errors.Join(i.require(t.Context(), 6), i.require(t.Context(), 7)))
	}
	should.Be(t, len(s.searches), 2, "searches for two items")
	for range 3 {
		should.Fail(t, i.require(t.Context(), 8), stock.ErrUnknownGoods)
	}
	s.existing[8] = true                    // another replica has created it
	should.Do(t, i.require(t.Context(), 8)) // an item that was just created
	i.known.Remove(7)
	delete(s.existing, 7)                                            // by hand
	should.Fail(t, i.require(t.Context(), 7), stock.ErrUnknownGoods) // an item that was deleted
}

func TestKnownItemsAreBounded(t *testing.T) {
	const most = 10
	s, i := newShelf(most)
	close(s.opened)
	for n := range int64(1000) {
		s.existing[n] = true
		should.Do(t, i.require(t.Context(), n))
		_ = i.require(t.Context(), -n-1) // unknown
		if i.known.Len() > most || !i.known.Contains(n) {
			t.Fatalf("%d items are known after item %d, want at most %d and this one", i.known.Len(), n, most)
		}
	}
}

func TestASearchThatFailsFailsItsCallers(t *testing.T) {
	broken := errors.New("the database is gone")
	_, i := newShelf(10)
	i.search = share(func(context.Context, ...int64) (map[int64]bool, error) { return nil, broken })
	should.Fail(t, i.require(t.Context(), 7), broken)
}
