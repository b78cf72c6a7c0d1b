package repo_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// yesterday is long enough ago.
func yesterday() time.Time { return time.Now().Add(-24 * time.Hour) }

// archive moves one batch of what is older than two hours.
func archive(t *testing.T, s *repo.Store, most int) (moved int64) {
	t.Helper()
	moved = must.Get(s.Archive(t.Context(), time.Now().Add(-2*repo.MinAge), most))(t)
	return moved
}

// wantRows compares the ids of both tables.
func wantRows(t *testing.T, s *repo.Store, when string, live, archived []int64) {
	t.Helper()
	l, a, err := s.Rows(t.Context())
	must.Do(t, err)
	if !slices.Equal(l, live) || !slices.Equal(a, archived) {
		t.Errorf("%s: the ledger has the rows %v and the archive %v; want %v and %v", when, l, a, live, archived)
	}
}

func TestRowsAreArchivedInTheirOrderUntilOneHasToStay(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 100) // row 1
		for i := range 5 {
			must.Do(t, sell(t.Context(), s, 1, fmt.Sprint("old ", i))) // 2 to 6
		}
		must.Do(t, sell(t.Context(), s, 1, "young"), sell(t.Context(), s, 1, "behind")) // 7, 8
		must.Do(t, s.AcceptedAt(t.Context(), yesterday(), ""), s.AcceptedAt(t.Context(), time.Now(), "young"))
		moves := func(when string, most int, want int64) {
			t.Helper()
			should.Be(t, archive(t, s, most), want, "rows are moved", when)
		}
		moves("nothing is settled", 100, 0)
		must.Do(t, settleNow(t, s))
		moves("nothing was settled an hour ago", 100, 0)
		must.Do(t, s.AgeTotals(t.Context()), sell(t.Context(), s, 1, "newest")) // 9
		must.Do(t, s.AcceptedAt(t.Context(), yesterday(), "newest"))
		for _, young := range []time.Duration{0, repo.MinAge - time.Second} {
			if moved, err := s.Archive(t.Context(), time.Now().Add(-young), 100); !errors.Is(err, repo.ErrTooYoung) || moved != 0 {
				t.Errorf("what is older than %s: %d rows are moved, %v; want %v", young, moved, err, repo.ErrTooYoung)
			}
		}
		moves("two at most", 2, 2)
		wantRows(t, s, "after two", []int64{3, 4, 5, 6, 7, 8, 9}, []int64{1, 2})
		moves("up to the first young row", 100, 4)
		moves("again", 100, 0)
		wantRows(t, s, "the young row stays with all after it", []int64{7, 8, 9}, []int64{1, 2, 3, 4, 5, 6})
		must.Do(t, s.AcceptedAt(t.Context(), yesterday(), "young"))
		moves("the last row is not settled", 100, 2)
		must.Do(t, settleNow(t, s), s.AgeTotals(t.Context()))
		moves("the newest row is left", 100, 0)
		wantRows(t, s, "the newest row stays", []int64{9}, []int64{1, 2, 3, 4, 5, 6, 7, 8})
		if at, err := s.ArchiveState(t.Context()); err != nil || at.Oldest.Sub(yesterday()).Abs() > time.Minute ||
			at != (repo.ArchiveState{Archived: 8, First: 9, Last: 9, Settled: 9, Aged: 9, Oldest: at.Oldest}) {
			t.Errorf("it is archived as %+v (%v), want up to row 8 of 9", at, err)
		}
		must.Do(t, sell(t.Context(), s, 1, "next"), settleNow(t, s))
		wantRows(t, s, "rows are not numbered anew", []int64{9, 10}, []int64{1, 2, 3, 4, 5, 6, 7, 8})
		should.Be(t, unsettled(t, s), 0, "ids are not settled")
		wantSums(t, s, 91, 0, 9, 0)
	})
}

// The clock of the database decides, whatever the rows say of their time.
func TestTotalsComeOfAgeAfterAnHour(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 100)
		must.Do(t, settleNow(t, s), s.AgingSince(t.Context(), 48*time.Hour), s.SettleAll(t.Context()))
		must.Do(t, sell(t.Context(), s, 1, "later"), settleNow(t, s))
		for _, c := range []struct {
			since time.Duration
			aged  int64
		}{
			{repo.MinAge - time.Minute, 0},
			{repo.MinAge + time.Minute, 1},
			{repo.MinAge - time.Minute, 1},
			{repo.MinAge + time.Minute, 2},
		} {
			must.Do(t, s.AgingSince(t.Context(), c.since), s.SettleAll(t.Context()))
			if at, err := s.ArchiveState(t.Context()); err != nil || at.Aged != c.aged || at.Settled != 2 {
				t.Errorf("after %s it is %+v (%v), want what is of age up to %d of 2", c.since, at, err, c.aged)
			}
		}
	})
}

// ledgerView is all that is read of rows that may be archived.
type ledgerView struct {
	byRequest map[string]stock.Order
	byNumber  map[string]stock.Order
	ofKeys    map[string][]stock.Order
	pages     map[string][]stock.Order
	audits    map[int64]stock.Audit
	all       stock.Audits
	buyers    []repo.UserUnits
	audited   stock.Audit // with the buyers
}

// viewLedger reads a ledger in every way.
func viewLedger(t *testing.T, s *repo.Store, requests, numbers []string) ledgerView {
	t.Helper()
	v := ledgerView{
		byNumber: make(map[string]stock.Order), ofKeys: make(map[string][]stock.Order),
		pages: make(map[string][]stock.Order), audits: make(map[int64]stock.Audit),
	}
	var err error
	if v.byRequest, err = s.Orders(t.Context(), requests...); err != nil {
		t.Fatal(err)
	}
	for _, request := range requests {
		key := stock.KeyOf(request)
		if v.ofKeys[key], err = s.OrdersOfKey(t.Context(), key, 2); err != nil {
			t.Fatal(err)
		}
	}
	for _, number := range numbers {
		order, ok, err := s.Order(t.Context(), number)
		if must.Do(t, err); ok {
			v.byNumber[number] = order
		}
	}
	for _, item := range []int64{0, 1} {
		for _, kinds := range [][]stock.Kind{nil, stock.Steps()} {
			for _, size := range []int{3, 100} {
				v.pages[fmt.Sprintf("of item %d, kinds %v, %d at a time", item, kinds, size)] = allPages(t, s, item, size, kinds...)
			}
		}
	}
	for _, item := range []int64{1, 2} {
		quick, full := bothAudits(t, s, item)
		if quick != full || !full.Clean {
			t.Errorf("item %d audits as %+v, in full %+v", item, quick, full)
		}
		v.audits[item] = full
	}
	if v.all, err = s.AuditAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.countBuyers(t, s)
	return v
}

// countBuyers sets a limit, which counts what all buyers have, and takes it back.
func (v *ledgerView) countBuyers(t *testing.T, s *repo.Store) {
	t.Helper()
	must.Do(t, s.SetLimit(t.Context(), 1, 1))
	var err, wrong error
	v.buyers, err = s.UsersAfter(t.Context(), 1, "")
	v.audited, wrong = s.AuditInFull(t.Context(), 1)
	must.Do(t, err, wrong, s.SetLimit(t.Context(), 1, 0))
}

// allPages follows a listing to its end.
func allPages(t *testing.T, s *repo.Store, item int64, size int, kinds ...stock.Kind) (all []stock.Order) {
	t.Helper()
	for after := int64(0); ; {
		page, next, err := s.OrdersAfter(t.Context(), item, after, size, kinds...)
		if must.Do(t, err); len(page) > size || next < after {
			t.Fatalf("a page of %d after %d has %d orders and ends at %d", size, after, len(page), next)
		}
		if all = append(all, page...); len(page) < size {
			return all
		}
		after = next
	}
}

// busyLedger writes a row of each kind, for several buyers, and returns what they are found by.
func busyLedger(t *testing.T, s *repo.Store) (requests, numbers []string) {
	t.Helper()
	create(t, s, 1, 100)
	must.Do(t, s.CreateGoods(t.Context(), 2, 50, stock.RestockKey.Of("two")))
	for _, buyer := range []string{"ann", "bob", "ann", ""} {
		key := fmt.Sprint("key-", len(requests))
		requests = append(requests, stock.BuyerKey(key, buyer))
		numbers = append(numbers, buy(t, s, 1, 2, key, buyer))
	}
	requests = append(requests, stock.BuyerKey("key-0", "bob"))
	numbers = append(numbers, buy(t, s, 1, 1, "key-0", "bob"))
	requests = append(requests, "another item")
	numbers = append(numbers, buy(t, s, 2, 1, "another item", ""))
	kept := stock.Order{
		ID: "018bcfe5-6800-7000-8000-000000000001", Kind: stock.Deduction, RequestID: "kept", GoodsID: 1, Quantity: 3, UserID: "ann",
		Remaining: 8, Strategy: "elsewhere", Replica: "r", CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	_, err := s.Fill(t.Context(), 1, "elsewhere", 0)
	must.Do(t, err, s.Keep(t.Context(), "elsewhere", []repo.PendingOrder{{Order: kept, Epoch: 1}}))
	paid, released := hold(t, s, 2, 4, "ann"), hold(t, s, 2, 5, "bob")
	open := hold(t, s, 2, 6, "ann")
	must.Do(t, errOf(confirm(t, s, paid, "pay-1")), errOf(s.Release(t.Context(), released)))
	numbers = append(numbers, kept.ID, paid, released, open)
	for i, of := range []string{numbers[0], kept.ID, paid} {
		must.Get(s.GiveBack(t.Context(), of, 1, stock.ReturnKey.Of(fmt.Sprint("back-", i)), false))(t)
	}
	_, err = s.Restock(t.Context(), 1, 7, stock.RestockKey.Of("more"))
	must.Do(t, err)
	requests = append(requests, "kept", "unknown", stock.ReturnKey.Of("back-0"), stock.RestockKey.Of("more"), stock.RestockKey.Of("two"), stock.FinalKey.Of(paid))
	return requests, numbers
}

// buy buys units of an item without a limit under a key, and returns the number of the order.
func buy(t *testing.T, s *repo.Store, item, units int64, key, buyer string) (number string) {
	t.Helper()
	must.Do(t, s.As("sql-conditional").InTx(t.Context(), func(tx *repo.Tx) error {
		batch := []stock.Purchase{{RequestID: stock.BuyerKey(key, buyer), Keyed: true, Quantity: units, UserID: buyer}}
		left := int64(50)
		orders, err := tx.Append(t.Context(), repo.Sale{GoodsID: item, Batch: batch, Left: &left})
		if err != nil {
			return err
		}
		number = orders[0].ID
		return errOf(tx.SubtractIfEnough(t.Context(), item, units))
	}))
	return number
}

// Batch by batch, what is read of the ledger stays the same while all of it is archived. On a server the archive
// gets the partitions of the document meanwhile.
func TestWhatIsReadOfTheLedgerStaysTheSameWhileItIsArchived(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		requests, numbers := busyLedger(t, s)
		labtest.AgeLedger(t, d, s)
		want := viewLedger(t, s, requests, numbers)
		if len(want.byRequest) != len(requests)-1 || len(want.byNumber) != len(numbers)-2 || len(want.buyers) != 2 || !want.audited.Clean {
			t.Fatalf("before: %+v", want)
		}
		rows, most := int64(0), 4
		if d.Driver == repo.SQLite {
			most = 1 // where it is quick
		}
		for moved := archive(t, s, most); moved > 0; moved = archive(t, s, most) {
			if rows += moved; rows == 4 && most == 4 {
				partitionArchive(t, s)
			}
			if got := viewLedger(t, s, requests, numbers); !reflect.DeepEqual(got, want) {
				t.Fatalf("with %d rows archived the ledger is\n%+v, want\n%+v", rows, got, want)
			}
		}
		if live, _, err := s.Rows(t.Context()); err != nil || live[0] != rows+1 || rows < 15 { // each look sets a limit
			t.Errorf("%d rows were archived, and %v are left (%v)", rows, live, err)
		}
	})
}

// What is not sold through a look-up of the service is looked up in the transaction that writes it.
func TestARequestIDOfTheArchiveIsUsedUp(t *testing.T) {
	d := lab.Database(t, servers.SQLite) // the statements are those of every database
	s := labtest.Open(t, d, "r")
	_, numbers := busyLedger(t, s)
	labtest.Archive(t, d, s)
	before, _ := bothAudits(t, s, 1)
	filled := must.Get(s.Fill(t.Context(), 1, "elsewhere", 0))(t)
	lateOrder := func(number, request string, of time.Time) error {
		return s.Keep(t.Context(), "elsewhere", []repo.PendingOrder{
			{Epoch: filled.Epoch, Order: stock.Order{
				ID: "018bcfe5-6800-7000-8000-00000000000" + number, Kind: stock.Deduction, RequestID: request, GoodsID: 1, Quantity: 1, CreatedAt: of,
			}},
		})
	}
	for what, do := range map[string]func() error{
		"a restock": func() error {
			_, err := s.Restock(t.Context(), 1, 7, stock.RestockKey.Of("more"))
			return err
		},
		"a restock of another item": func() error { _, err := s.Restock(t.Context(), 2, 7, stock.RestockKey.Of("more")); return err },
		"a creation":                func() error { return s.CreateGoods(t.Context(), 3, 7, stock.RestockKey.Of("more")) },
		"a return": func() error {
			_, err := s.GiveBack(t.Context(), numbers[0], 1, stock.ReturnKey.Of("back-0"), false)
			return err
		},
		"an order that is written again":  func() error { return lateOrder("1", "kept", yesterday()) },
		"an order of a request that sold": func() error { return lateOrder("2", "key-3", time.Now().Add(-repo.MinAge)) },
		"an order by a clock behind ours": func() error { return lateOrder("4", "key-3", time.Now().Add(-repo.MinAge*3/4)) },
	} {
		should.Fail(t, do(), stock.ErrDuplicateRequest, what)
	}
	should.Reject(s.Goods(t.Context(), 3))(t, stock.ErrUnknownGoods)
	after, full := bothAudits(t, s, 1)
	if after != before || full != before {
		t.Errorf("the audits are %+v and %+v, want them as before: %+v", after, full, before)
	}
	must.Do(t, lateOrder("3", "new", yesterday()))
}

// A reservation whose hold is archived is ended as any other.
func TestAReservationOutlivesTheRowOfItsHold(t *testing.T) {
	d := lab.Database(t, servers.SQLite) // the statements are those of every database
	s := onSale(t, d, 100)
	numbers := []string{hold(t, s, 1, 1, "ann"), hold(t, s, 1, 2, "ann"), hold(t, s, 1, 4, "ann")}
	labtest.Archive(t, d, s)
	wantSums(t, s, 93, 7, 0, 0)
	if _, again, err := confirm(t, s, numbers[0], "pay"); err != nil || again {
		t.Errorf("confirmed: %v, %v", again, err)
	}
	if _, again, err := s.Release(t.Context(), numbers[1]); err != nil || again {
		t.Errorf("released: %v, %v", again, err)
	}
	over(t, s, numbers[2])
	should.Be(t, expireAll(t, s), 1, "reservations expire")
	labtest.Archive(t, d, s)
	if _, again, err := confirm(t, s, numbers[0], "pay"); err != nil || !again {
		t.Errorf("confirmed again: %v, %v; want the first answer", again, err)
	}
	if _, again, err := s.Release(t.Context(), numbers[1]); err != nil || !again {
		t.Errorf("released again: %v, %v; want the first answer", again, err)
	}
	should.Fail(t, errOf(confirm(t, s, numbers[2], "late")), stock.ErrExpired, "confirmed late")
	should.Be(t, expireAll(t, s), 0, "reservations expire again")
	wantSums(t, s, 99, 0, 1, 0)
	for _, c := range []struct {
		key  string
		want error
	}{{"one", nil}, {"two", stock.ErrReturned}} {
		should.Reject(s.GiveBack(t.Context(), numbers[0], 1, stock.ReturnKey.Of(c.key), false))(t, c.want, "return …", c.key)
		labtest.Archive(t, d, s)
	}
	wantSums(t, s, 100, 0, 1, 1)
}

// endedReservations are one that was released and one that has expired, over for longer than two hours.
func endedReservations(t *testing.T, s *repo.Store) (released, expired string) {
	t.Helper()
	released, expired = hold(t, s, 1, 1, "ann"), hold(t, s, 1, 2, "ann")
	must.Do(t, errOf(s.Release(t.Context(), released)))
	over(t, s, expired)
	must.Be(t, expireAll(t, s), 1, "the reservations that expire")
	must.Do(t, s.ExpireIn(t.Context(), released, -3*time.Hour), s.ExpireIn(t.Context(), expired, -3*time.Hour))
	return released, expired
}

// archiveEnded moves reservations that were over two hours ago.
func archiveEnded(t *testing.T, s *repo.Store, most int, want int64) {
	t.Helper()
	should.Be(t, must.Get(s.ArchiveReservations(t.Context(), time.Now().Add(-2*repo.MinAge), most))(t), want, "reservations are moved")
}

// What may still change, is an order, or is young stays.
func TestReservationsThatEndedLongAgoAreArchived(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 100, PerUser: 50}, "first"))
		released, expired := endedReservations(t, s)
		paid, young, held, overdue := hold(t, s, 1, 4, "ann"), hold(t, s, 1, 8, "ann"), hold(t, s, 1, 16, "ann"), hold(t, s, 1, 5, "ann")
		must.Do(t, errOf(confirm(t, s, paid, "pay")), errOf(s.Release(t.Context(), young)), s.ExpireIn(t.Context(), paid, -3*time.Hour), s.ExpireIn(t.Context(), young, -time.Hour))
		must.Do(t, s.ExpireIn(t.Context(), overdue, -3*time.Hour))
		should.Reject(s.ArchiveReservations(t.Context(), time.Now().Add(time.Second-repo.MinAge), 9))(t, repo.ErrTooYoung)
		archiveEnded(t, s, 1, 1)
		archiveEnded(t, s, 9, 1)
		archiveEnded(t, s, 9, 0)
		archived, live, err := s.ArchivedReservations(t.Context())
		if want := slices.Sorted(slices.Values([]string{released, expired})); err != nil || !slices.Equal(archived, want) || live != 4 {
			t.Errorf("%v are archived, and %d are not (%v); want %v, and 4", archived, live, err, want)
		}
		wantSums(t, s, 75, 21, 4, 0)
		should.Be(t, expireAll(t, s), 1, "reservations expire")
		archiveEnded(t, s, 9, 1)
		wantAnswers(t, s, []answered{
			{repo.Payment{Number: held, Reference: "new"}, false, nil},
			{repo.Payment{Number: released, Reference: "late"}, false, stock.ErrReleased},
			{repo.Payment{Number: expired, Reference: "later"}, false, stock.ErrExpired},
			{repo.Payment{Number: paid, Reference: "pay"}, true, nil},
			{repo.Payment{Number: young, Reference: "pay"}, false, stock.ErrReleased},
		})
		wantSums(t, s, 80, 0, 20, 0)
	})
}

// It is read, paid, released and extended as before, and nothing comes back again.
func TestAnArchivedReservationIsAnsweredAsBefore(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 100)
		released, expired := endedReservations(t, s)
		var before []string
		for _, archived := range []bool{false, true} {
			if archived {
				archiveEnded(t, s, 9, 2)
			}
			var answers []string
			note := func(what ...any) { answers = append(answers, fmt.Sprintln(what...)) }
			for _, number := range []string{released, expired} {
				note(s.Reservation(t.Context(), number))
				note(s.Release(t.Context(), number))
				_, err := s.Extend(t.Context(), number, time.Hour, 2*time.Hour)
				note(err)
				note(confirm(t, s, number, "pay"))
				note(s.ConfirmAll(t.Context(), []string{number}))
			}
			if !archived {
				before = answers
			} else if !slices.Equal(answers, before) {
				t.Errorf("archived they are answered with\n%s, want\n%s", answers, before)
			}
		}
		wantSums(t, s, 100, 0, 0, 0)
	})
}

// What is paid while it is moved waits for the move, and is found in the archive.
func TestAPaymentAndAMoveOfItsReservationWaitForEachOther(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, slow, proxy := besideAProxy(t, d, 100)
		released, expired := endedReservations(t, s)
		held := proxy.Arm(servers.Rule{Sent: "DELETE FROM tb_reservation", Do: servers.Hold})
		moving, paying := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := slow.ArchiveReservations(t.Context(), time.Now().Add(-2*repo.MinAge), 9)
			moving <- err
		}()
		labtest.AwaitReached(t, held)
		archiveEnded(t, s, 9, 0)
		should.Be(t, must.Get(s.Reservation(t.Context(), expired))(t).State, stock.Expired, "meanwhile it is read as")
		should.Be(t, len(must.Get(s.Confirm(t.Context(), &repo.Payment{Number: expired, Reference: "pay"}))(t)), 0, "meanwhile a payment is answered with")
		go func() { paying <- errOf(confirm(t, s, released, "pay")) }()
		labtest.AwaitRowWait(t, d, "SELECT number, goods_id%", paying)
		held.Pass()
		must.Do(t, <-moving)
		should.Fail(t, <-paying, stock.ErrReleased)
		wantSums(t, s, 100, 0, 0, 0)
	})
}

// A return has the lock of its order, and the move waits for it; or the move is under way, and the
// return waits, and goes on in the archive.
func TestAReturnAndAMoveOfItsOrderWaitForEachOther(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, slow, proxy := besideAProxy(t, d, 100)
		orders := []string{buy(t, s, 1, 3, "first", ""), buy(t, s, 1, 3, "second", "")}
		labtest.AgeLedger(t, d, s)
		giveBack := func(by *repo.Store, order, key string, units int64) error {
			_, err := by.GiveBack(t.Context(), order, units, stock.ReturnKey.Of(key), false)
			return err
		}
		move := func(by *repo.Store) error {
			moved, err := by.Archive(t.Context(), time.Now().Add(-2*repo.MinAge), 2)
			if err == nil && moved == 0 {
				err = errors.New("nothing was moved")
			}
			return err
		}
		for i, c := range []struct {
			held, waits string
			first       func() error
			second      func() error
		}{
			{
				"INSERT INTO tb_stock_ledger", "DELETE FROM tb_stock_ledger%",
				func() error { return giveBack(slow, orders[0], "a", 1) }, func() error { return move(s) },
			},
			{
				"UPDATE tb_ledger_settled SET archived", "SELECT id FROM tb_stock_ledger WHERE id%",
				func() error { return move(slow) }, func() error { return giveBack(s, orders[1], "b", 1) },
			},
		} {
			held := proxy.Arm(servers.Rule{Sent: c.held, Do: servers.Hold})
			answers := make(chan error, 2)
			go func() { answers <- c.first() }()
			labtest.AwaitReached(t, held)
			second := make(chan error, 1)
			go func() { second <- c.second() }()
			labtest.AwaitRowWait(t, d, c.waits, second)
			held.Pass()
			if err := errors.Join(<-answers, <-second); err != nil {
				t.Fatalf("case %d: %v", i, err)
			}
		}
		if live, archived, err := s.Rows(t.Context()); err != nil || !slices.Equal(archived, []int64{1, 2, 3}) {
			t.Errorf("the ledger has the rows %v, and the archive %v (%v); want the first three archived", live, archived, err)
		}
		for i, order := range orders {
			should.Fail(t, giveBack(s, order, fmt.Sprint("too many ", i), 3), stock.ErrReturned, "three units of order …: one came back", i)
			must.Do(t, giveBack(s, order, fmt.Sprint("the rest ", i), 2))
		}
		wantSums(t, s, 100, 0, 6, 6)
	})
}

// Whatever statement of a move is lost, or its answer, each row is in one table.
func TestAMoveThatIsCutOffLosesAndDoublesNothing(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, killed, proxy := besideAProxy(t, d, 100)
		for i := range 30 {
			must.Do(t, sell(t.Context(), s, 1, fmt.Sprint("sale ", i)))
		}
		labtest.AgeLedger(t, d, s)
		all, _, err := s.Rows(t.Context())
		must.Do(t, err)
		for _, sent := range []string{"INSERT INTO tb_ledger_archive", "DELETE FROM tb_stock_ledger", "UPDATE tb_ledger_settled SET archived", "COMMIT"} {
			for _, delivered := range []bool{false, true} {
				labtest.Lose(proxy, sent, delivered)
				if moved, err := killed.Archive(t.Context(), time.Now().Add(-2*repo.MinAge), 3); err == nil || moved != 0 {
					t.Errorf("a move whose %q was lost moves %d rows and has no error", sent, moved)
				}
				should.Be(t, archiveSoon(t, s, 1), 1, "after a … was lost … rows are moved", sent)
				live, archived, err := s.Rows(t.Context())
				if err != nil || !slices.Equal(slices.Concat(archived, live), all) {
					t.Errorf("after a %q was lost the archive has %v, and the ledger %v (%v)", sent, archived, live, err)
				}
			}
		}
		wantSums(t, s, 70, 0, 30, 0)
	})
}

// archiveSoon moves once the server has rolled back what was cut off.
func archiveSoon(t *testing.T, s *repo.Store, most int) (moved int64) {
	t.Helper()
	var err error
	if !labtest.Eventually(10*time.Second, func() bool {
		moved, err = s.Archive(t.Context(), time.Now().Add(-2*repo.MinAge), most)
		return !errors.Is(err, stock.ErrBusy)
	}) || err != nil {
		t.Fatal(err)
	}
	return moved
}

// A row that appears behind the copy would be deleted and lost.
func TestARowThatWasNotCopiedIsNotDeleted(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, slow, proxy := besideAProxy(t, d, 100)
		undo := errors.New("undo")
		err := s.InTx(t.Context(), func(tx *repo.Tx) error { // the gap of row 2
			_, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: "undone", Quantity: 1}}})
			return errors.Join(err, undo)
		})
		if !errors.Is(err, undo) {
			t.Fatal(err)
		}
		must.Do(t, sell(t.Context(), s, 1, "sold"))
		labtest.AgeLedger(t, d, s)
		held := proxy.Arm(servers.Rule{Sent: "DELETE FROM tb_stock_ledger", Do: servers.Hold})
		moving := make(chan error, 1)
		go func() {
			_, err := slow.Archive(t.Context(), time.Now().Add(-2*repo.MinAge), 10)
			moving <- err
		}()
		labtest.AwaitReached(t, held)
		must.Do(t, s.InsertRow(t.Context(), 2, "late"))
		held.Pass()
		should.Fail(t, <-moving, repo.ErrNotMoved)
		wantRows(t, s, "nothing was moved", []int64{1, 2, 3, 4}, nil)
		should.Be(t, archive(t, s, 10), 3, "then … rows are moved")
	})
}

// partitionArchive runs the statements of the document, for few rows.
func partitionArchive(t *testing.T, s *repo.Store) {
	t.Helper()
	content := must.Get(os.ReadFile("../../docs/growing.md"))(t)
	_, block, ok := strings.Cut(string(content), "```sql\n")
	block, _, end := strings.Cut(block, "```")
	if !ok || !end {
		t.Fatal("docs/growing.md has no statements")
	}
	few := strings.NewReplacer("100000001", "9", "50000001", "4")
	for statement := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(block), ";"), ";\n") {
		must.Do(t, s.Exec(t.Context(), few.Replace(statement)))
	}
}

// Two that move at once move different rows.
func TestAMoverWaitsForTheOther(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, slow, proxy := besideAProxy(t, d, 100)
		for i := range 6 {
			must.Do(t, sell(t.Context(), s, 1, fmt.Sprint("sale ", i)))
		}
		labtest.AgeLedger(t, d, s)
		held := proxy.Arm(servers.Rule{Sent: "DELETE FROM tb_stock_ledger", Do: servers.Hold})
		first, second := make(chan error, 1), make(chan error, 1)
		move := func(by *repo.Store, ended chan<- error) {
			moved, err := by.Archive(t.Context(), time.Now().Add(-2*repo.MinAge), 3)
			if err == nil && moved != 3 {
				err = fmt.Errorf("%d rows are moved, want 3", moved)
			}
			ended <- err
		}
		go move(slow, first)
		labtest.AwaitReached(t, held)
		go move(s, second)
		labtest.AwaitRowWait(t, d, "SELECT archived%", second)
		held.Pass()
		must.Do(t, <-first, <-second)
		wantRows(t, s, "after both", []int64{7, 8}, []int64{1, 2, 3, 4, 5, 6})
	})
}
