package handler

import (
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
