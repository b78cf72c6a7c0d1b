package repo_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// confirm pays for one reservation.
func confirm(t *testing.T, s *repo.Store, number, reference string) (r stock.Reservation, again bool, err error) {
	t.Helper()
	paid := &repo.Payment{Number: number, Reference: reference}
	answers, err := s.ConfirmLocked(t.Context(), paid)
	answer := answers[paid]
	return answer.Reservation, answer.Again, errors.Join(err, answer.Rejected)
}

// answered is a payment and what it is to be answered with.
type answered struct {
	repo.Payment

	again    bool
	rejected error
}

// wantAnswers confirms payments together.
func wantAnswers(t *testing.T, s *repo.Store, wanted []answered) {
	t.Helper()
	payments := make([]*repo.Payment, len(wanted))
	for i := range wanted {
		payments[i] = &wanted[i].Payment
	}
	answers, err := s.Confirm(t.Context(), payments...)
	if err != nil || len(answers) != len(wanted) {
		t.Fatalf("%d payments have %d answers, %v", len(wanted), len(answers), err)
	}
	for i, want := range wanted {
		got := answers[payments[i]]
		if got.Again != want.again || !errors.Is(got.Rejected, want.rejected) {
			t.Errorf("payment %d is answered with again %v, %v; want %v, %v", i, got.Again, got.Rejected, want.again, want.rejected)
		}
		if got.Number != want.Number && !errors.Is(want.rejected, stock.ErrUnknownReservation) && !errors.Is(got.Rejected, stock.ErrReferenceUsed) {
			t.Errorf("payment %d is answered with %+v", i, got.Reservation)
		}
		if got.Rejected == nil && (got.Number != want.Number || got.State != stock.Confirmed || got.PaymentReference != want.Reference) {
			t.Errorf("payment %d has confirmed %+v", i, got.Reservation)
		}
	}
}

func TestPaymentsThatComeTogetherAreAnsweredAsAlone(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 100)
		ended := make(map[stock.State]string)
		for state, end := range endings() {
			ended[state] = hold(t, s, 1, 1, "")
			end(t, s, ended[state])
		}
		first, second, third := hold(t, s, 1, 2, ""), hold(t, s, 1, 4, ""), hold(t, s, 1, 8, "")
		confirmed := ended[stock.Confirmed]
		wanted := []answered{
			{Payment: repo.Payment{Number: first, Reference: "a"}},
			{Payment: repo.Payment{Number: confirmed, Reference: "paid-" + confirmed}, again: true},
			{Payment: repo.Payment{Number: confirmed, Reference: "b"}, rejected: stock.ErrConfirmed},
			{Payment: repo.Payment{Number: ended[stock.Released], Reference: "c"}, rejected: stock.ErrReleased},
			{Payment: repo.Payment{Number: ended[stock.Expired], Reference: "d"}, rejected: stock.ErrExpired},
			{Payment: repo.Payment{Number: "404", Reference: "e"}, rejected: stock.ErrUnknownReservation},
			{Payment: repo.Payment{Number: "小明", Reference: "i"}, rejected: stock.ErrUnknownReservation},
			{Payment: repo.Payment{Number: uuid.NewString(), Reference: "j"}, rejected: stock.ErrUnknownReservation},
			{Payment: repo.Payment{Number: first, Reference: "a"}, again: true},
			{Payment: repo.Payment{Number: first, Reference: "f"}, rejected: stock.ErrConfirmed},
		}
		wantAnswers(t, s, wanted)
		wantSums(t, s, 100-1-2-1-4-8, 1+4+8, 1+2, 0)

		// A reference that is used fails no other payment.
		wantAnswers(t, s, []answered{
			{Payment: repo.Payment{Number: second, Reference: "a"}, rejected: stock.ErrReferenceUsed},
			{Payment: repo.Payment{Number: third, Reference: "g"}},
			{Payment: repo.Payment{Number: second, Reference: "g"}, rejected: stock.ErrReferenceUsed},
			{Payment: repo.Payment{Number: second, Reference: "h"}},
		})
		wantSums(t, s, 100-1-2-1-4-8, 1, 1+2+4+8, 0)
	})
}

// A reservation is locked, as by a sweeper that is paused: payments for others wait for it no longer than it
// takes to see that, and those for it are answered alone.
func TestAReservationThatIsLockedKeepsNoOtherPaymentWaiting(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, through, proxy := besideAProxy(t, d, 10)
		locked, free := hold(t, s, 1, 1, ""), hold(t, s, 1, 2, "")
		paid, reuses, third := hold(t, s, 1, 1, ""), hold(t, s, 1, 1, ""), hold(t, s, 1, 1, "")
		must.Do(t, errOf(confirm(t, s, paid, "taken")))
		step, released := releaseHeld(t, through, proxy, locked, "SET state = 'released'")
		waits, other := &repo.Payment{Number: locked, Reference: "a"}, &repo.Payment{Number: free, Reference: "b"}
		unknown := &repo.Payment{Number: uuid.NewString(), Reference: "c"}
		answers, err := s.Confirm(t.Context(), waits, other, unknown, &repo.Payment{Number: locked, Reference: "again"})
		if err != nil || len(answers) != 2 || answers[other].Rejected != nil || !errors.Is(answers[unknown].Rejected, stock.ErrUnknownReservation) {
			t.Errorf("the payments are answered with %+v (%v)", answers, err)
		}
		taken, last := &repo.Payment{Number: reuses, Reference: "taken"}, &repo.Payment{Number: third, Reference: "d"}
		answers, err = s.Confirm(t.Context(), waits, taken, last)
		if err != nil || len(answers) != 2 || !errors.Is(answers[taken].Rejected, stock.ErrReferenceUsed) || answers[last].Rejected != nil {
			t.Errorf("beside a reference that is used they are answered with %+v (%v)", answers, err)
		}
		step.Pass()
		must.Do(t, <-released)
		should.Fail(t, errOf(confirm(t, s, locked, "a")), stock.ErrReleased, "alone it is answered with")
		wantSums(t, s, 5, 1, 4, 0)
	})
}

// The time of one is over while the transaction waits for the row of the other.
func TestAReservationThatExpiresAmongOthersIsNotConfirmed(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, through, proxy := besideAProxy(t, d, 10)
		expires, stays := hold(t, s, 1, 1, ""), hold(t, s, 1, 2, "")
		must.Do(t, s.ExpireIn(t.Context(), expires, 500*time.Millisecond))
		update := proxy.Arm(servers.Rule{Sent: "SET state = 'confirmed'", Do: servers.Hold})
		done := make(chan struct{})
		go func() {
			defer close(done)
			wantAnswers(t, through, []answered{
				{Payment: repo.Payment{Number: expires, Reference: "a"}, rejected: stock.ErrExpired},
				{Payment: repo.Payment{Number: stays, Reference: "b"}},
			})
		}()
		labtest.AwaitReached(t, update)
		time.Sleep(600 * time.Millisecond) // by the clock of the server it is over then
		update.Pass()
		<-done
		wantSums(t, s, 7, 1, 2, 0)
	})
}

// Lines are confirmed all or none, in their order, each under its number. The same again is answered as before.
func TestLinesAreConfirmedTogetherOrNotAtAll(t *testing.T) {
	s := onSale(t, lab.Database(t, servers.SQLite), 100)
	first, second, third := hold(t, s, 1, 1, "ann"), hold(t, s, 1, 2, "ann"), hold(t, s, 1, 4, "ann")
	paid, released := hold(t, s, 1, 8, ""), hold(t, s, 1, 16, "")
	endings()[stock.Confirmed](t, s, paid) // under another reference
	endings()[stock.Released](t, s, released)
	for _, c := range []struct {
		name    string
		numbers []string
		again   bool
		want    error
		sold    int64
	}{
		{"with one that was released", []string{first, released, paid}, false, stock.ErrReleased, 8},
		{"with one that was paid otherwise", []string{first, paid}, false, stock.ErrConfirmed, 8},
		{"with an unknown one", []string{first, "404"}, false, stock.ErrUnknownReservation, 8},
		{"two", []string{second, first}, false, nil, 11},
		{"the same", []string{second, first}, true, nil, 11},
		{"one that is new", []string{third, first}, false, nil, 15},
		{"all of them", []string{first, third, second}, true, nil, 15},
	} {
		confirmed, again, err := s.ConfirmAll(t.Context(), c.numbers)
		if !errors.Is(err, c.want) || again != c.again || err == nil && len(confirmed) != len(c.numbers) {
			t.Errorf("%s: %d are confirmed, again %v, %v; want again %v, %v", c.name, len(confirmed), again, err, c.again, c.want)
		}
		for i, r := range confirmed {
			if r.Number != c.numbers[i] || r.PaymentReference != r.Number || r.State != stock.Confirmed || r.UserID != "ann" {
				t.Errorf("%s: line %d is %+v", c.name, i, r)
			}
		}
		wantSums(t, s, 100-1-2-4-8, 15-c.sold, c.sold, 0)
	}
}

// The lines of a basket are those that are confirmed, in the order of their items.
func TestOnlyConfirmedLinesAreThoseOfABasket(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		createItems(t, s, 3)
		const basket, before = "018bcfe5-6800-7000-8000-00000000000b", "018bcfe5-6800-7000-8000-00000000000a"
		others := []string{basket, basket + "0-1-1", before + "-1-1"}
		for i, of := range append([]string{basket + "-1-3", basket + "-2-3", basket + "-3-3"}, others...) {
			item := []int64{3, 1, 2}[i%3]
			batch := []stock.Purchase{{RequestID: fmt.Sprint("line ", i), Quantity: 1, TTL: time.Hour, Number: of}}
			must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
				_, err := tx.Append(t.Context(), repo.Sale{GoodsID: item, Batch: batch})
				return err
			}))
		}
		for _, another := range others {
			must.Do(t, errOf(confirm(t, s, another, another)))
		}
		for confirmed, number := range []string{"", basket + "-1-3", basket + "-3-3"} {
			if number != "" {
				must.Do(t, errOf(confirm(t, s, number, number)))
			}
			lines := must.Get(s.ConfirmedLines(t.Context(), basket))(t)
			must.Be(t, len(lines), confirmed, "the lines that are confirmed", lines)
			if confirmed == 2 && (lines[0].GoodsID != 2 || lines[1].GoodsID != 3) {
				t.Errorf("the lines are %+v, want those of items 2 and 3", lines)
			}
		}
	})
}

func TestWhatHasEndedIsNotCountedAsHeld(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		paid, released, late := hold(t, s, 1, 1, ""), hold(t, s, 1, 1, ""), hold(t, s, 1, 1, "")
		hold(t, s, 1, 1, "")
		over(t, s, late)
		if n, err := s.Reservations(t.Context()); err != nil || n.Open != 4 || n.Overdue != 1 || n.Lag < time.Second || n.Lag > time.Minute {
			t.Errorf("of four, one of them overdue by a second, there are %+v, %v", n, err)
		}
		must.Do(t, errOf(confirm(t, s, paid, "paid")), errOf(s.Release(t.Context(), released)), errOf(s.Expire(t.Context(), 10)))
		should.Be(t, must.Get(s.Reservations(t.Context()))(t), (repo.Reservations{Open: 1}), "of four, of which three have ended, there are")
	})
}

// A line that is locked is waited for: a basket is not confirmed without it.
func TestABasketWaitsForALineThatIsLocked(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, through, proxy := besideAProxy(t, d, 10)
		locked, free := hold(t, s, 1, 1, ""), hold(t, s, 1, 2, "")
		step, released := releaseHeld(t, through, proxy, locked, "SET state = 'released'")
		answered := make(chan error, 1)
		go func() { answered <- errOf(s.ConfirmAll(t.Context(), []string{locked, free})) }()
		labtest.AwaitRowWait(t, d, "SELECT number%", answered)
		step.Pass()
		must.Do(t, <-released)
		should.Fail(t, <-answered, stock.ErrReleased)
		wantSums(t, s, 8, 2, 0, 0)
	})
}
