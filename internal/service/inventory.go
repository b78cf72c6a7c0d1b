package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/stock"
)

// Inventory manages the items: what the admin of a shop does, and not a buyer.
type Inventory struct {
	store     *repo.Store
	catalogue *Catalogue
	jobs      *background.Jobs
	// Both read an item for all that wait: at once, and with the next look for a change of it.
	reads, looks *queue.Queue[int64, bool, Item]
}

// NewInventory looks after the items of a store. The strategies of the catalogue are
// notified of every restock. It must be closed before the catalogue.
func NewInventory(store *repo.Store, catalogue *Catalogue) *Inventory {
	i := &Inventory{store: store, catalogue: catalogue, jobs: background.NewJobs(catalogue.log)}
	i.reads = queue.New(queue.Options[int64, bool, Item]{
		Doing: "read an item", Plain: true, Write: i.read, Most: maxLooks, Within: catalogue.timeout, Late: store.Late, Log: catalogue.log,
	})
	i.looks = queue.New(queue.Options[int64, bool, Item]{
		Doing: "look at an item", Plain: true, Write: i.readLater, Most: maxLooks, Room: maxLooks, Within: lookEvery + catalogue.timeout, Late: store.Late, Log: catalogue.log,
	})
	return i
}

// lookEvery is how often a replica looks at an item at most for all that wait for a change of it, however many they are.
const lookEvery = 500 * time.Millisecond

// Close waits a moment for the changes that go on after their requests, and then cuts
// them off.
func (i *Inventory) Close() error { return i.jobs.Close(backgroundGrace) }

// backgroundGrace is how long work may still take when the replica stops.
const backgroundGrace = 500 * time.Millisecond

// Item is what is in stock of an item, and its changes in the background that are in progress or failed.
type Item struct {
	stock.Goods

	Changes []stock.Change
}

// Goods is what is in stock of an item. stock.ErrUnknownGoods: there is none. One read, which begins after the call, serves
// all callers that wait for one.
func (i *Inventory) Goods(ctx context.Context, goodsID int64) (stock.Goods, error) {
	item, err := i.reads.Do(ctx, goodsID, false)
	return item.Goods, err
}

// Item is Goods with the changes of this replica, and with those of others that have a mark in the database.
func (i *Inventory) Item(ctx context.Context, goodsID int64) (Item, error) {
	return i.reads.Do(ctx, goodsID, true)
}

// Next is Item, or Goods, as of the next look at it. stock.ErrBusy: as many as may wait for it already.
func (i *Inventory) Next(ctx context.Context, goodsID int64, changes bool) (Item, error) {
	return i.looks.Do(ctx, goodsID, changes)
}

func (i *Inventory) readLater(ctx context.Context, goodsID int64, calls []*queue.Call[bool, Item]) {
	select {
	case <-time.After(lookEvery):
	case <-ctx.Done(): // all have left
	}
	i.read(ctx, goodsID, calls)
}

// read reads an item for all that wait; a call asks for its changes, too, or not.
func (i *Inventory) read(ctx context.Context, goodsID int64, calls []*queue.Call[bool, Item]) {
	goods, err := i.store.InStock(ctx, goodsID)
	item := Item{Goods: goods}
	if err == nil && slices.ContainsFunc(calls, func(c *queue.Call[bool, Item]) bool { return c.Ask }) {
		item.Changes, err = i.changesOf(ctx, goods)
	}
	for _, c := range calls {
		c.Answer(item, err)
	}
}

// changesOf are the changes of an item. A limit that failed here and was set elsewhere is none.
func (i *Inventory) changesOf(ctx context.Context, goods stock.Goods) ([]stock.Change, error) {
	changes := i.catalogue.changes.Of(goods.ID)
	limited, recalled, err := i.store.Unfinished(ctx, goods.ID)
	if !limited {
		changes = slices.DeleteFunc(changes, func(c stock.Change) bool {
			return c.Kind == stock.ChangeOfLimit && c.State == stock.ChangeFailed && c.PerUser == goods.PerUser
		})
	}
	for kind, marked := range map[string]bool{stock.ChangeOfLimit: limited, stock.ChangeByRecall: recalled} {
		if marked && !slices.ContainsFunc(changes, func(c stock.Change) bool { return c.Kind == kind }) {
			changes = append(changes, stock.Change{Kind: kind, State: stock.ChangeUnfinished})
		}
	}
	slices.SortFunc(changes, func(a, b stock.Change) int { return strings.Compare(a.Kind, b.Kind) })
	return changes, err
}

// Drift compares what the strategy with an outbox may still accept with what the ledger
// leaves. stock.ErrUnknownGoods: there is no such item.
func (i *Inventory) Drift(ctx context.Context, goodsID int64) (redisstock.Drift, error) {
	if _, err := i.store.Goods(ctx, goodsID); err != nil {
		return redisstock.Drift{}, err
	}
	if i.catalogue.redis == nil {
		return redisstock.Drift{GoodsID: goodsID}, nil
	}
	return i.catalogue.redis.Drift(ctx, goodsID)
}

// Create makes an item with its first units, 0 to stock.MaxStock, of which one buyer may
// have PerUser, 1 to stock.MaxPerUser, or any number where that is 0. A key that created
// it before makes nothing, and sets no other limit or strategy. stock.ErrGoodsExist: it
// was created otherwise. ErrUnknownStrategy, ErrStrategyRejected, ErrNotFenceable,
// stock.ErrSaleTimes: the item cannot be so, and nothing was created.
func (i *Inventory) Create(ctx context.Context, item stock.NewItem, key string) (stock.Goods, error) {
	err := i.create(ctx, item, key)
	if err != nil {
		return stock.Goods{}, err
	}
	if item.Choice != (stock.Choice{}) || item.Sale != (stock.SaleChange{}) {
		err = i.catalogue.LookAtSwitches(ctx)
	}
	return i.changed(ctx, item.GoodsID, "the item was created", err)
}

// create is Create without a look at the choice of the item.
func (i *Inventory) create(ctx context.Context, item stock.NewItem, key string) error {
	return i.once(ctx, key, stock.CreationKey, sameUnits(item.GoodsID, item.Units), func(id string) error {
		if err := cmp.Or(item.Sale.Check(stock.Sale{}), i.wrongChoice(item.Choice)); err != nil {
			return err
		}
		return i.store.Create(ctx, item, id)
	})
}

// wrongChoice returns why an item cannot be created with a choice; none is as configured.
func (i *Inventory) wrongChoice(choice stock.Choice) error {
	if choice.WithoutQuantity() == (stock.Choice{}) {
		return nil
	}
	return i.catalogue.check(choice)
}

// Restock adds units. A key that was restocked under before adds nothing.
// stock.ErrUnknownOutcome may also mean that the units were added, and that a
// strategy that keeps a copy of the stock could not be notified in time: sending the
// same key again notifies it.
func (i *Inventory) Restock(ctx context.Context, goodsID, units int64, key string) (stock.Goods, error) {
	err := i.once(ctx, key, stock.RestockKey, sameUnits(goodsID, units), func(id string) error {
		_, err := i.store.Restock(ctx, goodsID, units, id)
		return err
	})
	if err != nil {
		return stock.Goods{}, err
	}
	return i.changed(ctx, goodsID, "the units were added", i.notify(ctx, goodsID, units))
}

// notify notifies the strategies of units that were added: a copy that is not notified keeps selling the old stock.
func (i *Inventory) notify(ctx context.Context, goodsID, units int64) error {
	return i.jobs.Do(ctx, notifyWithin, "notify the strategies of a restock", func(ctx context.Context) error {
		return i.catalogue.Restocked(ctx, goodsID, units)
	})
}

// Correct sets right what can be sold of an item, and returns how much was added, or taken off where it is negative. A key
// that corrected it before changes nothing. stock.ErrBelowZero: more would be taken off than can be sold.
// stock.ErrUnknownOutcome is as with Restock. stock.ErrBusy: purchases moved the units to be taken off again and again, or
// what was counted cannot be compared while redis-stock sells.
func (i *Inventory) Correct(ctx context.Context, goodsID int64, c stock.Correction, key string) (goods stock.Goods, by int64, err error) {
	same := func(o stock.Order) bool {
		by = o.Quantity
		return o.GoodsID == goodsID && o.Correction != nil && o.Correction.Is(c)
	}
	err = i.once(ctx, key, stock.CorrectionKey, same, func(id string) (err error) {
		by, err = i.correct(ctx, goodsID, c, id)
		return err
	})
	if err != nil {
		return stock.Goods{}, 0, err
	}
	if by > 0 {
		err = i.notify(ctx, goodsID, by)
	}
	goods, err = i.changed(ctx, goodsID, "the stock was corrected", err)
	return goods, by, err
}

// correct recalls what a correction is short of in the row, as for a purchase.
func (i *Inventory) correct(ctx context.Context, goodsID int64, c stock.Correction, id string) (by int64, err error) {
	var vain vainRecalls
	for try := range tries {
		by, err = i.store.Correct(ctx, goodsID, c, id)
		short, ok := errors.AsType[*stock.AllocatedError](err)
		if !ok {
			return by, err
		}
		if below, ok := errors.AsType[*stock.BelowZeroError](err); ok && vain.prove(short) {
			return 0, below
		}
		if err := i.catalogue.recalls.recallFor(ctx, goodsID, "", short, &vain, try); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: the units of item %d were moved %d times, or orders of them are not in the ledger yet", stock.ErrBusy, goodsID, tries)
}

// Recall moves the units of an item from the allocations of strategies back into its row,
// but for those of pending orders. A strategy that keeps an allocation takes units again
// with its next purchase. stock.ErrBackendUnavailable: a backend that holds units does not
// answer, and the others' units are back. Where ctx ends, the recall goes on, and the error is
// stock.ErrUnknownOutcome. Recalling again is safe in every case.
func (i *Inventory) Recall(ctx context.Context, goodsID int64) (RecalledItem, error) {
	if _, err := i.store.Goods(ctx, goodsID); err != nil {
		return RecalledItem{}, err
	}
	recalled, err := i.catalogue.recalls.recall(ctx, goodsID, "")
	if ctx.Err() != nil && err != nil {
		err = fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	return recalled, err
}

// SetLimit sets how many units of an item one buyer may have, 0 to stock.MaxPerUser; 0
// is any number. Setting it again changes nothing. The first limit of an item counts
// what was bought before, which may take longer than the request:
// stock.ErrUnknownOutcome may mean that this goes on, or that the limit was set and a
// strategy that checks it elsewhere could not be notified. Setting it again finds out.
func (i *Inventory) SetLimit(ctx context.Context, goodsID, perUser int64) (stock.Goods, error) {
	err := i.begin(ctx, limitWithin, "set a limit", func(ctx context.Context) error {
		err := i.catalogue.changes.Run(goodsID, stock.Change{Kind: stock.ChangeOfLimit, PerUser: perUser}, func() error {
			return i.store.SetLimit(ctx, goodsID, perUser)
		})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, notifyWithin)
		defer cancel()
		if err := i.catalogue.LimitChanged(ctx, goodsID); err != nil {
			return fmt.Errorf("%w: the limit was set: %w", stock.ErrUnknownOutcome, err)
		}
		return nil
	})
	if err != nil {
		return stock.Goods{}, err
	}
	return i.changed(ctx, goodsID, "the limit was set", nil)
}

// Change is what is changed of an item; what is nil stays as it is.
type Change struct {
	PerUser *int64
	Sale    stock.SaleChange
	// Choice makes the new choice of the old one.
	Choice func(stock.Choice) stock.Choice
}

// isOfSale reports whether it changes how or when the item is sold.
func (c Change) isOfSale() bool { return c.Choice != nil || c.Sale != (stock.SaleChange{}) }

// Change changes an item. Making the same change again changes nothing. The choice holds
// on this replica at once and on the others within about a second; purchases in flight
// end as they began. ErrUnknownStrategy, ErrStrategyRejected, ErrNotFenceable,
// stock.ErrSaleTimes: the item cannot be so, and nothing was changed. stock.ErrUnknownOutcome is as with SetLimit.
func (i *Inventory) Change(ctx context.Context, goodsID int64, c Change) (stock.Goods, error) {
	if c.isOfSale() {
		err := i.set(ctx, goodsID, c)
		if err == nil {
			err = i.look(ctx, "the item was changed")
		}
		if err != nil {
			return stock.Goods{}, err
		}
	}
	return i.limited(ctx, goodsID, c)
}

// limited makes the part of a change that set does not.
func (i *Inventory) limited(ctx context.Context, goodsID int64, c Change) (stock.Goods, error) {
	if c.PerUser == nil {
		return i.changed(ctx, goodsID, "the item was changed", nil)
	}
	goods, err := i.SetLimit(ctx, goodsID, *c.PerUser)
	if err != nil && c.isOfSale() && !errors.Is(err, stock.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: another part was changed: %w", stock.ErrUnknownOutcome, err)
	}
	return goods, err
}

// set sets how and when an item is sold, without a look at it.
func (i *Inventory) set(ctx context.Context, goodsID int64, c Change) error {
	if c.Sale != (stock.SaleChange{}) {
		goods, err := i.store.GoodsOnSale(ctx, goodsID)
		if err := cmp.Or(err, c.Sale.Check(goods.Sale)); err != nil {
			return err
		}
	}
	if c.Choice != nil {
		if err := i.choose(ctx, goodsID, c.Choice); err != nil {
			return err
		}
	}
	if c.Sale == (stock.SaleChange{}) {
		return nil
	}
	return i.setSale(ctx, goodsID, c.Sale)
}

// look has this replica know what is chosen of items. It reads the choices of all of them.
func (i *Inventory) look(ctx context.Context, done string) error {
	if err := i.catalogue.LookAtSwitches(ctx); err != nil {
		return fmt.Errorf("%w: %s: %w", stock.ErrUnknownOutcome, done, err)
	}
	return nil
}

func (i *Inventory) choose(ctx context.Context, goodsID int64, change func(stock.Choice) stock.Choice) error {
	return i.store.ChangeChoice(ctx, goodsID, func(before stock.Choice) (stock.Choice, error) {
		after := change(before)
		if after.WithoutQuantity() == before.WithoutQuantity() {
			return after, nil
		}
		return after, i.catalogue.check(after)
	})
}

// begin begins work that goes on when its request has ended, and nothing for one that has ended before.
func (i *Inventory) begin(ctx context.Context, limit time.Duration, doing string, work func(context.Context) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	return i.jobs.Do(ctx, limit, doing, work)
}

const (
	// notifyWithin bounds how long the strategies are notified of what is committed.
	notifyWithin = 30 * time.Second
	// limitWithin bounds the setting of a limit, with both of its transactions.
	limitWithin = 2*repo.RecountWithin + notifyWithin
)

// changed is the item after a change that is committed: what fails now does not undo it.
func (i *Inventory) changed(ctx context.Context, goodsID int64, done string, err error) (stock.Goods, error) {
	var goods stock.Goods
	if err == nil {
		goods, err = i.store.InStock(ctx, goodsID)
	}
	if err != nil {
		return stock.Goods{}, fmt.Errorf("%w: %s: %w", stock.ErrUnknownOutcome, done, err)
	}
	return goods, nil
}

// once changes the stock with the id that a key is stored under, unless the same was done with the key before, or is
// meanwhile. way and same are as those of hasDone.
func (i *Inventory) once(ctx context.Context, key string, way stock.Tag, same func(stock.Order) bool, do func(id string) error) error {
	done := func() (bool, error) { return i.hasDone(ctx, key, way, same) }
	if again, err := done(); again || err != nil {
		return err
	}
	err := do(way.Of(cmp.Or(key, NewKey())))
	// On Vitess a copy that comes at the same moment may find nothing left to take off.
	if errors.Is(err, stock.ErrGoodsExist) || errors.Is(err, stock.ErrDuplicateRequest) || errors.Is(err, stock.ErrBelowZero) {
		if again, failed := done(); again || failed != nil {
			return failed
		}
	}
	return err
}

// hasDone reports whether the ledger has the same under the same key, done in the same way: by a creation, a restock or a
// correction. stock.ErrKeyReused: the key stands for something else.
func (i *Inventory) hasDone(ctx context.Context, key string, way stock.Tag, same func(stock.Order) bool) (bool, error) {
	if key == "" {
		return false, nil
	}
	orders, err := i.store.Orders(ctx, stock.CreationKey.Of(key), stock.RestockKey.Of(key), stock.CorrectionKey.Of(key))
	if err != nil || len(orders) == 0 {
		return false, err
	}
	if o, ok := orders[way.Of(key)]; ok && same(o) {
		return true, nil
	}
	return false, stock.ErrKeyReused
}

// sameUnits tells whether as many units of an item were added.
func sameUnits(goodsID, units int64) func(stock.Order) bool {
	return func(o stock.Order) bool { return o.GoodsID == goodsID && o.Quantity == units }
}

// Audit is an audit with what the ledger does not have yet.
type Audit struct {
	stock.Audit
	// Pending is how many units are accepted and not in the ledger yet: they still count
	// as stock. It is nil where that is unknown: the server that has accepted them does not
	// answer, has lost its count, or is not one of this replica's.
	Pending *int64 `json:"pending,omitempty"`
}

// Audit compares the row of an item with its ledger. What is pending is read before: once
// it is 0, the audit has every order that was answered until then.
func (i *Inventory) Audit(ctx context.Context, goodsID int64) (Audit, error) {
	return i.audit(ctx, goodsID, i.store.Audit)
}

// AuditInFull is the same without the ledger's running totals.
func (i *Inventory) AuditInFull(ctx context.Context, goodsID int64) (Audit, error) {
	return i.audit(ctx, goodsID, i.store.AuditInFull)
}

func (i *Inventory) audit(ctx context.Context, goodsID int64, of func(context.Context, int64) (stock.Audit, error)) (Audit, error) {
	pending := i.pending(ctx, goodsID)
	audit, err := of(ctx, goodsID)
	return Audit{Audit: audit, Pending: pending}, err
}

func (i *Inventory) pending(ctx context.Context, goodsID int64) *int64 {
	if i.catalogue.redis == nil { // another replica may have one
		place, err := i.store.Allocation(ctx, goodsID, redisstock.Allocation)
		if err != nil || place.Units > 0 {
			return nil
		}
		return new(int64)
	}
	units, err := i.catalogue.redis.Pending(ctx, goodsID)
	if err != nil {
		return nil
	}
	return &units
}
