package rate

import (
	"hash/maphash"
	"strconv"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/should"
)

func TestABucketFillsAgain(t *testing.T) {
	l := New(Rate{PerSecond: 2, Burst: 3})
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
		if wait := l.Take("u-1", now); wait != step.wait {
			t.Errorf("step %d: wait %s, want %s", i, wait, step.wait)
		}
	}
	should.Be(t, l.Take("u-2", now), 0, "another one has to wait")
}

// A bucket that is full again counts as full, also before it is forgotten.
func TestABucketHoldsItsBurstAlsoWithinASecond(t *testing.T) {
	l := New(Rate{PerSecond: 10, Burst: 1})
	now := time.Now()
	for i, wait := range []time.Duration{0, 0, 100 * time.Millisecond} {
		if i == 1 {
			now = now.Add(500 * time.Millisecond)
		}
		should.Be(t, l.Take("u-1", now), wait, "token …: wait", i)
	}
}

// No client is remembered for longer than it matters, and never more of them than
// there is room for.
func TestTheMemoryOfALimiterIsBounded(t *testing.T) {
	l := New(Rate{PerSecond: 1, Burst: 5})
	now := time.Now()
	for i := range maxClients + 1000 {
		l.Take(strconv.Itoa(i), now)
	}
	should.Be(t, len(l.full), maxClients, "are known")
	l.Take("late", now.Add(time.Minute))
	should.Be(t, len(l.full), 1, "are known after their buckets were full again")
}

// A token that is given back can be taken again; a look takes none.
func TestATokenIsGivenBack(t *testing.T) {
	l := New(Rate{PerSecond: 2, Burst: 2})
	now := time.Now()
	for i, step := range []struct {
		do   func()
		wait time.Duration
	}{
		{func() {}, 0}, // unknown
		{func() { l.Take("u-1", now) }, 0},
		{func() { l.Take("u-1", now) }, 500 * time.Millisecond},
		{func() { l.Take("u-1", now) }, 500 * time.Millisecond},
		{func() { l.GiveBack("u-1") }, 0},
		{func() { l.GiveBack("u-2") }, 0}, // which has taken none
		{func() { l.Take("u-1", now) }, 500 * time.Millisecond},
		{func() { now = now.Add(200 * time.Millisecond) }, 300 * time.Millisecond},
		{func() { now = now.Add(300 * time.Millisecond) }, 0},
		{func() { now = now.Add(time.Hour) }, 0},
	} {
		step.do()
		for range 2 {
			if wait := l.Wait("u-1", now); wait != step.wait {
				t.Errorf("step %d: wait %s, want %s", i, wait, step.wait)
			}
		}
	}
	should.Be(t, len(l.full), 1, "are known")
}

// A client whose bucket is not full yet is remembered, however often the others are forgotten.
func TestOnlyFullBucketsAreForgotten(t *testing.T) {
	l := New(Rate{PerSecond: 1, Burst: 2})
	now := time.Now()
	l.Take("slow", now)
	l.Take("slow", now)
	l.Take("quick", now)
	now = now.Add(time.Second)
	l.Take("other", now)
	if _, known := l.full[maphash.String(l.seed, "slow")]; !known || len(l.full) != 2 {
		t.Errorf("%d are known after a second, want the two whose buckets are not full", len(l.full))
	}
	if l.Take("slow", now) != 0 || l.Take("slow", now) != time.Second {
		t.Error("it was forgotten with its tokens taken")
	}
	if New(Rate{Burst: 5}).Take("any", now) != 0 {
		t.Error("without a rate there is a limit")
	}
}
