package hot

import (
	"encoding/binary"
	"fmt"
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
	return []string{"goods", "quantity", "epoch", "request", "order", "remaining", "at", "replica", "user"}
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
		Limited: e.isLimited(), Earlier: e.text("earlier") == "1",
	}
	if wrong == nil && (e.ID == "" || e.RequestID == "" || e.Quantity < 1) {
		wrong = fmt.Errorf("entry %s is no order", m.ID)
	}
	return e, wrong
}

func (e entry) text(name string) string {
	text, _ := e.fields[name].(string)
	return text
}

// isLimited reports that the item had a limit. An order from before there were limits
// does not say.
func (e entry) isLimited() bool {
	limit := e.text("limit")
	return limit != "" && limit != "0"
}

// list is what the script takes of an order.
func (e entry) list() []any {
	names := fieldNames()
	list := make([]any, len(names))
	for i, name := range names {
		list[i] = e.text(name)
	}
	return list
}

// instant is a time of the stream.
func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// readRequest reads what Redis remembers of a request. What was remembered before
// orders had a time ends with the user.
func (s *Stock) readRequest(requestID, memory string) (stock.Order, error) {
	words := strings.Split(memory, "\n")
	if len(words) == 6 {
		ms, _ := madeAt(words[0])
		words = append(words, strconv.FormatInt(ms, 10))
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
		ID: words[0], Kind: stock.Deduction, RequestID: requestID, GoodsID: whole[0], Quantity: whole[1], Remaining: whole[2],
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
