package redisstock

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// What is set stays as it is, and what is not is as Defaults has it.
func TestEveryOptionHasADefault(t *testing.T) {
	kind, none := reflect.TypeFor[Options](), reflect.ValueOf(Options{}.withDefaults())
	for i := range kind.NumField() {
		var o Options
		switch field := reflect.ValueOf(&o).Elem().Field(i); field.Kind() {
		case reflect.String:
			field.SetString("set")
		case reflect.Int, reflect.Int64:
			field.SetInt(7)
		default:
			continue
		}
		got := reflect.ValueOf(o.withDefaults())
		for j := range kind.NumField() {
			want := reflect.ValueOf(Defaults()).Field(j)
			if j == i {
				want = reflect.ValueOf(o).Field(j)
			}
			if kind.Field(j).Name != "Log" && !got.Field(j).Equal(want) || kind.Field(j).Name == "Log" && got.Field(j).IsNil() {
				t.Errorf("with %s set, %s is %v, want %v", kind.Field(i).Name, kind.Field(j).Name, got.Field(j), want)
			}
		}
		if name := kind.Field(i).Name; name != "Replica" && none.Field(i).IsZero() {
			t.Errorf("%s has no default", name)
		}
	}
}

// Nothing has happened where the server was not reached, or has answered; but a cluster's client may have asked twice.
func TestTheOutcomeIsUnknownWhereRedisMayHaveSold(t *testing.T) {
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer single.Close() //nolint:errcheck // it was never used
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close() //nolint:errcheck // it was never used
	for _, c := range []struct {
		name            string
		err             error
		single, cluster bool // unknown
	}{
		{"an answer", redis.Nil, false, true},
		{"no connection", backend.ErrNotConnected, false, true},
		{"no answer", errors.New("connection reset"), true, true},
	} {
		for client, unknown := range map[redis.UniversalClient]bool{single: c.single, cluster: c.cluster} {
			err := (&Stock{redis: client}).fault(c.err)
			if errors.Is(err, stock.ErrUnknownOutcome) != unknown || !errors.Is(err, stock.ErrBackendUnavailable) {
				t.Errorf("%s through %T is %v, want an unknown outcome %t", c.name, client, err, unknown)
			}
		}
	}
}

// A look at a counter decides whether it is rebuilt, by the one before it, and whether it is reported to differ.
func TestALookTellsDriftFromOrdersThatAreBeingSettled(t *testing.T) {
	for name, c := range map[string]struct {
		seen                     Drift
		once, twice, unexplained bool
	}{
		"closed, and all units are home":         {Drift{Closed: true, Epoch: 3}, false, false, false},
		"closed, of an earlier epoch":            {Drift{Closed: true, Allocation: 2, Epoch: 3}, false, true, false},
		"closed, and all of it is pending":       {Drift{Closed: true, Loaded: true, Pending: 2, Allocation: 2, Epoch: 3}, false, false, false},
		"closed, and a unit is not returned":     {Drift{Closed: true, Loaded: true, Pending: 2, Allocation: 3, Epoch: 3}, true, true, false},
		"absent":                                 {Drift{Allocation: 5}, true, true, false},
		"of an earlier epoch":                    {Drift{Redis: 5, Allocation: 5, Epoch: 3}, false, true, false},
		"as the database has it":                 {Drift{Loaded: true, Redis: 4, Pending: 1, Allocation: 5, Epoch: 3}, false, false, false},
		"a unit more than there is":              {Drift{Loaded: true, Redis: 6, Pending: 1, Allocation: 5, Drift: 2, Epoch: 3}, true, true, true},
		"too high by what is being settled":      {Drift{Loaded: true, Redis: 5, Pending: 2, Allocation: 5, Drift: 2, Epoch: 3}, false, false, false},
		"too low, and nothing is pending":        {Drift{Loaded: true, Redis: 3, Allocation: 5, Drift: -2, Epoch: 3}, false, true, true},
		"too low, and an order is being settled": {Drift{Loaded: true, Redis: 3, Pending: 1, Allocation: 5, Drift: -1, Epoch: 3}, false, false, false},
	} {
		if once, twice := c.seen.needsRebuild(Drift{}), c.seen.needsRebuild(c.seen); once != c.once || twice != c.twice {
			t.Errorf("a counter that is %s is rebuilt at the first look %t and at the second %t, want %t and %t", name, once, twice, c.once, c.twice)
		}
		if got := c.seen.unexplained(); got != c.unexplained && !c.seen.Closed {
			t.Errorf("a counter that is %s is reported %t, want %t", name, got, c.unexplained)
		}
	}
}

// What was found sold out is rejected unseen for a moment, but never a purchase with a key,
// which may be the copy of a sale.
func TestOnlyPurchasesWithoutAKeyAreRejectedUnseen(t *testing.T) {
	keyed, plain := stock.Purchase{RequestID: "k", Keyed: true, Quantity: 1}, stock.Purchase{RequestID: "own", Quantity: 1}
	synctest.Test(t, func(t *testing.T) {
		o := newSoldOut(nil, "restocked", nil)
		if o.rejects(1, []stock.Purchase{plain}) {
			t.Error("an item of which nothing is known is sold out")
		}
		o.learn(1, o.mark())
		for _, c := range []struct {
			name  string
			goods int64
			batch []stock.Purchase
			want  bool
		}{
			{"without a key", 1, []stock.Purchase{plain, plain}, true},
			{"with a key", 1, []stock.Purchase{keyed}, false},
			{"with a key, behind one without", 1, []stock.Purchase{plain, keyed}, false},
			{"of another item", 2, []stock.Purchase{plain}, false},
		} {
			should.Be(t, o.rejects(c.goods, c.batch), c.want, "purchases", c.name)
		}
		time.Sleep(doubted + time.Nanosecond)
		if o.rejects(1, []stock.Purchase{plain}) {
			t.Errorf("it is still sold out unseen after %s", doubted)
		}
		mark := o.mark()
		o.hear(nil) // a message that comes while Redis is asked
		o.learn(1, mark)
		if o.rejects(1, []stock.Purchase{plain}) {
			t.Error("an answer that is older than a message counts")
		}
	})
}

// A message names one item that may have units again; where messages may have been lost, all may.
func TestAMessageForgetsWhatItMayBeAbout(t *testing.T) {
	for name, c := range map[string]struct {
		event *redis.Message
		kept  bool // of item 2
	}{
		"of an item":           {&redis.Message{Payload: "1"}, true},
		"of orders given back": {&redis.Message{}, false},
		"of a new connection":  {nil, false},
	} {
		o := newSoldOut(nil, "restocked", nil)
		for item := range int64(2) {
			o.learn(item+1, o.mark())
		}
		o.hear(c.event)
		if o.verified(1) || o.verified(2) != c.kept {
			t.Errorf("after a message %s, item 1 is sold out %t and item 2 %t, want only the second %t", name, o.verified(1), o.verified(2), c.kept)
		}
	}
}

// Each of many requests gets its own order, some of them the same one, although looks at the ledger panic, fail, and are
// not answered before. All of them share looks, and nothing is asked when none waits.
func TestEveryRequestThatWaitsGetsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		ledger := shareLedger(func(ctx context.Context, ids ...string) (map[string]stock.Order, error) {
			time.Sleep(time.Millisecond) // meanwhile all that are to wait do
			switch looks++; looks {
			case 1:
				panic("a ledger that is broken")
			case 2:
				return nil, errors.New("a ledger that is away")
			case 3:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			found := make(map[string]stock.Order)
			for _, id := range ids {
				found[id] = stock.Order{ID: "order of " + id}
			}
			return found, nil
		}, nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var waiting sync.WaitGroup
		for i := range 2*ledgerAtOnce + 10 {
			waiting.Go(func() {
				id := strconv.Itoa(i / 2)
				if order, err := written(ctx, ledger, id); err != nil || order.ID != "order of "+id {
					t.Errorf("request %s gets %+v (%v)", id, order, err)
				}
			})
		}
		waiting.Wait()
		asked := looks
		time.Sleep(time.Minute)
		if asked > 20 || looks != asked {
			t.Errorf("the ledger was asked %d times, and %d times when no request waited", asked, looks-asked)
		}
	})
}

// A ledger that does not have the order is asked ever less often, until the request gives up.
func TestALedgerWithoutTheOrderIsAskedEverLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		ledger := shareLedger(func(context.Context, ...string) (map[string]stock.Order, error) {
			looks++
			return nil, nil
		}, nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		should.Reject(written(ctx, ledger, "missing"))(t, context.DeadlineExceeded)
		if least, most := int(time.Second/ledgerRest), int(time.Second/ledgerRest)+4; looks < least || looks > most {
			t.Errorf("the ledger was asked %d times in a second, want %d to %d times", looks, least, most)
		}
	})
}
