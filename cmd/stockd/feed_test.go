package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/pkg/client"
)

// reader deals with steps, and stores its cursor afterwards. It dies now and then in between.
type reader struct {
	admin  client.Client
	cursor string
	dealt  []client.ListedOrder
}

// read goes on where the cursor is, until it has dealt with a number of steps and dies, or to
// the end for now.
func (r *reader) read(t *testing.T, dies int) {
	t.Helper()
	for step, err := range r.admin.Orders(t.Context(), client.Pages{Steps: true, Cursor: r.cursor, Limit: 3}) {
		must.Do(t, err)
		r.dealt = append(r.dealt, step)
		if dies--; dies == 0 {
			return
		}
		r.cursor = step.Cursor
	}
}

// once are the steps of each order without those that a reader has dealt with again.
func (r *reader) once() map[string][]string {
	steps := make(map[string][]string)
	for _, o := range r.dealt {
		if !slices.Contains(steps[o.OrderID], o.Kind) {
			steps[o.OrderID] = append(steps[o.OrderID], o.Kind)
		}
	}
	return steps
}

// Four clients buy items alone and in baskets, hold, pay, release, let expire and return, while a reader of the feed dies
// at every few steps.
func TestAReaderThatDiesMissesNoStep(t *testing.T) {
	r := startReplicaWith(t, nil)
	c := client.Client{URL: r.URL, AdminURL: r.AdminURL, Token: r.Token}
	must.Get(c.Create(t.Context(), client.NewItem{GoodsID: 1, Stock: 1000}))(t)
	var mu sync.Mutex
	want := make(map[string][]string)
	note := func(id string, steps ...string) { mu.Lock(); defer mu.Unlock(); want[id] = append(want[id], steps...) }
	var selling sync.WaitGroup
	for range 4 {
		selling.Go(func() {
			for i := range 12 {
				if err := live(t.Context(), c, i%6, note); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	feed := &reader{admin: c}
	for i := range 30 {
		feed.read(t, 1+i%7)
	}
	selling.Wait()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		feed.read(t, 0)
		if audit, err := c.AuditInFull(t.Context(), 1); err != nil {
			t.Fatal(err)
		} else if audit.Held == 0 {
			break
		}
	}
	feed.read(t, 0)
	got := feed.once()
	for id, steps := range want {
		if !slices.Equal(got[id], steps) {
			t.Errorf("the reader has dealt with %v of order %s, want %v", got[id], id, steps)
		}
	}
	if len(got) != len(want) || len(feed.dealt) <= len(want) {
		t.Errorf("the reader has dealt with %d orders of %d, in %d steps", len(got), len(want), len(feed.dealt))
	}
}

// live takes an order or a reservation to its end, and notes its steps.
func live(ctx context.Context, c client.Client, way int, note func(id string, steps ...string)) error {
	if way == 5 {
		sold, err := c.Buy(ctx, client.Basket{Lines: []client.Line{{GoodsID: 1, Quantity: 2}}})
		if err != nil {
			return err
		}
		note(sold.Lines[0].OrderID, client.StepHeld, client.StepConfirmed)
		if again, err := c.Basket(ctx, sold.OrderID); err != nil || again.OrderID != sold.OrderID || !slices.Equal(again.Lines, sold.Lines) {
			return fmt.Errorf("basket %+v is found as %+v: %w", sold, again, err)
		}
		_, err = c.Buy(ctx, client.Basket{Lines: []client.Line{{GoodsID: 404}}})
		if problem, ok := errors.AsType[*client.Problem](err); !ok || !errors.Is(err, client.ErrUnknownGoods) || problem.GoodsID != 404 {
			return fmt.Errorf("a basket with an unknown item is answered with %w", err)
		}
		return nil
	}
	if way == 0 {
		sale, err := c.Deduct(ctx, client.Purchase{GoodsID: 1})
		note(sale.OrderID, client.StepDeducted)
		return err
	}
	ttl := time.Minute
	if way == 1 {
		ttl = time.Second
	}
	held, err := c.Reserve(ctx, client.Purchase{GoodsID: 1, Quantity: 2}, ttl)
	if err != nil {
		return err
	}
	id := held.ReservationID
	switch way {
	case 1:
		note(id, client.StepHeld, client.StepExpired)
		return nil
	case 2:
		note(id, client.StepHeld, client.StepReleased)
		_, err = c.Release(ctx, id)
		return err
	}
	if _, err = c.Confirm(ctx, id, "paid-"+id); err != nil || way == 3 {
		note(id, client.StepHeld, client.StepConfirmed)
		return err
	}
	note(id, client.StepHeld, client.StepConfirmed, client.StepReturned)
	back, err := c.Return(ctx, id, 0, "")
	if err == nil && back != 2 {
		err = errors.New("not all units came back")
	}
	return err
}
