package stock_test

import (
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/stock"
)

func FuzzKeys(f *testing.F) {
	f.Add("checkout-1", "u-1", "u-2")
	f.Add("u", "", "restock")
	f.Add(strings.Repeat("k", stock.MaxRequestID), strings.Repeat("小", stock.MaxUserID), "7")
	f.Fuzz(func(t *testing.T, key, one, other string) {
		if key == "" || len(key) > stock.MaxRequestID || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Skip("no key that a client may send")
		}
		ids := []string{stock.BuyerKey(key, ""), stock.BuyerKey(key, one), stock.BuyerKey(key, other), stock.RestockKey(key)}
		from, below := stock.KeyRange(key)
		for i, id := range ids {
			if stock.KeyOf(id) != key || len(id) > 192 || id < from || id >= below {
				t.Errorf("%q of %q is stored as %q", key, one, id)
			}
			for j, another := range ids[:i] {
				if same := i == 1 && one == "" || i == 2 && (one == other || other == "" && j == 0); id == another && !same {
					t.Errorf("%q is stored as %q for two clients", key, id)
				}
			}
		}
	})
}
