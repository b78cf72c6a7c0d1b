package redisstock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// entry is an order on the stream.
type entry struct {
	repo.PendingOrder
	id     string // on the stream
	fields map[string]any
}

// fieldNames are the fields of an order in the order in which the script takes
// them. What the stream has beside them is the script's own: the limit of one buyer,
// whether the order was accepted under an earlier one, and the purchase's place in a
// trace.
func fieldNames() []string {
	return []string{"goods", "quantity", "epoch", "request", "order", "remaining", "at", "replica", "user", "ttl"}
}

// readEntry reads an order from the stream. An error means that another program has
// written there.
func (s *Stock) readEntry(m redis.XMessage) (entry, error) {
	e := entry{id: m.ID, fields: m.Values}
	var wrong error
	whole := func(name string) int64 {
		n, err := strconv.ParseInt(e.text(name), 10, 64)
		if err != nil && wrong == nil {
			wrong = fmt.Errorf("entry %s has a wrong %s: %w", m.ID, name, err)
		}
		return n
	}
	e.PendingOrder = repo.PendingOrder{
		Order: stock.Order{
			ID: e.text("order"), Kind: stock.Deduction, RequestID: e.text("request"),
			GoodsID: whole("goods"), Quantity: whole("quantity"), UserID: e.text("user"), Remaining: whole("remaining"),
			Strategy: s.store.Strategy(), Replica: unescape(e.text("replica")), CreatedAt: instant(whole("at")),
		},
		Epoch:   whole("epoch"),
		Limited: e.text("limit") != "0", Earlier: e.text("earlier") == "1",
	}
	if e.text("ttl") != "" { // in microseconds; an order has none
		e.Kind, e.TTL = stock.Hold, time.Duration(whole("ttl"))*time.Microsecond
	}
	if wrong == nil && (e.ID == "" || e.RequestID == "" || e.Quantity < 1) {
		wrong = fmt.Errorf("entry %s is no order", m.ID)
	}
	return e, wrong
}

// is reports that the ledger's order is this one. A copy of a basket may have sold the same line by another
// strategy, from other units.
func (e entry) is(o stock.Order) bool { return o.ID == e.ID && o.Strategy == e.Strategy }

func (e entry) text(name string) string {
	text, _ := e.fields[name].(string)
	return text
}

func (e entry) list() []any {
	names := fieldNames()
	list := make([]any, len(names))
	for i, name := range names {
		list[i] = e.text(name)
	}
	return list
}

func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// readRequest reads what Redis remembers of a request: that of a reservation ends with its
// time to live.
func (s *Stock) readRequest(requestID, memory string) (stock.Order, error) {
	words := strings.Split(memory, "\n")
	kind := stock.Deduction
	if len(words) == 8 {
		kind, words = stock.Hold, words[:7]
	}
	if len(words) != 7 {
		return stock.Order{}, fmt.Errorf("redis remembers %q of request %s", memory, requestID)
	}
	var whole [4]int64
	for i, word := range append(words[1:4:4], words[6]) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return stock.Order{}, fmt.Errorf("redis remembers %q of request %s: %w", memory, requestID, err)
		}
		whole[i] = n
	}
	return stock.Order{
		ID: words[0], Kind: kind, RequestID: requestID, GoodsID: whole[0], Quantity: whole[1], Remaining: whole[2],
		Strategy: s.store.Strategy(), Replica: unescape(words[4]), UserID: words[5],
		CreatedAt: instant(whole[3]),
	}, nil
}

// madeAt is when an order number was made, in ms; ok is false for what is none.
func madeAt(number string) (ms int64, ok bool) {
	id, err := uuid.Parse(number)
	if err != nil || id.Version() != orderVersion {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(id[:8]) >> 16), true
}

// orderVersion is the version of the UUIDs that are order numbers: they begin with a
// time of 48 bits.
const orderVersion = 7

// escape keeps a replica's name to one line.
func escape(name string) string { return url.PathEscape(name) }

func unescape(name string) string {
	if plain, err := url.PathUnescape(name); err == nil {
		return plain
	}
	return name
}

// clocksApart is how far the clock of a replica, which is in an order number, may be
// ahead of that of Redis, which is in the ids of the stream: as far as the ledger allows.
const clocksApart = repo.MinAge / 2

// FindRequest finds what was accepted under a request id, where Redis remembers it: it
// does until the ledger has the order, and for a while after. Redis is not asked where
// nothing was ever sold from it. stock.ErrBackendUnavailable: Redis does not answer.
func (s *Stock) FindRequest(ctx context.Context, requestID string) (order stock.Order, ok bool, err error) {
	if used, err := s.used(ctx); err != nil || !used {
		return stock.Order{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	memories := make([]*redis.StringCmd, len(s.parts))
	_, err = s.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, p := range s.parts {
			memories[i] = pipe.Get(ctx, p.request(requestID))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return stock.Order{}, false, failed("find a request", err)
	}
	for _, m := range memories {
		memory, err := m.Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err == nil {
			order, err = s.readRequest(requestID, memory)
		}
		return order, err == nil, failed("find a request", err)
	}
	return stock.Order{}, false, nil
}

// FindOrder finds an accepted order on the streams by its number. It reads what was
// accepted since the number was made, in pages, until ctx ends. An order that the ledger
// has, or gets meanwhile, is not found.
func (s *Stock) FindOrder(ctx context.Context, number string) (order stock.Order, ok bool, err error) {
	ms, ok := madeAt(number)
	if !ok {
		return stock.Order{}, false, nil
	}
	if used, err := s.used(ctx); err != nil || !used {
		return stock.Order{}, false, err
	}
	for _, p := range s.parts {
		order, ok, err := s.findOn(ctx, p, number, max(0, ms-clocksApart.Milliseconds()))
		if err != nil || ok {
			return order, ok, err
		}
	}
	return stock.Order{}, false, nil
}

// findOn finds an order on one stream from a time on. An order that is offered again
// meanwhile moves to the end of the stream, which is read last.
func (s *Stock) findOn(ctx context.Context, p *partition, number string, ms int64) (order stock.Order, ok bool, err error) {
	for page, err := range s.pages(ctx, p, strconv.FormatInt(ms, 10), "+") {
		if err != nil {
			return stock.Order{}, false, fmt.Errorf("find an order: %w", err)
		}
		for _, m := range page {
			if m.Values["order"] != number {
				continue
			}
			e, err := s.readEntry(m)
			return e.Order, err == nil, failed("find an order", err)
		}
	}
	return stock.Order{}, false, nil
}

// entriesAtOnce bounds a page of a stream.
const entriesAtOnce = 500

// pages reads a stream between two ids, a page at a time, until ctx ends.
func (s *Stock) pages(ctx context.Context, p *partition, from, to string) iter.Seq2[[]redis.XMessage, error] {
	return func(yield func([]redis.XMessage, error) bool) {
		for {
			err := context.Cause(ctx) // the client does not notice it
			var page []redis.XMessage
			if err == nil {
				asking, answered := context.WithTimeout(ctx, answerWithin)
				page, err = s.redis.XRangeN(asking, p.orders(), from, to, entriesAtOnce).Result()
				err = failed("read a stream", err)
				answered()
			}
			if !yield(page, err) || err != nil || len(page) < entriesAtOnce {
				return
			}
			from = "(" + page[len(page)-1].ID
		}
	}
}

// used tells whether anything was ever sold from Redis; once it was, it stays so.
func (s *Stock) used(ctx context.Context) (bool, error) {
	if s.wasUsed.Load() {
		return true, nil
	}
	used, err := s.store.HasAllocations(ctx, Allocation)
	if used {
		s.wasUsed.Store(true)
	}
	return used, err
}
