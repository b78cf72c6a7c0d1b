package handler

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// slots limits concurrent purchases so that no item and no strategy takes all slots: an item may
// have no more slots than are free for all items, and purchases that ask for a strategy, group
// or fence other than their item's share what the item leaves free by the same rule. One item
// alone thus has at most half of all slots, and n flooded items have 1/(n+1) each, with as much
// free for the next one. Purchases by the item's own strategy do not compete with those that
// ask for another: the latter have at most a third of all slots, and leave the item a sixth.
//
// It remembers only items and modes that have a slot.
type slots struct {
	most int

	mu    sync.Mutex
	taken int
	items map[int64]itemSlots
	asked map[askedMode]int
}

// itemSlots are those of one item.
type itemSlots struct {
	taken int
	asked int // of those taken, by purchases that ask for another mode
}

// askedMode is a mode that purchases of an item ask for.
type askedMode struct {
	goodsID int64
	mode    *service.Seller
}

// What is full when a purchase is shed.
const (
	fullReplica  = "replica"
	fullItem     = "item"
	fullStrategy = "strategy"
)

// newSlots returns nil, which means unlimited, for 0.
func newSlots(most int) *slots {
	if most == 0 {
		return nil
	}
	return &slots{most: most, items: make(map[int64]itemSlots), asked: make(map[askedMode]int)}
}

// slot is held by one purchase. Release it once.
type slot struct {
	of      *slots
	goodsID int64
	asked   *service.Seller // nil: the purchase is served in its item's mode
}

// take takes a slot for a purchase of an item; asked is nil unless the purchase asks for a mode
// other than the item's. It never waits: full names what has no slot left. Another queue before
// that of the lock would only add to the wait.
func (p *slots) take(goodsID int64, asked *service.Seller) (taken slot, full string) {
	if p == nil {
		return slot{}, ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.most - p.taken
	share, mode := p.items[goodsID], askedMode{goodsID, asked}
	left := free - share.taken // to the item
	switch {
	case free == 0:
		return slot{}, fullReplica
	case left <= 0:
		return slot{}, fullItem
	case asked != nil && p.asked[mode] >= left-share.asked:
		return slot{}, fullStrategy
	}
	p.taken++
	share.taken++
	if asked != nil {
		share.asked++
		p.asked[mode]++
	}
	p.items[goodsID] = share
	return slot{p, goodsID, asked}, ""
}

func (t slot) release() {
	p := t.of
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	share := p.items[t.goodsID]
	share.taken--
	if t.asked != nil {
		share.asked--
		mode := askedMode{t.goodsID, t.asked}
		if p.asked[mode]--; p.asked[mode] == 0 {
			delete(p.asked, mode)
		}
	}
	if share.taken == 0 {
		delete(p.items, t.goodsID)
		return
	}
	p.items[t.goodsID] = share
}

// shedKey marks the context of a request whose purchase was shed.
const shedKey = "shed"

// shedError rejects a purchase for which there is no slot.
type shedError struct {
	full    string
	goodsID int64
}

func (e *shedError) Unwrap() error { return stock.ErrBusy }

func (e *shedError) Error() string {
	switch e.full {
	case fullItem:
		return fmt.Sprintf("%v: item %d has its share of the purchases that this replica serves at a time", stock.ErrBusy, e.goodsID)
	case fullStrategy:
		return fmt.Sprintf("%v: this strategy has its share of the purchases of item %d that this replica serves at a time", stock.ErrBusy, e.goodsID)
	default:
		return fmt.Sprintf("%v: this replica serves as many purchases as it may", stock.ErrBusy)
	}
}

// Limits are the rate limits of the public API: User of the purchases of one buyer, Address of
// the requests of one client address.
type Limits struct {
	User, Address Rate
}

// Rate is a sustained rate and a burst of at least 1. A rate of 0 means unlimited; any other is
// at least 0.001.
type Rate struct {
	PerSecond float64
	Burst     int
}

// mostKnown bounds the clients that a limiter remembers.
const mostKnown = 100_000

// limiter has a token bucket for each client. It stores when a bucket will be full again, and
// forgets full buckets.
type limiter struct {
	every time.Duration // until the next token
	whole time.Duration // until an empty bucket is full
	seed  maphash.Seed

	mu    sync.Mutex
	full  map[uint64]time.Time // by a hash, so that names of any length take the same memory
	swept time.Time
}

// newLimiter returns nil, which means unlimited, where the rate is 0.
func newLimiter(r Rate) *limiter {
	if r.PerSecond == 0 {
		return nil
	}
	every := time.Duration(float64(time.Second) / r.PerSecond)
	return &limiter{
		every: every, whole: every * time.Duration(r.Burst),
		seed: maphash.MakeSeed(), full: make(map[uint64]time.Time),
	}
}

// take takes a token of a client, or returns the time until there is one.
func (l *limiter) take(client string, now time.Time) (wait time.Duration) {
	if l == nil {
		return 0
	}
	key := maphash.String(l.seed, client)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	full, known := l.full[key]
	if !known || full.Before(now) {
		full = now
	}
	full = full.Add(l.every)
	if wait := full.Sub(now) - l.whole; wait > 0 {
		return wait
	}
	if !known {
		l.makeRoom()
	}
	l.full[key] = full
	return 0
}

// giveBack returns a token that was taken.
func (l *limiter) giveBack(client string) {
	if l == nil {
		return
	}
	key := maphash.String(l.seed, client)
	l.mu.Lock()
	defer l.mu.Unlock()
	if full, ok := l.full[key]; ok {
		l.full[key] = full.Add(-l.every)
	}
}

// once takes one token for all lines of a basket.
type once struct {
	rate

	taken bool
}

func (o *once) take(client string, now time.Time) time.Duration {
	if o.taken {
		return 0
	}
	o.taken = true
	return o.rate.take(client, now)
}

// wait returns the time until a client has a token. It takes none.
func (l *limiter) wait(client string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	full, ok := l.full[maphash.String(l.seed, client)]
	if !ok {
		return 0
	}
	return max(0, full.Add(l.every).Sub(now)-l.whole)
}

// sweep forgets full buckets, once a second.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	maps.DeleteFunc(l.full, func(_ uint64, full time.Time) bool { return !full.After(now) })
}

// makeRoom forgets any client where too many are known: a rate limit cannot stop an attacker
// with that many addresses, and the other clients must still be served.
func (l *limiter) makeRoom() {
	if len(l.full) < mostKnown {
		return
	}
	for key := range l.full {
		delete(l.full, key)
		return
	}
}

// limitAddresses rejects requests beyond the rate of their address before it reads them. A shed
// purchase does not count, so that its retry is not throttled.
func limitAddresses(l *limiter, observer Observer) gin.HandlerFunc {
	return func(c *gin.Context) {
		if l == nil {
			return
		}
		address := network(c.ClientIP())
		if wait := l.take(address, time.Now()); wait > 0 {
			observer.RateLimited(byAddress)
			answer(c, tooOften("this address asks", wait))
			return
		}
		c.Next()
		if c.GetBool(shedKey) {
			l.giveBack(address)
		}
	}
}

// network is the unit of address limits: an IPv4 address, or the /64 of an IPv6 address, all of
// which one client usually has.
func network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap(); ip.Is4() {
		return ip.String()
	}
	prefix, _ := ip.WithZone("").Prefix(64) // never fails for IPv6
	return prefix.String()
}

func tooOften(subject string, wait time.Duration) problem {
	seconds := int(math.Ceil(wait.Seconds()))
	p := newProblem(http.StatusTooManyRequests, "rate-limited", "Too many requests").
		detail("%s too often; try again in %d s", subject, seconds)
	p.retryAfter = strconv.Itoa(seconds + rand.N(jitter))
	return p
}
