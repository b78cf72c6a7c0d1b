package step

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// LongestRead is the figure of ReadAnother.
const LongestRead = "longest_unrelated_read_ms"

// elsewhere is how far the goods that nobody buys is from the one that is sold.
const elsewhere = 1 << 40

// ReadAnother reads a goods that nobody buys, so many times with a tenth of a
// second between, and writes down how long the longest read took.
func ReadAnother(times int) scenario.Step {
	return func(ctx context.Context, s *scenario.Scene) error {
		var longest time.Duration
		for range times {
			began := time.Now()
			if _, err := s.Client().Goods(ctx, s.Goods+elsewhere); err != nil {
				return err
			}
			longest = max(longest, time.Since(began))
			if err := Wait(100*time.Millisecond)(ctx, s); err != nil {
				return err
			}
		}
		return s.Figure(LongestRead, float64(longest.Microseconds())/1000)
	}
}

// StockAnother makes the goods that nobody buys.
func StockAnother() scenario.Step {
	return func(ctx context.Context, s *scenario.Scene) error {
		return s.Client().CreateGoods(ctx, s.Goods+elsewhere, 1)
	}
}
