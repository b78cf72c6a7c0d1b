package handler

import (
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
)

// flood takes slots until there is none.
func flood(p *slots, goodsID int64, asked *service.Seller) (list []slot, full string) {
	for {
		taken, full := p.take(goodsID, asked)
		if full != "" {
			return list, full
		}
		list = append(list, taken)
	}
}

func releaseAll(list []slot) {
	for _, taken := range list {
		taken.release()
	}
}

func TestNoItemTakesAllSlots(t *testing.T) {
	p := newSlots(1200)
	first, full := flood(p, 1, nil)
	if len(first) != 600 || full != fullItem {
		t.Fatalf("alone an item has %d slots of 1200 and the %s is full, want 600", len(first), full)
	}
	second, _ := flood(p, 2, nil)
	third, _ := flood(p, 3, nil)
	if len(second) != 300 || len(third) != 150 {
		t.Errorf("the next items have %d and %d slots, want half of what is free each: 300 and 150", len(second), len(third))
	}
	// What ends makes the shares equal: no item takes a slot while it has more than are free.
	for range 10_000 {
		for id, list := range map[int64]*[]slot{1: &first, 2: &second, 3: &third} {
			(*list)[0].release()
			*list = (*list)[1:]
			again, _ := flood(p, id, nil)
			*list = append(*list, again...)
		}
	}
	for id, list := range map[int64][]slot{1: first, 2: second, 3: third} {
		if len(list) < 290 || len(list) > 310 {
			t.Errorf("of three items that are flooded, %d has %d slots of 1200, want about 300", id, len(list))
		}
	}
	if honest, _ := flood(p, 4, nil); len(honest) < 145 {
		t.Errorf("a fourth item has %d slots beside three that are flooded, want 150", len(honest))
	}
}

func TestPurchasesThatAskForAnotherStrategyLeaveSlotsToTheItemsOwn(t *testing.T) {
	p := newSlots(1200)
	slow, full := flood(p, 1, new(service.Seller))
	if len(slow) != 300 || full != fullStrategy {
		t.Fatalf("a strategy that requests ask for has %d slots of 1200 and the %s is full, want 300", len(slow), full)
	}
	another, _ := flood(p, 1, new(service.Seller))
	if len(another) == 0 {
		t.Error("another strategy of the item has no slot")
	}
	for range 100 { // modes that do not exist in such numbers
		list, _ := flood(p, 1, new(service.Seller))
		another = append(another, list...)
	}
	if all := len(slow) + len(another); all > 400 {
		t.Errorf("purchases that ask for other strategies have %d slots of 1200, want at most 400", all)
	}
	own, full := flood(p, 1, nil)
	if len(own) != 200 || full != fullItem {
		t.Errorf("the item's own strategy has %d slots beside them and the %s is full, want 200", len(own), full)
	}
	if other, _ := flood(p, 2, new(service.Seller)); len(other) != 150 {
		t.Errorf("another item has %d slots by a strategy that is asked for, want 150", len(other))
	}
	releaseAll(own)
	releaseAll(slow)
	releaseAll(another)
	if len(p.asked) != 1 || len(p.items) != 1 {
		t.Errorf("%d modes and %d items are remembered, want those that have slots", len(p.asked), len(p.items))
	}
}

func TestWhatAskedForAnotherStrategyGivesItsShareBack(t *testing.T) {
	p := newSlots(1200)
	p.take(1, nil) // the item stays known
	for round := range 3 {
		list, _ := flood(p, 1, new(service.Seller))
		if len(list) != 300 {
			t.Errorf("in round %d a strategy that requests ask for has %d slots, want 300", round, len(list))
		}
		releaseAll(list)
	}
}

func TestTheLastSlotIsTaken(t *testing.T) {
	p := newSlots(1)
	taken, full := p.take(1, new(service.Seller))
	if full != "" {
		t.Fatalf("the only slot is not given: the %s is full", full)
	}
	if _, full := p.take(2, nil); full != fullReplica {
		t.Errorf("beyond it the %q is full", full)
	}
	taken.release()
	if _, full := p.take(2, nil); full != "" {
		t.Errorf("given back, it is not given again: the %s is full", full)
	}
	if _, full := newSlots(0).take(1, nil); full != "" {
		t.Errorf("without a bound the %s is full", full)
	}
}

// Each rejection names what is full, and is busy.
func TestAShedPurchaseSaysWhatIsFull(t *testing.T) {
	for full, want := range map[string]string{fullReplica: "this replica serves", fullItem: "item 7 has its share", fullStrategy: "this strategy has its share of the purchases of item 7"} {
		if p := problemOf(&shedError{full, 7}); !strings.Contains(p.Detail, want) || p.Type != TypePrefix+"busy" {
			t.Errorf("where the %s is full the answer is %+v, want %q", full, p, want)
		}
	}
}

// Nothing is left of any number of items, and the bound holds.
func TestSlotsAreBoundedAndForgotten(t *testing.T) {
	const most = 50
	p, modes := newSlots(most), []*service.Seller{nil, {}, {}}
	var taken atomic.Int64
	var crowd sync.WaitGroup
	for range 8 {
		crowd.Go(func() {
			var mine []slot
			for range 5000 {
				if got, full := p.take(rand.Int64N(100), modes[rand.N(len(modes))]); full == "" {
					if now := taken.Add(1); now > most {
						t.Errorf("%d slots are taken of %d", now, most)
					}
					mine = append(mine, got)
				}
				if len(mine) > 0 && rand.N(2) == 0 {
					taken.Add(-1)
					mine[0].release()
					mine = mine[1:]
				}
			}
			taken.Add(int64(-len(mine)))
			releaseAll(mine)
		})
	}
	crowd.Wait()
	if p.taken != 0 || len(p.items) != 0 || len(p.asked) != 0 {
		t.Errorf("%d slots, %d items and %d modes are left", p.taken, len(p.items), len(p.asked))
	}
}

func TestABucketFillsAgain(t *testing.T) {
	l := newLimiter(Rate{PerSecond: 2, Burst: 3})
	now := time.Now()
	for i, step := range []struct {
		after time.Duration
		wait  time.Duration
	}{
		{0, 0},
		{0, 0},
		{0, 0},
		{0, 500 * time.Millisecond}, // the burst is spent
		{100 * time.Millisecond, 400 * time.Millisecond}, // being rejected costs nothing
		{400 * time.Millisecond, 0},
		{0, 500 * time.Millisecond},
		{time.Hour, 0}, // a bucket holds its burst and no more
		{0, 0},
		{0, 0},
		{0, 500 * time.Millisecond},
	} {
		now = now.Add(step.after)
		if wait := l.take("u-1", now); wait != step.wait {
			t.Errorf("step %d: wait %s, want %s", i, wait, step.wait)
		}
	}
	if wait := l.take("u-2", now); wait != 0 {
		t.Errorf("another one has to wait %s", wait)
	}
}

// A bucket that is full again counts as full, also before it is forgotten.
func TestABucketHoldsItsBurstAlsoWithinASecond(t *testing.T) {
	l := newLimiter(Rate{PerSecond: 10, Burst: 1})
	now := time.Now()
	for i, wait := range []time.Duration{0, 0, 100 * time.Millisecond} {
		if i == 1 {
			now = now.Add(500 * time.Millisecond)
		}
		if got := l.take("u-1", now); got != wait {
			t.Errorf("token %d: wait %s, want %s", i, got, wait)
		}
	}
}

// No client is remembered for longer than it matters, and never more of them than
// there is room for.
func TestTheMemoryOfALimiterIsBounded(t *testing.T) {
	l := newLimiter(Rate{PerSecond: 1, Burst: 5})
	now := time.Now()
	for i := range mostKnown + 1000 {
		l.take(strconv.Itoa(i), now)
	}
	if known := len(l.full); known != mostKnown {
		t.Errorf("%d are known, want %d", known, mostKnown)
	}
	l.take("late", now.Add(time.Minute))
	if known := len(l.full); known != 1 {
		t.Errorf("%d are known after their buckets were full again, want 1", known)
	}
}

// A client with an IPv6 address has more of them than could be remembered.
func TestAddressesAreCountedByTheirNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":          "192.0.2.1",
		"::ffff:192.0.2.1":   "192.0.2.1", // as a proxy on a dual-stack socket sends it
		"2001:db8:1:2::1":    "2001:db8:1:2::/64",
		"2001:db8:1:2:f::99": "2001:db8:1:2::/64",
		"fe80::1%eth0":       "fe80::/64",
	} {
		if got := network(address); got != want {
			t.Errorf("%s is counted as %s, want %s", address, got, want)
		}
	}
}

// A token that is given back can be taken again; a look takes none.
func TestATokenIsGivenBack(t *testing.T) {
	l := newLimiter(Rate{PerSecond: 2, Burst: 2})
	now := time.Now()
	for i, step := range []struct {
		do   func()
		wait time.Duration
	}{
		{func() {}, 0}, // unknown
		{func() { l.take("u-1", now) }, 0},
		{func() { l.take("u-1", now) }, 500 * time.Millisecond},
		{func() { l.take("u-1", now) }, 500 * time.Millisecond},
		{func() { l.giveBack("u-1") }, 0},
		{func() { l.giveBack("u-2") }, 0}, // which has taken none
		{func() { l.take("u-1", now) }, 500 * time.Millisecond},
		{func() { now = now.Add(200 * time.Millisecond) }, 300 * time.Millisecond},
		{func() { now = now.Add(300 * time.Millisecond) }, 0},
		{func() { now = now.Add(time.Hour) }, 0},
	} {
		step.do()
		for range 2 {
			if wait := l.wait("u-1", now); wait != step.wait {
				t.Errorf("step %d: wait %s, want %s", i, wait, step.wait)
			}
		}
	}
	if len(l.full) != 1 {
		t.Errorf("%d are known, want the one that has taken a token", len(l.full))
	}
}

// A client whose bucket is not full yet is remembered, however often the others are forgotten.
func TestOnlyFullBucketsAreForgotten(t *testing.T) {
	l := newLimiter(Rate{PerSecond: 1, Burst: 2})
	now := time.Now()
	l.take("slow", now)
	l.take("slow", now)
	l.take("quick", now)
	now = now.Add(time.Second)
	l.take("other", now)
	if _, known := l.full[maphash.String(l.seed, "slow")]; !known || len(l.full) != 2 {
		t.Errorf("%d are known after a second, want the two whose buckets are not full", len(l.full))
	}
	if l.take("slow", now) != 0 || l.take("slow", now) != time.Second {
		t.Error("it was forgotten with its tokens taken")
	}
	if newLimiter(Rate{Burst: 5}).take("any", now) != 0 {
		t.Error("without a rate there is a limit")
	}
}

// Of what a trusted proxy sends, only X-Forwarded-For counts, and of that the right-most
// address that is not a trusted proxy's: whatever stands left of it, or in another
// header, a client may have written itself.
func TestTheAddressOfAClientIsWhatTheProxiesAppended(t *testing.T) {
	const proxy = "10.0.0.1:40000"
	type headers = http.Header
	for name, c := range map[string]struct {
		peer string
		sent headers
		want string
	}{
		"a proxy names a client":       {proxy, headers{"X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"X-Real-IP beside it":          {proxy, headers{"X-Real-Ip": {"198.51.100.9"}, "X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"X-Real-IP alone":              {proxy, headers{"X-Real-Ip": {"198.51.100.9"}}, "10.0.0.1"},
		"other headers":                {proxy, headers{"Forwarded": {"for=198.51.100.9"}, "X-Client-Ip": {"198.51.100.9"}, "Cf-Connecting-Ip": {"198.51.100.9"}}, "10.0.0.1"},
		"a forged address on the left": {proxy, headers{"X-Forwarded-For": {"198.51.100.9, 192.0.2.1"}}, "192.0.2.1"},
		"several hops":                 {proxy, headers{"X-Forwarded-For": {"198.51.100.9, 192.0.2.1, 10.0.0.3,10.0.0.2"}}, "192.0.2.1"},
		"a line of each":               {proxy, headers{"X-Forwarded-For": {"198.51.100.9", "192.0.2.1"}}, "192.0.2.1"},
		"a line of each, and a hop":    {proxy, headers{"X-Forwarded-For": {"198.51.100.9", "192.0.2.1, 10.0.0.2"}}, "192.0.2.1"},
		"nothing but proxies":          {proxy, headers{"X-Forwarded-For": {"10.0.0.3, 10.0.0.2"}}, "10.0.0.3"},
		"garbage":                      {proxy, headers{"X-Forwarded-For": {"' OR 1=1"}}, "10.0.0.1"},
		"garbage on the left":          {proxy, headers{"X-Forwarded-For": {"' OR 1=1, 192.0.2.1"}}, "192.0.2.1"},
		"garbage on the right":         {proxy, headers{"X-Forwarded-For": {"192.0.2.1, unknown"}}, "10.0.0.1"},
		"an address with a port":       {proxy, headers{"X-Forwarded-For": {"192.0.2.1:1234"}}, "10.0.0.1"},
		"nothing":                      {proxy, headers{"X-Forwarded-For": {""}}, "10.0.0.1"},
		"IPv6":                         {"[2001:db8::1]:40000", headers{"X-Forwarded-For": {"2001:db8:1:2::5"}}, "2001:db8:1:2::5"},
		"IPv4 in IPv6":                 {"[::ffff:10.0.0.1]:40000", headers{"X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"a zone":                       {proxy, headers{"X-Forwarded-For": {"fe80::1%eth0"}}, "10.0.0.1"},
		"a peer that is not trusted":   {"192.0.2.7:40000", headers{"X-Forwarded-For": {"198.51.100.9"}, "X-Real-Ip": {"198.51.100.9"}}, "192.0.2.7"},
		"a peer that has a zone":       {"[fe80::1%eth0]:40000", headers{"X-Forwarded-For": {"198.51.100.9"}}, "fe80::1"}, // all of its /64 are limited as one
		"a proxy that has a zone":      {"[fe80::2%eth0]:40000", headers{"X-Forwarded-For": {"198.51.100.9"}}, "198.51.100.9"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := clientOf(c.peer, c.sent); got != c.want {
				t.Errorf("%v from %s is a request of %q, want %q", c.sent, c.peer, got, c.want)
			}
		})
	}
}

// clientOf is the client that a listener counts a request for.
func clientOf(peer string, sent http.Header) (address string) {
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler), MaxBody: 1024, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/128"), netip.MustParsePrefix("fe80::2/128")}}, public)
	e.GET("/", func(c *gin.Context) { address = c.ClientIP() })
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr, r.Header = peer, sent
	e.ServeHTTP(httptest.NewRecorder(), r)
	return address
}
