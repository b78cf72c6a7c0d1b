package stock_test

import (
	"errors"
	"slices"
	"strconv"
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

// A range has every stored id of its key, and none of another key, whatever follows.
func TestAKeyRangeHasItsKeyAlone(t *testing.T) {
	within := func(key, id string) bool {
		from, below := stock.KeyRange(key)
		return from <= id && id < below
	}
	for _, id := range []string{"a1", stock.BuyerKey("a1", "ann"), stock.RestockKey("a1"), stock.ReturnKey("a1")} {
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

// Each row is what is stored under the ids of one purchase: two units of item 1, sold to "ann".
func TestAKeyStandsForOnePurchase(t *testing.T) {
	id := stock.BuyerKey("k", "ann")
	ask := stock.Purchase{RequestID: id, Quantity: 2, UserID: "ann"}
	order := func(requestID string, change func(*stock.Order)) stock.Order {
		o := stock.Order{ID: "7", Kind: stock.Deduction, RequestID: requestID, GoodsID: 1, Quantity: 2, UserID: "ann"}
		if change != nil {
			change(&o)
		}
		return o
	}
	for name, c := range map[string]struct {
		stored []stock.Order
		ok     bool
		want   error
	}{
		"nothing":                         {nil, false, nil},
		"this purchase":                   {[]stock.Order{order(id, nil)}, true, nil},
		"this purchase, without a tag":    {[]stock.Order{order("k", nil)}, true, nil},
		"another item":                    {[]stock.Order{order(id, func(o *stock.Order) { o.GoodsID = 2 })}, false, stock.ErrKeyReused},
		"another quantity":                {[]stock.Order{order(id, func(o *stock.Order) { o.Quantity = 1 })}, false, stock.ErrKeyReused},
		"another buyer":                   {[]stock.Order{order(id, func(o *stock.Order) { o.UserID = "bob" })}, false, stock.ErrKeyReused},
		"a reservation":                   {[]stock.Order{order(id, func(o *stock.Order) { o.Kind = stock.Hold })}, false, stock.ErrKeyReused},
		"a restock":                       {[]stock.Order{order(id, func(o *stock.Order) { o.Kind = stock.Restock })}, false, stock.ErrKeyReused},
		"another client's, without a tag": {[]stock.Order{order("k", func(o *stock.Order) { o.UserID = "bob" })}, false, nil},
		"another item, beside this purchase without a tag": {
			[]stock.Order{order(id, func(o *stock.Order) { o.GoodsID = 2 }), order("k", nil)}, false, stock.ErrKeyReused,
		},
	} {
		stored := map[string]stock.Order{}
		for _, o := range c.stored {
			stored[o.RequestID] = o
		}
		first, ok, err := ask.First(1, stored)
		if ok != c.ok || !errors.Is(err, c.want) || (first.ID == "7") != c.ok {
			t.Errorf("%s is stored: %+v, %v, %v; want %v, %v", name, first, ok, err, c.ok, c.want)
		}
	}
	if order("other", nil).Answers(1, ask) {
		t.Error("an order under another key answers the purchase")
	}
	if _, ok, err := (stock.Purchase{RequestID: "k", Quantity: 2, UserID: "ann"}).First(2, map[string]stock.Order{"k": order("k", nil)}); ok || !errors.Is(err, stock.ErrKeyReused) {
		t.Errorf("an untagged key that stands for another item: %v, %v", ok, err)
	}
}

// What is stored under one key, or one number, for another purpose has another id, and the client sees its key alone.
func TestAStoredIDSaysWhoseKeyItIs(t *testing.T) {
	seen := make(map[string]string)
	for name, id := range map[string]string{
		"no buyer": stock.BuyerKey("k", ""), "a buyer": stock.BuyerKey("k", "ann"), "another": stock.BuyerKey("k", "bob"),
		"a restock": stock.RestockKey("k"), "a return": stock.ReturnKey("k"), "an end": stock.FinalKey("k"), "a line": stock.LineKey("k"),
	} {
		if stock.IsLine(id) != (name == "a line") {
			t.Errorf("the key of %s is that of a line: %t", name, stock.IsLine(id))
		}
		if other, ok := seen[id]; ok || stock.KeyOf(id) != "k" {
			t.Errorf("the key of %s is stored as %q, and so is that of %q", name, id, other)
		}
		want := []string{id, "k"}
		if name == "no buyer" {
			want = want[1:]
		}
		if got := stock.StoredIDs(id); !slices.Equal(got, want) {
			t.Errorf("the key of %s may be stored as %q, want %q", name, got, want)
		}
		seen[id] = name
	}
	if got := stock.BuyerKey("k", ""); got != "k" {
		t.Errorf("the key of no buyer is stored as %q", got)
	}
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
