package redisstock

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// What comes back, or is restocked, is added to the counter within its epoch. It is in the row first, by the
// transaction that gives it back. From there it comes in two steps, which any replica may take, repeat, or leave out:
//
//	repo.Store.Add   moves the units of the row into the allocation, whose Added grows by them
//	operations.add   adds to the counter by what Added is more than the counter has of it
//
//  1. Both only grow in an epoch, and begin at 0 with it. The counter takes the difference: an addition that is
//     repeated, overtaken, or sent by two replicas counts once.
//  2. A replica that dies between the steps leaves a counter that is too low. A purchase that does not fit compares
//     both again, and so does the reconciler.
//  3. An addition of another epoch changes nothing: the units that a later epoch begins with include it. So do those
//     that a recall returns.
//  4. A rebuild reads Units and Added as of one moment, after its epoch has begun in the database.
//
// What a buyer has is two sums: the orders of redis-stock, pending or in the ledger, which only the script counts
// and an addition never changes; and the rest, which is repo.UserUnits.Beside: what other strategies sold, less all
// that was given back.
//
//  5. Redis has the Beside that it counts and the Returned of that moment (the mark). A later one has more Returned:
//     it replaces the mark and changes the sum by the difference of both Besides. Any other one is dropped. So a unit
//     comes back once, never to an earlier state, and never before the ledger has it.
//  6. The mark is read with the epoch as of one moment, and is dropped in every other epoch. Where buyers are counted
//     anew an epoch ends in the same transaction.
//  7. A mark that is lost on the way leaves a buyer who has too many. A purchase that this rejects reads it again.

// addTries bounds how often another epoch begins during an addition.
const addTries = 5

// newAdditions makes one addition of those to the same item that wait.
func (s *Stock) newAdditions() *queue.Queue[int64, []string, bool] {
	return queue.New(queue.Options[int64, []string, bool]{
		Doing: "add what came back", Most: repo.UsersAtOnce, Within: 2 * stepWithin, Log: s.options.Log,
		Weight: func(users []string) int { return 1 + len(users) },
		Write: func(ctx context.Context, goodsID int64, calls []*queue.Call[[]string, bool]) {
			var users []string
			for _, c := range calls {
				users = append(users, c.Ask...)
			}
			changed, err := s.add(ctx, goodsID, users)
			for _, c := range calls {
				c.Answer(changed, err)
			}
		},
	})
}

// added has the counter of an item take what its row has, and what these buyers have given back. changed: there was
// something. Where the allocation is closed, or was never opened, there is nothing to do.
func (s *Stock) added(ctx context.Context, goodsID int64, users ...string) (changed bool, err error) {
	changed, err = s.additions.Do(ctx, goodsID, users)
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return false, errBusy(ctx, goodsID)
	}
	return changed, notUnknown(err)
}

func (s *Stock) add(ctx context.Context, goodsID int64, users []string) (changed bool, err error) {
	var above int64
	for range addTries {
		place, err := s.store.Add(ctx, goodsID, Allocation)
		if err == nil && place.Closed {
			s.soldOut.announce(ctx, goodsID)
		}
		if err != nil || place.Epoch == 0 || place.Closed {
			return false, err
		}
		place, list, err := s.store.Changes(ctx, goodsID, Allocation, users...)
		if err != nil || place.Closed {
			return false, err
		}
		changed, epoch, ok, err := s.addToCounter(ctx, place, list)
		if ok || err != nil {
			return changed, err
		}
		if err := s.counterAbove(ctx, wanted{goodsID: goodsID}, max(above, place.Epoch-1)); err != nil {
			return false, err
		}
		above = epoch // a database that was restored may be behind Redis
	}
	return false, fmt.Errorf("%w: another epoch of item %d begins all the time", stock.ErrBusy, goodsID)
}

// addToCounter is operations.add. Not ok: the counter is of another epoch, or absent.
func (s *Stock) addToCounter(ctx context.Context, place repo.Allocation, users []repo.UserUnits) (changed bool, epoch int64, ok bool, err error) {
	const doing = "add what came back"
	p := s.part(place.GoodsID)
	args := append(make([]any, 0, 4+3*len(users)), place.Epoch, place.Added, s.soldOut.channel, place.GoodsID)
	for _, u := range users {
		args = append(args, u.User, u.Returned, u.Beside)
	}
	answer, err := s.ask(ctx, "add", []string{p.counter(place.GoodsID), p.users(place.GoodsID)}, args...)
	row, isList := answer.([]any)
	if err == nil && (!isList || len(row) != 2) {
		err = fmt.Errorf("script answered %v", answer)
	}
	if err != nil {
		return false, 0, false, failed(doing, err)
	}
	epoch, err = strconv.ParseInt(fmt.Sprint(row[1]), 10, 64)
	return row[0] == "CHANGED", epoch, row[0] != absent, failed(doing, err)
}

// mark is what a rebuild stages for a user beside its units; none where nothing is to be remembered.
func mark(u repo.UserUnits) []any {
	if u.Returned == 0 && u.Beside == 0 {
		return nil
	}
	return []any{"\x00" + u.User, fmt.Sprint(u.Returned, " ", u.Beside)}
}
