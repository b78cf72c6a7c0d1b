// Package room is the waiting room of an item: a gate in front of selling, which admits buyers as fast as the item sells.
// Its state is in Redis, in one slot of a cluster for each item, and is bounded by the buyers who wait.
//
//  1. Buyers are admitted in the order of the seconds in which they joined, by the clock of Redis. A draw orders those of one
//     second: a script gains nothing by being fast.
//  2. A buyer has one place, however often it joins, and its ticket is admitted once, for Options.Admission.
//  3. No more buyers are admitted at the same time than a share of what is left to sell, and no more in a second than
//     Options.Rate.
//  4. A buyer that has not asked for Options.Away has left: it is not counted, and is not admitted.
//  5. An admission is good for one purchase that is accepted. A rejected purchase gives it back; one with an unknown outcome
//     keeps it, for its own retries.
//  6. A Redis that has lost its memory has an empty line: no admission outlives it. Who asks then joins again.
package room

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// Options say which items have a room, and how it admits.
type Options struct {
	// Prefix begins every key.
	Prefix string
	// All has every item have a room, and Items those with these ids.
	All   bool
	Items []int64
	// Rate is how many buyers are admitted per second at most.
	Rate float64
	// Share is how many buyers may be admitted at the same time for each unit that is left.
	Share float64
	// Admission is how long an admission lasts.
	Admission time.Duration
	// Away is how long a buyer may ask for nothing until it has left.
	Away time.Duration
	// Secret signs tickets; it is the same on all replicas.
	Secret []byte
	// Goods reads an item. Callers that wait for one share a read.
	Goods func(ctx context.Context, goodsID int64) (stock.Goods, error)
}

// Room is the waiting room of one replica. A nil Room is that of no item.
type Room struct {
	options                  Options
	redis                    redis.UniversalClient
	ask, enter, leave, count *redis.Script
	items                    sync.Map // what was left of an item, a moment ago
}

//go:embed ask.lua
var askSource string

//go:embed enter.lua
var enterSource string

//go:embed leave.lua
var leaveSource string

//go:embed count.lua
var countSource string

// New makes the room of one replica. It does not wait for Redis.
func New(client redis.UniversalClient, o Options) *Room {
	return &Room{
		options: o, redis: client,
		ask: redis.NewScript(askSource), enter: redis.NewScript(enterSource), leave: redis.NewScript(leaveSource), count: redis.NewScript(countSource),
	}
}

// State is where a buyer is.
type State string

// The states of a ticket.
const (
	Waiting  State = "waiting"
	Admitted State = "admitted"
	// Closed: nothing can be sold now. Those who go on asking keep their places, because units may come back.
	Closed State = "closed"
	// Ended: the ticket is no longer in the line. Its buyer was away, has bought, or let its admission pass; or Redis has
	// lost the line. It may join again.
	Ended State = "ended"
)

// Place is what a ticket is answered.
type Place struct {
	Ticket  string
	GoodsID int64
	State   State
	// Place is 1 for who is admitted next. It is final when the second is over in which the buyer joined.
	Place int64
	// Wait is how long it takes until then at the present pace; 0 means unknown.
	Wait time.Duration
	// AskAfter is when to ask again, in whole seconds; 0 means that nothing will change.
	AskAfter time.Duration
	// AdmittedUntil is the end of the admission.
	AdmittedUntil time.Time
}

func (r *Room) isOf(goodsID int64) bool {
	if r == nil || r.options.All {
		return r != nil
	}
	return slices.Contains(r.options.Items, goodsID)
}

// draws is the number of different draws; the scripts know it, too.
const draws = 1 << 21

// Join has a buyer join the line of an item. One that has a place or an admission keeps it. stock.ErrNoRoom: the item has
// none. stock.ErrUnknownGoods: there is no such item.
func (r *Room) Join(ctx context.Context, goodsID int64, userID string) (Place, error) {
	if !r.isOf(goodsID) {
		return Place{}, fmt.Errorf("item %d: %w", goodsID, stock.ErrNoRoom)
	}
	left, err := r.left(ctx, goodsID)
	if err != nil {
		return Place{}, err
	}
	return r.place(ctx, ticket{goodsID: goodsID, userID: userID}, left)
}

// Look is where the buyer of a ticket is. It keeps the buyer's place. stock.ErrUnknownTicket: it is none of these replicas.
func (r *Room) Look(ctx context.Context, text string) (Place, error) {
	t, ok := r.read(text)
	if !ok {
		return Place{}, stock.ErrUnknownTicket
	}
	left, err := r.left(ctx, t.goodsID)
	if err != nil {
		left = unknown // while the database fails, those who wait keep their places, and no one is admitted
	}
	return r.place(ctx, t, left)
}

// place joins where the ticket has no order yet, and looks otherwise.
func (r *Room) place(ctx context.Context, t ticket, left int64) (p Place, err error) {
	most := 0
	if left > 0 {
		most = int(max(1, r.options.Share*float64(left)))
	}
	away, lasts := r.options.Away.Milliseconds(), r.options.Admission.Milliseconds()
	answer, err := r.run(ctx, r.ask, r.keys(t.goodsID, "line", "seen", "admitted", "orders", "purchases", "pace", "totals"),
		t.userID, t.order, rand.IntN(draws), away, lasts, r.options.Rate, most).Slice()
	if err == nil && len(answer) != 4 {
		err = fmt.Errorf("the script answered %v", answer)
	}
	if err != nil {
		return Place{}, failed(ctx, err)
	}
	p.State, t.order = State(fmt.Sprint(answer[0])), cmp.Or(t.order, fmt.Sprint(answer[1]))
	p.Ticket, p.GoodsID = r.sign(t), t.goodsID
	n, _ := answer[2].(int64)
	switch p.State {
	case Admitted:
		p.AdmittedUntil = time.Now().Add(time.Duration(n) * time.Millisecond)
	case Waiting:
		p.Place = n
		if left > 0 {
			p.Wait = estimate(n, answer[3])
		}
		p.AskAfter = r.askAfter(p.Wait)
		if left == 0 {
			p.State = Closed
		}
	case Closed, Ended:
	}
	return p, nil
}

// estimate is how long it takes to admit so many at a pace, as the scripts return it, in whole seconds; 0 means unknown.
func estimate(n int64, pace any) time.Duration {
	perSecond, _ := strconv.ParseFloat(fmt.Sprint(pace), 64) // without one it is 0
	if seconds := float64(n) / perSecond; seconds < longestEstimate.Seconds() {
		return time.Duration(math.Ceil(seconds)) * time.Second // one that is next asks again soon
	}
	return 0
}

// longestEstimate is the longest wait that a pace foretells.
const longestEstimate = 24 * time.Hour

// askAfter spreads the crowd: who waits for long asks seldom, but three times before it has left.
func (r *Room) askAfter(wait time.Duration) time.Duration {
	most := r.options.Away / 4
	after := min(most, max(time.Second, wait/2))
	if wait == 0 {
		after = most
	}
	return max(time.Second, (after + rand.N(after/4+1)).Truncate(time.Second))
}

// Enter takes the admission of a buyer for a purchase. leave must be called with what became of it.
// stock.ErrNotAdmitted: the buyer has no admission, or another purchase has it.
func (r *Room) Enter(ctx context.Context, goodsID int64, userID, requestID string) (leave func(context.Context, error), err error) {
	if !r.isOf(goodsID) {
		return func(context.Context, error) {}, nil
	}
	entered, err := r.run(ctx, r.enter, r.keys(goodsID, "admitted", "purchases"), userID, requestID, r.options.Admission.Milliseconds()).Int()
	switch {
	case err != nil:
		return nil, failed(ctx, err)
	case entered == 0:
		return nil, fmt.Errorf("item %d: %w", goodsID, stock.ErrNotAdmitted)
	}
	return func(ctx context.Context, err error) {
		sold := 0
		switch {
		case errors.Is(err, stock.ErrUnknownOutcome):
			return
		case err == nil:
			sold = 1
		}
		// Where Redis does not answer, the purchase keeps the admission until its end.
		_ = r.run(context.WithoutCancel(ctx), r.leave, r.keys(goodsID, "admitted", "orders", "purchases"), userID, requestID, sold).Err()
	}, nil
}

// Line is what a line is now, for those who run the sale.
type Line struct {
	Waiting, Admitted int64 // now
	// Admissions and Left are since the line began, or since a day without either: those who were admitted, and those who have left.
	Admissions, Left int64
	// Wait is how long one that joins now waits at the present pace; 0 means unknown, or that no one waits or can be admitted.
	Wait time.Duration
}

// Line counts the line of an item. stock.ErrNoRoom: the item has none.
func (r *Room) Line(ctx context.Context, goodsID int64) (l Line, err error) {
	if !r.isOf(goodsID) {
		return l, fmt.Errorf("item %d: %w", goodsID, stock.ErrNoRoom)
	}
	left, err := r.left(ctx, goodsID)
	if err != nil {
		left = unknown // the line is Redis's
	}
	return r.line(ctx, goodsID, left)
}

func (r *Room) line(ctx context.Context, goodsID, left int64) (l Line, err error) {
	answer, err := r.run(ctx, r.count, r.keys(goodsID, "seen", "admitted", "pace", "totals"), r.options.Away.Milliseconds()).Slice()
	if err == nil && len(answer) != 5 {
		err = fmt.Errorf("the script answered %v", answer)
	}
	if err != nil {
		return l, failed(ctx, err)
	}
	for i, n := range []*int64{&l.Waiting, &l.Admitted, &l.Admissions, &l.Left} {
		*n, _ = answer[i].(int64)
	}
	if left > 0 { // else no one is admitted
		l.Wait = estimate(l.Waiting, answer[4])
	}
	return l, nil
}

// Lines sums the lines of the items that this replica was asked for. Its Wait is the longest. It asks no database: metrics
// tell of a line beside one that hangs.
func (r *Room) Lines(ctx context.Context) (sum Line, err error) {
	if r == nil {
		return sum, stock.ErrNoRoom
	}
	r.items.Range(func(id, last any) bool {
		var l Line
		l, err = r.line(ctx, id.(int64), last.(known).left) //nolint:forcetypeassert // nothing else is in it
		sum = Line{sum.Waiting + l.Waiting, sum.Admitted + l.Admitted, sum.Admissions + l.Admissions, sum.Left + l.Left, max(sum.Wait, l.Wait)}
		return err == nil
	})
	return sum, err
}

const (
	// unknown is how many units can be sold where the database does not say: no one is admitted.
	unknown = -1
	// recent is how old what is known of an item may be: a line of any length costs each replica a few reads a second.
	recent = 250 * time.Millisecond
)

type known struct {
	at   time.Time
	left int64
}

// left is how many units of an item can be sold now.
func (r *Room) left(ctx context.Context, goodsID int64) (int64, error) {
	if last, ok := r.items.Load(goodsID); ok && time.Since(last.(known).at) < recent { //nolint:forcetypeassert // nothing else is in it
		return last.(known).left, nil //nolint:forcetypeassert // nothing else is in it
	}
	goods, err := r.options.Goods(ctx, goodsID)
	if err != nil {
		return 0, err
	}
	left := goods.Stock
	switch off := goods.Rejects(); {
	case errors.Is(off, stock.ErrSaleNotStarted):
		left = unknown // the line stands before the sale begins
	case off != nil:
		left = 0
	}
	r.items.Store(goodsID, known{time.Now(), left})
	return left, nil
}

func (r *Room) run(ctx context.Context, script *redis.Script, keys []string, args ...any) *redis.Cmd {
	return script.Run(ctx, r.redis, keys, args...)
}

func (r *Room) keys(goodsID int64, names ...string) []string {
	for i, name := range names {
		names[i] = r.options.Prefix + ":{room-" + strconv.FormatInt(goodsID, 10) + "}:" + name
	}
	return names
}

// failed names Redis, unless the request was ended.
func failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Cause(ctx)
	}
	return backend.Failure(backend.Redis, fmt.Errorf("ask the waiting room: %w", err))
}
