package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/pkg/client"
)

// One kill of each kind, among reservations that are made, paid, released and that expire; the proof
// makes fifty of each.
func TestReservationsSurviveKills(t *testing.T) {
	reserveAndKill(t, servers.MariaDB, 1, redisStockKilled(), groupedAndKilled("sql-conditional"))
}

// reserveAndKill has clients take reservations to their ends through three replicas, and kills a
// replica, the database or Redis, each so often, at a random moment. Every reservation must end once, as its
// client was answered, and every unit be sold or back.
func reserveAndKill(t *testing.T, database string, each int, subjects ...killed) {
	t.Helper()
	l, server, store := startToKill(t, database)
	goods := int64(0)
	for _, subject := range subjects {
		t.Run(subject.String(), func(t *testing.T) {
			again, ends, rounds := 0, make(map[string]int), each*len(subject.victims)
			for round := range rounds {
				goods++
				r := &killedReservations{
					killedSale: killedSale{
						lab: l, redis: server, store: store, subject: subject, goods: goods, units: 120,
						victim: subject.victims[round%len(subject.victims)],
					},
					wanted: make(map[string]string),
				}
				t.Run(fmt.Sprintf("%d-%s", round+1, r.victim), r.run)
				again += r.again
				for _, end := range r.wanted {
					ends[end]++
				}
			}
			t.Logf("%d kills: %v, and %d times a client without an answer asked again", rounds, ends, again)
			if again == 0 {
				t.Error("no kill came in the middle of anything")
			}
		})
	}
}

// killedReservations are those of one item, in the middle of which something is killed.
type killedReservations struct {
	killedSale

	// wanted is how each reservation must have ended, by what its client was answered; empty
	// where it was to expire.
	wanted map[string]string
}

func (r *killedReservations) run(t *testing.T) {
	if err := r.lab.cluster.Client().CreateGoods(t.Context(), r.goods, r.units); err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			for n := range 10 {
				time.Sleep(rand.N(80 * time.Millisecond)) // so that they are not over before the kill
				if err := r.live(t.Context(), i, n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(rand.N(300 * time.Millisecond))
	if err := r.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	r.compare(t)
}

// at is a replica as a shop's server asks it.
func (r *killedReservations) at(replica int) client.Client {
	at := r.lab.cluster.Replicas[replica%3]
	return client.Client{URL: at.URL, AdminURL: at.AdminURL, Token: r.lab.cluster.Client().Token, Tries: 1, HTTP: &http.Client{Timeout: 5 * time.Second}}
}

// until asks one replica after the other until there is an answer that is final.
func (r *killedReservations) until(first int, ask func(client.Client) error) error {
	for try, end := 0, time.Now().Add(saleWithin); ; try++ {
		err := ask(r.at(first + try))
		final := err == nil || errors.Is(err, client.ErrSoldOut) || errors.Is(err, client.ErrReservationExpired)
		if final || time.Now().After(end) {
			r.mu.Lock()
			r.again += try
			r.mu.Unlock()
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// live takes a reservation to its end, and notes which it must be.
func (r *killedReservations) live(ctx context.Context, who, n int) error {
	var held client.Reservation
	p := client.Purchase{
		RequestID: fmt.Sprintf("%d-%d-%d", r.goods, who, n), GoodsID: r.goods, Strategy: r.subject.strategy, Group: &r.subject.group,
		Fence: new(r.subject.modifier == "fence=true"),
	}
	err := r.until(who+n, func(c client.Client) (err error) { held, err = c.Reserve(ctx, p, time.Second); return err })
	if errors.Is(err, client.ErrSoldOut) {
		return nil
	}
	if err != nil {
		return err
	}
	end, id := "", held.ReservationID
	switch n % 3 {
	case 0:
		end = client.StepConfirmed
		err = r.until(who+n, func(c client.Client) error { _, err := c.Confirm(ctx, id, "paid-"+id); return err })
	case 1:
		end = client.StepReleased
		err = r.until(who+n, func(c client.Client) error { _, err := c.Release(ctx, id); return err })
	}
	if errors.Is(err, client.ErrReservationExpired) {
		end, err = client.StepExpired, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted[id] = end
	return err
}

// compare waits until nothing is held, and compares the ledger with what the clients know.
func (r *killedReservations) compare(t *testing.T) {
	t.Helper()
	var audit client.Audit
	if !labtest.Eventually(saleWithin, func() (done bool) {
		var err error
		audit, err = r.at(0).AuditInFull(t.Context(), r.goods)
		return err == nil && audit.Held == 0 && audit.Pending != nil && *audit.Pending == 0
	}) {
		t.Fatalf("something stays held: %+v", audit)
	}
	steps, paid := make(map[string][]string), int64(0)
	rows, err := readLedger(t.Context(), r.lab.database, r.goods)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		switch row.Kind {
		case "restock": // the first units
			continue
		case client.StepConfirmed:
			paid++
		}
		steps[row.Order] = append(steps[row.Order], row.Kind)
	}
	for id, end := range r.wanted {
		if end == "" {
			end = client.StepExpired
		}
		had, want := slices.Sorted(slices.Values(steps[id])), slices.Sorted(slices.Values([]string{client.StepHeld, end}))
		if !slices.Equal(had, want) {
			t.Errorf("reservation %s has had %v, want %v", id, had, want)
		}
	}
	if !audit.Clean || audit.Sold != paid || audit.Stock != r.units-paid || len(steps) != len(r.wanted) {
		t.Errorf("%d reservations of %d that were answered, %d are paid, and the audit is %+v", len(steps), len(r.wanted), paid, audit)
	}
}
