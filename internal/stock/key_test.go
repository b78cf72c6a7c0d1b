package stock_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/should"
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
		ids := []string{stock.BuyerKey(key, ""), stock.BuyerKey(key, one), stock.BuyerKey(key, other), stock.RestockKey.Of(key)}
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

// A range has every stored id of its key, and none of another key, whatever follows.
func TestAKeyRangeHasItsKeyAlone(t *testing.T) {
	within := func(key, id string) bool {
		from, below := stock.KeyRange(key)
		return from <= id && id < below
	}
	for _, id := range []string{"a1", stock.BuyerKey("a1", "ann"), stock.RestockKey.Of("a1"), stock.ReturnKey.Of("a1")} {
		if !within("a1", id) {
			t.Errorf("%q is not found by its key", id)
		}
	}
	for last := '!'; last <= '~'; last++ {
		for _, id := range []string{"a1" + string(last), stock.BuyerKey("a1"+string(last), "ann")} {
			if within("a1", id) {
				t.Errorf("%q is found by the key a1", id)
			}
		}
	}
	if within("a1", "a") || within("a1", "a0") {
		t.Error("a shorter or a lower key is found by the key a1")
	}
}

// Each row is what is stored beside a purchase: two units of item 1, sold to "ann" under the key "k".
func TestAKeyStandsForOnePurchase(t *testing.T) {
	id := stock.BuyerKey("k", "ann")
	ask := stock.Purchase{RequestID: id, Quantity: 2, UserID: "ann"}
	for name, c := range map[string]struct {
		change func(*stock.Order)
		want   bool
	}{
		"this purchase":    {func(*stock.Order) {}, true},
		"another item":     {func(o *stock.Order) { o.GoodsID = 2 }, false},
		"another quantity": {func(o *stock.Order) { o.Quantity = 1 }, false},
		"another buyer":    {func(o *stock.Order) { o.UserID = "bob" }, false},
		"a reservation":    {func(o *stock.Order) { o.Kind = stock.Hold }, false},
		"a restock":        {func(o *stock.Order) { o.Kind = stock.Restock }, false},
		"another key":      {func(o *stock.Order) { o.RequestID = "other" }, false},
		"without a buyer":  {func(o *stock.Order) { o.RequestID = "k" }, false},
	} {
		order := stock.Order{ID: "7", Kind: stock.Deduction, RequestID: id, GoodsID: 1, Quantity: 2, UserID: "ann"}
		c.change(&order)
		should.Be(t, order.Answers(1, ask), c.want, name, "answers the purchase")
	}
}

// What is stored under one key, or one number, for another purpose has another id, and the client sees its key alone.
func TestAStoredIDSaysWhoseKeyItIs(t *testing.T) {
	seen := make(map[string]string)
	for name, id := range map[string]string{
		"no buyer": stock.BuyerKey("k", ""), "a buyer": stock.BuyerKey("k", "ann"), "another": stock.BuyerKey("k", "bob"),
		"a restock": stock.RestockKey.Of("k"), "a return": stock.ReturnKey.Of("k"), "an end": stock.FinalKey.Of("k"), "a line": stock.LineKey.Of("k"),
	} {
		should.Be(t, stock.IsLine(id), name == "a line", "the key of", name, "is that of a line")
		if other, ok := seen[id]; ok || stock.KeyOf(id) != "k" {
			t.Errorf("the key of %s is stored as %q, and so is that of %q", name, id, other)
		}
		seen[id] = name
	}
	should.Be(t, stock.BuyerKey("k", ""), "k", "the key of no buyer is stored as")
}

// A key of a buyer has 22 characters of a hash: buyers that share one would share a purchase.
func TestNoTwoBuyersShareAKey(t *testing.T) {
	seen := make(map[string]bool)
	for n := range 10_000 {
		id := stock.BuyerKey("k", strconv.Itoa(n))
		if _, tag, _ := strings.Cut(id, " u"); len(tag) != 22 || seen[id] {
			t.Fatalf("buyer %d has %q, and another one too: %v", n, id, seen[id])
		}
		seen[id] = true
	}
}
