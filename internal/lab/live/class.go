package live

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"rsc.io/qr"

	"github.com/stockd/stockd/internal/load"
)

// The bounds of a class.
const (
	maxBuyers = 500
	// maxOfAddress is how many of them can have joined from one address: a school has one for all of
	// its phones, and a script there may not take every place.
	maxOfAddress = maxBuyers / 2
	// joinsAMinute bounds the requests to join of one address, also those that are rejected: twice what a
	// class of 60 makes that begins at the same time.
	joinsAMinute = 120
	// unseenFor is after how long without a press a name is free again, when someone joins.
	unseenFor = 10 * time.Minute
	// maxName is the longest name of a buyer, in characters.
	maxName = 24
	// pressEvery is the shortest time between two purchases of a phone.
	pressEvery = 150 * time.Millisecond
)

// errTooSoon tells a phone to wait: for the answer to its last purchase, or for its next one, or before
// it joins.
var errTooSoon = errors.New("too soon")

// errStranger tells a phone that it has not joined.
var errStranger = errors.New("this phone has not joined")

// Buyer is one of a class, with what it got of the sale that is shown.
type Buyer struct {
	Name   string `json:"name"`
	Bought int    `json:"bought"`
	// Last is what its last purchase was answered: the name of a kind, or of a problem.
	Last string `json:"last,omitempty"`
	// No is the number of the last unit that it bought, counted as sales are answered, Of how many there are to sell.
	// A number above that is of a unit that does not exist.
	No int64 `json:"no,omitempty"`
	Of int64 `json:"of,omitempty"`
}

// Bought is the answer to a purchase of a phone.
type Bought struct {
	Buyer

	Order string `json:"order,omitempty"`
}

// phone is a buyer's.
type phone struct {
	Buyer

	from    string // the address that it joined from
	item    int64  // of the sale that its purchases are counted of
	seen    time.Time
	pressed time.Time
	waits   bool // its last purchase is not answered
}

// class is the buyers who have joined. Each has a token of its own, which buys in its name
// and does nothing else.
type class struct {
	mu      sync.Mutex
	phones  map[string]*phone      // by token
	asked   map[string][]time.Time // of the requests to join of the last minute, by address
	changed bool
}

// join takes a name for a phone at an address, which no one else in the class has.
func (c *class) join(name, from string, now time.Time) (token string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.admits(from, now) {
		return "", fmt.Errorf("%w: %d requests to join a minute are allowed from one address: try again in a minute", errTooSoon, joinsAMinute)
	}
	name = strings.TrimSpace(name)
	n := len([]rune(name))
	switch {
	case n == 0 || n > maxName:
		return "", fmt.Errorf("%w: name: %d characters, where 1 to %d are allowed", errInput, n, maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "", fmt.Errorf("%w: name: it has characters that cannot be shown", errInput)
	}
	c.free(now)
	if err := c.room(name, from); err != nil {
		return "", err
	}
	if c.phones == nil {
		c.phones = make(map[string]*phone)
	}
	token = rand.Text()
	c.phones[token] = &phone{Buyer: Buyer{Name: name}, from: from, seen: now}
	c.changed = true
	return token, nil
}

// admits reports whether an address may ask once more; the caller holds mu. No minute has more requests than
// are allowed, not even the first. An address that has not asked for a minute is forgotten.
func (c *class) admits(from string, now time.Time) bool {
	if c.asked == nil {
		c.asked = make(map[string][]time.Time)
	}
	for address, times := range c.asked {
		c.asked[address] = slices.DeleteFunc(times, func(at time.Time) bool { return now.Sub(at) >= time.Minute })
	}
	maps.DeleteFunc(c.asked, func(_ string, times []time.Time) bool { return len(times) == 0 })
	if len(c.asked[from]) >= joinsAMinute {
		return false
	}
	c.asked[from] = append(c.asked[from], now)
	return true
}

// free forgets the phones that were not seen for long; the caller holds mu.
func (c *class) free(now time.Time) {
	maps.DeleteFunc(c.phones, func(_ string, p *phone) bool { return !p.waits && now.Sub(p.seen) >= unseenFor })
}

// room says why there is none for a name; the caller holds mu.
func (c *class) room(name, from string) error {
	there := 0
	for _, p := range c.phones {
		if strings.EqualFold(p.Name, name) {
			return fmt.Errorf("%w: name: another buyer is called %s", errInput, p.Name)
		}
		if p.from == from {
			there++
		}
	}
	switch {
	case len(c.phones) >= maxBuyers:
		return fmt.Errorf("%w: %d buyers have joined, and no more can: a place is free when its phone was not used for %.0f minutes", errConflict, maxBuyers, unseenFor.Minutes())
	case there >= maxOfAddress:
		return fmt.Errorf("%w: %d buyers have joined from this address, and no more can: a place is free when its phone was not used for %.0f minutes", errConflict, maxOfAddress, unseenFor.Minutes())
	default:
		return nil
	}
}

// see notices that a phone is used while nothing is sold, and returns its buyer.
func (c *class) see(token string, now time.Time) (Buyer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.phones[token]
	if p == nil {
		return Buyer{}, errStranger
	}
	p.seen = now
	b := p.Buyer
	b.Last = "closed"
	return b, nil
}

// press begins a purchase of a phone in the sale of an item.
func (c *class) press(token string, item int64, now time.Time) (name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.phones[token]
	switch {
	case p == nil:
		return "", errStranger
	case p.waits:
		return "", fmt.Errorf("%w: the last purchase is not answered yet", errTooSoon)
	case now.Sub(p.pressed) < pressEvery:
		return "", fmt.Errorf("%w: one purchase in %s", errTooSoon, pressEvery)
	}
	if p.item != item {
		p.item, p.Buyer = item, Buyer{Name: p.Name}
	}
	p.waits, p.pressed, p.seen = true, now, now
	return p.Name, nil
}

// answered ends it. What it bought is a number of so many, and 0 is nothing.
func (c *class) answered(token, last string, no, of int64) Buyer {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.phones[token]
	p.waits, p.Last, c.changed = false, last, true
	if no > 0 {
		p.Bought++
		p.No, p.Of = no, of
	}
	return p.Buyer
}

// buyers are all of them where there is something new about them, with what they got of the
// sale of an item; those first who have most.
func (c *class) buyers(item int64) (list buyers, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.changed {
		return nil, false
	}
	c.changed = false
	list = make(buyers, 0, len(c.phones))
	for _, p := range c.phones {
		b := p.Buyer
		if p.item != item {
			b = Buyer{Name: b.Name}
		}
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b Buyer) int {
		return cmp.Or(cmp.Compare(b.Bought, a.Bought), cmp.Compare(a.Name, b.Name))
	})
	return list, true
}

// touch has the buyers published again: a sale has begun.
func (c *class) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = len(c.phones) > 0
}

type buyers []Buyer

func (buyers) kind() string { return "buyers" }

func (b buyers) apply(s *State) { s.Buyers = b }

// Buy makes one real purchase for a phone, through the balancer and as the sale is sold now.
// It is counted with those of the clients. While nothing is sold, the answer is "closed".
func (s *Session) Buy(ctx context.Context, token string) (Bought, error) {
	s.mu.Lock()
	if s.sale.Phase != Selling {
		s.mu.Unlock()
		buyer, err := s.class.see(token, time.Now())
		return Bought{Buyer: buyer}, err
	}
	r, mode := s.run, s.run.modes[len(s.run.modes)-1]
	name, err := s.class.press(token, r.item, time.Now())
	if err != nil {
		s.mu.Unlock()
		return Bought{}, err
	}
	r.legs.Add(1) // a sale that ends waits for its answer
	s.mu.Unlock()
	defer r.legs.Done()
	got, no, err := r.buyOnce(context.WithoutCancel(ctx), mode, name)
	if err != nil {
		s.class.answered(token, "error", 0, 0)
		return Bought{}, err
	}
	buyer := s.class.answered(token, said(got), no, r.settings.Stock)
	return Bought{Buyer: buyer, Order: got.Order}, nil
}

// buyOnce makes one purchase in the name of a buyer. What is sold has a number.
func (r *run) buyOnce(ctx context.Context, m Mode, name string) (got load.Answer, no int64, err error) {
	r.phones.Store(true)
	plan := r.press(m, name)
	plan.Observe = func(a load.Answer) {
		got, no = a, r.meter.count(a)
	}
	result, err := load.Run(ctx, plan)
	if result != nil {
		result.Elapsed, result.Selling = 0, 0 // it is beside the time of the sale
	}
	r.add(result, err)
	return got, no, err
}

// press is the load of one purchase in the name of a buyer. Its one request alone ends it: one
// whose time is over before it is sent has no answer, and none would pass for the first kind.
func (r *run) press(m Mode, name string) load.Plan {
	plan := r.plan(m)
	plan.Clients, plan.Rate, plan.Requests, plan.Duration = 1, 0, 1, 0
	plan.User, plan.SoldOut = func() string { return name }, nil
	return plan
}

// said names what an answer means to a buyer.
func said(a load.Answer) string {
	switch a.Kind {
	case load.Sold:
		return "sold"
	case load.Rejected:
		return "rejected"
	case load.Unknown:
		return "unknown"
	default:
		return a.Problem
	}
}

// classCode is the QR code of the address at which phones buy.
func (h *Handler) classCode(w http.ResponseWriter, r *http.Request) {
	if h.session.at == "" {
		http.NotFound(w, r)
		return
	}
	code, err := qr.Encode(h.session.at, qr.M)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "image/png")
	_, _ = w.Write(code.PNG()) // the reader may have gone
}
