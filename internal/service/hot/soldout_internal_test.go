package hot

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// What was found sold out is rejected unseen for a moment, but never a purchase with a key,
// which may be the copy of a sale.
func TestOnlyPurchasesWithoutAKeyAreRejectedUnseen(t *testing.T) {
	keyed, plain := stock.Purchase{RequestID: "k", Keyed: true, Quantity: 1}, stock.Purchase{RequestID: "own", Quantity: 1}
	synctest.Test(t, func(t *testing.T) {
		o := newSoldOut(nil, "restocked")
		if o.rejects(1, []stock.Purchase{plain}) {
			t.Error("an item of which nothing is known is sold out")
		}
		o.learn(1, o.mark())
		for _, c := range []struct {
			name  string
			goods int64
			batch []stock.Purchase
			want  bool
		}{
			{"without a key", 1, []stock.Purchase{plain, plain}, true},
			{"with a key", 1, []stock.Purchase{keyed}, false},
			{"with a key, behind one without", 1, []stock.Purchase{plain, keyed}, false},
			{"of another item", 2, []stock.Purchase{plain}, false},
		} {
			if got := o.rejects(c.goods, c.batch); got != c.want {
				t.Errorf("purchases %s are rejected unseen: %t, want %t", c.name, got, c.want)
			}
		}
		time.Sleep(doubted + time.Nanosecond)
		if o.rejects(1, []stock.Purchase{plain}) {
			t.Errorf("it is still sold out unseen after %s", doubted)
		}
		mark := o.mark()
		o.hear(nil) // a message that comes while Redis is asked
		o.learn(1, mark)
		if o.rejects(1, []stock.Purchase{plain}) {
			t.Error("an answer that is older than a message counts")
		}
	})
}
