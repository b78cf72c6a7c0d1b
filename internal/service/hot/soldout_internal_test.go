package hot

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

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

// A message names one item that may have units again; where messages may have been lost, all may.
func TestAMessageForgetsWhatItMayBeAbout(t *testing.T) {
	for name, c := range map[string]struct {
		event any
		kept  bool // of item 2
	}{
		"of an item":           {&redis.Message{Payload: "1"}, true},
		"of orders given back": {&redis.Message{}, false},
		"of a new connection":  {&redis.Subscription{Kind: "subscribe"}, false},
	} {
		o := newSoldOut(nil, "restocked")
		for item := range int64(2) {
			o.learn(item+1, o.mark())
		}
		o.hear(c.event)
		if o.verified(1) || o.verified(2) != c.kept {
			t.Errorf("after a message %s, item 1 is sold out %t and item 2 %t, want only the second %t", name, o.verified(1), o.verified(2), c.kept)
		}
	}
}
