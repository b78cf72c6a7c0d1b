package handler

import (
	"hash/maphash"
	"strconv"
	"testing"
	"time"
)

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
		"::ffff:192.0.2.1":   "::ffff:192.0.2.1",
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
