package rate

import (
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
		should.Be(t, l.Take("u-1", now), step.wait, "step", i, "wait")
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

// Of too many clients the one that asked longest ago is forgotten.
func TestTheMemoryOfALimiterIsBounded(t *testing.T) {
	l := New(Rate{PerSecond: 1, Burst: 1})
	now := time.Now()
	for i := range maxClients {
		l.Take(strconv.Itoa(i), now)
	}
	should.Be(t, l.Take("0", now), time.Second, "the first waits")
	l.Take("one more", now)
	should.Be(t, l.buckets.Len(), maxClients, "are known")
	should.Be(t, l.Take("0", now), time.Second, "the first, which has asked again, waits")
	should.Be(t, l.Take("1", now), 0, "the second, which is forgotten, waits")
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
		{func() { l.GiveBack("u-1", now) }, 0},
		{func() { l.GiveBack("u-2", now) }, 0}, // which has taken none
		{func() { l.Take("u-1", now) }, 500 * time.Millisecond},
		{func() { now = now.Add(200 * time.Millisecond) }, 300 * time.Millisecond},
		{func() { now = now.Add(300 * time.Millisecond) }, 0},
		{func() { now = now.Add(time.Hour) }, 0},
	} {
		step.do()
		for range 2 {
			should.Be(t, l.Wait("u-1", now), step.wait, "step", i, "wait")
		}
	}
	should.Be(t, l.buckets.Len(), 1, "are known")
}

func TestWithoutARateThereIsNoLimit(t *testing.T) {
	should.Be(t, New(Rate{Burst: 5}).Take("any", time.Now()), 0, "it waits")
}
