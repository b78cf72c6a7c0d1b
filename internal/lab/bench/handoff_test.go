package bench

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A rate is that of the time after the warm-up, in which what is held is not counted.
func TestTheRateOfAContestLeavesTheWarmUpOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := contest{each: 8 * time.Second, holds: make([]hold, 2)}
		for i := range c.holds {
			c.holds[i] = func(context.Context) (time.Duration, error) {
				waited := 100 * time.Millisecond
				if time.Since(start) < c.each/warmUp {
					waited = time.Second // until it has a connection
				}
				time.Sleep(waited)
				return waited, nil
			}
		}
		rate, err := c.measure(t.Context())
		if err != nil || rate < 19.5 || rate > 20.5 || c.unfair != 1 {
			t.Errorf("two contenders with 10 holds a second make %.1f a second, the longest wait %.1f times the median (%v)", rate, c.unfair, err)
		}
	})
}
