package live

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/pkg/client"
)

// The bounds of the state: what a page that is opened late can still show.
const (
	maxPoints = 1400 // five minutes, and the time before and after a sale
	maxLeases = 600
	maxMarks  = 200
)

// State is everything that the page shows, apart from what it asks the servers for.
type State struct {
	Servers    map[string]servers.Info `json:"servers"`
	Strategies []service.Description   `json:"strategies"`
	Machines   []Machine               `json:"machines"`
	Sale       Sale                    `json:"sale"`
	Points     []Point                 `json:"points"`
	Leases     []Lease                 `json:"leases"`
	Marks      []Mark                  `json:"marks"`
	Lanes      Lanes                   `json:"lanes"`
	Buyers     []Buyer                 `json:"buyers"`
	// Play is the experiment that is made, or was made last; nil: there is none.
	Play *Play `json:"play"`
	// Guest tells that others run the replicas.
	Guest bool `json:"guest,omitempty"`
	// WithoutFailpoint are the strategies whose purchases cannot be paused between read and write.
	WithoutFailpoint []string `json:"without_failpoint,omitempty"`
	// CannotPause tells that this system cannot pause a process.
	CannotPause bool `json:"cannot_pause,omitempty"`
	// Class is the address at which phones buy, where there is one.
	Class string `json:"class,omitempty"`
	// Apart tells that stock and answers are points of their own.
	Apart bool `json:"apart,omitempty"`

	past   []Lease // before Leases, for a recording
	passed Millis  // Lanes.Whole as the follower has it
}

// Millis is a time in milliseconds since 1970, or 0 where there is none.
type Millis float64

func millis(t time.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMicro()) / 1000
}

// Point is a moment of a sale.
type Point struct {
	At Millis `json:"at"`
	// Seen is when row and ledger were read, 0 where they could not be; Stock, Sold,
	// Oversold and Lost are of then, as one statement read them.
	Seen     Millis `json:"seen"`
	Stock    int64  `json:"stock"`
	Sold     int64  `json:"sold"`
	Oversold int64  `json:"oversold"`
	Lost     int64  `json:"lost"`
	// Seconds is the time since the point before; the answers are of that time.
	Seconds float64 `json:"seconds"`
	Answers Answers `json:"answers"`
	// P50 and P99 are of these answers, in milliseconds; 0 where there were none.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	// Line is the waiting room; nil: there is none, or it was not seen yet.
	Line *client.LineCount `json:"line,omitempty"`
}

// Answers are counted by what they mean to a buyer.
type Answers struct {
	Sold     int `json:"sold"`
	Rejected int `json:"rejected"` // out of stock
	Busy     int `json:"busy"`
	Failed   int `json:"failed"`
	Unknown  int `json:"unknown"`
}

func (Point) kind() string { return "point" }

func (p Point) apply(s *State) { s.Points = bounded(append(s.Points, p), maxPoints) }

// Mark is something that was done, or happened, to a replica, a server or the sale.
type Mark struct {
	At   Millis `json:"at"`
	Who  string `json:"who"`
	What string `json:"what"`
	// Detail is a name or a number that belongs to it.
	Detail string `json:"detail,omitempty"`
	// Phantom is how many units the row shows that do not exist, where a sale was switched.
	Phantom int64 `json:"phantom,omitempty"`
}

func (Mark) kind() string { return "mark" }

func (m Mark) apply(s *State) { s.Marks = bounded(append(s.Marks, m), maxMarks) }

// Lease is a lease as its replica recorded it, as far as it has come. One without a lock is a request: see requestsOf.
type Lease struct {
	ID       string `json:"id"`
	Holder   string `json:"holder"`
	Lock     string `json:"lock"`
	Name     string `json:"name,omitempty"`
	Shared   bool   `json:"shared,omitempty"`
	Token    uint64 `json:"token,omitempty"`
	Asked    Millis `json:"asked"`
	Granted  Millis `json:"granted,omitempty"`
	GaveUp   Millis `json:"gave_up,omitempty"`
	Lost     Millis `json:"lost,omitempty"`
	Released Millis `json:"released,omitempty"`
	// Died is when its replica was seen to have ended.
	Died  Millis `json:"died,omitempty"`
	Error string `json:"error,omitempty"`
	// Request is the id of the request that asked.
	Request string `json:"request,omitempty"`
	// Key is the key or node that stands for it in the backend.
	Key string `json:"key,omitempty"`
	// TTL is in milliseconds, Expires when the lease ends by the grant; 0 where it does not by
	// itself.
	TTL     float64 `json:"ttl,omitempty"`
	Expires Millis  `json:"expires,omitempty"`
	// Outlived is when its TTL was over, of one that its holder still had, or died with.
	Outlived Millis `json:"outlived,omitempty"`
	// Ahead is who had the lock when the lease was asked for, Beside are those who had it when it was granted,
	// and Woke is how many waiters its release woke.
	Ahead  string   `json:"ahead,omitempty"`
	Beside []Beside `json:"beside,omitempty"`
	Woke   int      `json:"woke,omitempty"`
	// Notes are the newest renewals, votes and wake-ups; Woken counts all wake-ups.
	Notes []Note `json:"notes,omitempty"`
	Woken int    `json:"woken,omitempty"`
	// Steps are those of its request, where it was traced.
	Steps []Step `json:"steps,omitempty"`
}

// End is when its holder had it no more, or 0.
func (l Lease) End() (end Millis) {
	for _, at := range []Millis{l.Lost, l.Released, l.Died} {
		if at > 0 && (end == 0 || at < end) {
			end = at
		}
	}
	return end
}

// Lanes is what the lanes show beside the leases.
type Lanes struct {
	// Until is how far the records have been read.
	Until Millis `json:"until"`
	// Waiting is how many requests of each replica wait for the lock.
	Waiting map[string]int `json:"waiting"`
	// Granted counts the leases of the sale, Overlaps those that were granted while
	// another holder had the same lock.
	Granted  int `json:"granted"`
	Overlaps int `json:"overlaps"`
	// Whole is the time from which on every lease was passed on to the page: where there
	// are very many, the older ones of a moment are left out.
	Whole Millis `json:"whole"`
}

// recorded is what the replicas have recorded since the last one.
type recorded struct {
	Lanes  Lanes   `json:"lanes"`
	Leases []Lease `json:"leases"`
}

func (recorded) kind() string { return "leases" }

func (r recorded) apply(s *State) {
	whole := s.Lanes.Whole
	s.Lanes, s.passed = r.Lanes, r.Lanes.Whole
	s.Lanes.Whole = max(whole, s.Lanes.Whole)
	for _, l := range r.Leases {
		// One that changes is mostly among the last.
		i := len(s.Leases) - 1
		for i >= 0 && s.Leases[i].ID != l.ID {
			i--
		}
		if i >= 0 {
			s.Leases[i] = l
		} else {
			s.Leases = append(s.Leases, l)
		}
	}
	if over := len(s.Leases) - maxLeases; over > 0 {
		s.Lanes.Whole = max(s.Lanes.Whole, s.Leases[over].Asked)
		s.past = append(s.past, s.Leases[:over]...)
		s.past = bounded(s.past, maxRecordedLeases)
	}
	s.Leases = bounded(s.Leases, maxLeases)
}

// began is the begin of a sale: what is drawn of the one before goes.
type began struct{ Sale }

func (began) kind() string { return "began" }

func (b began) apply(s *State) {
	s.Sale, s.Points, s.Leases, s.Marks, s.Lanes = b.Sale, []Point{}, []Lease{}, []Mark{}, Lanes{}
	s.past, s.passed = nil, 0
}

type machines []Machine

func (machines) kind() string { return "machines" }

func (m machines) apply(s *State) { s.Machines = m }

type strategies []service.Description

func (strategies) kind() string { return "strategies" }

func (l strategies) apply(s *State) { s.Strategies = l }

// bounded are the last of a list.
func bounded[T any](list []T, most int) []T {
	if over := len(list) - most; over > 0 {
		return slices.Delete(list, 0, over)
	}
	return list
}

const (
	// lookEvery is the pause between two looks at row and ledger, lookWithin bounds one.
	lookEvery  = 150 * time.Millisecond
	lookWithin = 2 * time.Second
)

// sampler reads row and ledger of an item. Where the database is ours it has a connection of
// its own, and no replica is asked.
type sampler struct {
	audit func(ctx context.Context, item int64) (stock.Audit, error)
	count func(ctx context.Context, item int64) (client.LineCount, error)

	mu    sync.Mutex
	item  int64 // 0: nothing is looked at
	lined int64 // the item, where it has a waiting room, or 0
	last  stock.Audit
	seen  time.Time // of last; zero where the database did not answer since
	line  *client.LineCount
}

// look has an item looked at from now on, and its line counted where it has a waiting room.
func (s *sampler) look(item int64, room bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.item, s.seen, s.lined, s.line = item, time.Time{}, 0, nil
	if room {
		s.lined = item
	}
}

// fill adds what was seen last to a point. What was seen once is shown once: where the
// database does not answer, the point has nothing of it.
func (s *sampler) fill(p *Point, item int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Line = s.line
	if s.seen.IsZero() || s.last.GoodsID != item {
		return
	}
	p.Seen, p.Stock, p.Sold, p.Oversold, p.Lost = millis(s.seen), s.last.Stock, s.last.Sold, s.last.Oversold, s.last.Lost
	s.seen = time.Time{}
}

// phantom is how many units the row of an item shows that do not exist, as it was seen last.
func (s *sampler) phantom(item int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.GoodsID != item {
		return 0
	}
	return max(0, s.last.Lost)
}

// lookOnce reads row and ledger. Where that fails a point without a stock tells it.
func (s *sampler) lookOnce(ctx context.Context) {
	sample(ctx, s, &s.item, s.audit, func(audit stock.Audit) { s.last, s.seen = audit, time.Now() })
}

// countOnce counts the line of an item that has one. Where no replica answers, it is as it was seen last.
func (s *sampler) countOnce(ctx context.Context) {
	sample(ctx, s, &s.lined, s.count, func(line client.LineCount) { s.line = &line })
}

// sample asks about an item, and keeps the answer unless the item is another one by then.
func sample[T any](ctx context.Context, s *sampler, of *int64, question func(context.Context, int64) (T, error), keep func(T)) {
	s.mu.Lock()
	item := *of
	s.mu.Unlock()
	if item == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	answer, err := question(ctx, item)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && *of == item {
		keep(answer)
	}
}
