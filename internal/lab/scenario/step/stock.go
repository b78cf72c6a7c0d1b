package step

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/stock"
)

// Stock creates the item of the try with so many units.
func Stock(units int64) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		return s.Client().CreateGoods(ctx, s.Item, units)
	}
}

// Audit writes the audit of the item into the history.
func Audit() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		audit, err := s.Client().Audit(ctx, s.Item)
		if err != nil {
			return err
		}
		return s.History.Add(history.Line{Audit: &history.Audit{At: time.Now(), Audit: audit}})
	}
}

// Watching samples the stock and the sales of the item periodically while
// the steps are done.
func Watching(every time.Duration, steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		watched, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- watch(watched, s, every) }()
		err := InOrder(steps...)(ctx, s)
		stop()
		if watchErr := <-done; err == nil {
			err = watchErr
		}
		return err
	}
}

func watch(ctx context.Context, s *scenario.Environment, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		audit, err := s.Client().AuditNow(ctx, s.Item)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.History.Add(sampleOf(s.Item, audit)); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func sampleOf(item int64, a stock.Audit) history.Line {
	return history.Line{Sample: &history.Sample{At: time.Now(), GoodsID: item, Stock: a.Stock, Sold: a.Sold}}
}
