package step

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// LongestRead is the figure of ReadAnother.
const LongestRead = "longest_unrelated_read_ms"

// elsewhere is the distance of the id of an idle item from that of the item sold.
const elsewhere = 1 << 40

// ReadAnother reads an idle item so many times, a tenth of a second apart, and
// records the duration of the longest read.
func ReadAnother(times int) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		var longest time.Duration
		for range times {
			began := time.Now()
			if _, err := s.Client().Goods(ctx, s.Item+elsewhere); err != nil {
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

// StockAnother creates the idle item.
func StockAnother() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		return s.Client().CreateGoods(ctx, s.Item+elsewhere, 1)
	}
}
