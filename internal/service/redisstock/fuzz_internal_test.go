package redisstock

import (
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// Source is the script, for tests of its steps.
func Source() string { return source() }

// FuzzAnswers reads what the script answers of keys that others may have written:
// figures are what stands there, or an error and no counter; and of a purchase there
// is one answer.
func FuzzAnswers(f *testing.F) {
	for _, seed := range []string{"5\n0\n1", "-3\n2\n9223372036854775807", "9223372036854775808\n0\n1", "1e9\n0\n1", "nan\n\n", "ABSENT", "2 1", "2", " 2\t1 x", "1-0"} {
		f.Add(seed, int64(answerSold))
	}
	f.Fuzz(func(t *testing.T, text string, code int64) {
		var row []any
		for word := range strings.SplitSeq(text, "\n") {
			row = append(row, word)
		}
		d, err := readCounter(row)
		if err != nil && d != (Drift{}) {
			t.Errorf("%q is no counter (%v), and read as %+v", text, err, d)
		}
		for i, figure := range []int64{d.Redis, d.Pending, d.Epoch} {
			if !d.Loaded {
				break
			}
			if n, ok := new(big.Int).SetString(fmt.Sprint(row[i]), 10); !ok || n.Cmp(big.NewInt(figure)) != 0 {
				t.Errorf("%q is read as %+v", text, d)
			}
		}
		list, err := readVerdicts([]any{[]any{code, text}}, 1)
		if err != nil || len(list) != 1 || list[0] != (verdict{answer: code, text: text}) {
			t.Errorf("%d with %q is read as %+v (%v)", code, text, list, err)
		}
		if list, err := readVerdicts([]any{row}, 1); err == nil {
			t.Errorf("%q is read as %+v", row, list)
		}
		should.Fail(t, readLimited(text), stock.ErrUserLimit, "a limit of … is", text)
		if at, err := addedAt(text); err != nil && !at.IsZero() {
			t.Errorf("%q is no id (%v), and of %s", text, err, at)
		}
	})
}

// FuzzEntry reads orders from the stream as any client may have written them: each is
// one, and is handed to the script as it was, or is rejected.
func FuzzEntry(f *testing.F) {
	f.Add("1\n2\n3\nkey-1\norder-1\n10\n1700000000000\nreplica-1\nu-1")
	f.Add("9223372036854775808\n-1\n3\n\norder\n10\n0\n%zz\n")
	f.Add("1\n0\n1\nk\no\n1\n-9223372036854775808\na%0Ab\n\xff")
	s := &Stock{store: &repo.Store{}}
	f.Fuzz(func(t *testing.T, text string) {
		values := make(map[string]any)
		lines := strings.SplitN(text, "\n", len(fieldNames()))
		for i, line := range lines {
			values[fieldNames()[i]] = line
		}
		e, err := s.readEntry(redis.XMessage{ID: "1-1", Values: maps.Clone(values)})
		if err != nil {
			return
		}
		if e.ID == "" || e.RequestID == "" || e.Quantity < 1 {
			t.Errorf("%q is taken for %+v", text, e.Order)
		}
		for i, part := range e.list() {
			if i < len(lines) && part != lines[i] {
				t.Errorf("%s is handed on as %q, and was %q", fieldNames()[i], part, lines[i])
			}
		}
	})
}

// FuzzMemory reads what Redis remembers of a request.
func FuzzMemory(f *testing.F) {
	f.Add("order-1\n1\n2\n3\nreplica-1\nu-1\n1700000000000")
	f.Add("\n\n\n\n\n")
	f.Add("o\n1\n2\n3\nshop%201\na\nb")
	s := &Stock{store: &repo.Store{}}
	f.Fuzz(func(t *testing.T, memory string) {
		order, err := s.readRequest("key-1", memory)
		if err != nil {
			return
		}
		written := fmt.Sprintf("%s\n%d\n%d\n%d\n%s\n%s\n%d", order.ID, order.GoodsID, order.Quantity, order.Remaining, escape(order.Replica), order.UserID, order.CreatedAt.UnixMilli())
		again := must.Get(s.readRequest("key-1", written))(t)
		should.Be(t, again, order, memory, "is written again as")
	})
}
