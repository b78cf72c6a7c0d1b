package redisstock

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

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
		}, slog.New(slog.DiscardHandler))
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
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		should.Reject(written(ctx, ledger, "missing"))(t, context.DeadlineExceeded)
		if least, most := int(time.Second/ledgerRest), int(time.Second/ledgerRest)+4; looks < least || looks > most {
			t.Errorf("the ledger was asked %d times in a second, want %d to %d times", looks, least, most)
		}
	})
}
