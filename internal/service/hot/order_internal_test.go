package hot

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/repo"
)

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
		again, err := s.readRequest("key-1", written)
		if err != nil || again != order {
			t.Errorf("%q is %+v, and written again %+v (%v)", memory, order, again, err)
		}
	})
}
