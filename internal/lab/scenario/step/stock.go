package step

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/stock"
)

// Stock makes the goods of the try with so many units.
func Stock(units int64) scenario.Step {
	return func(ctx context.Context, s *scenario.Scene) error {
		return s.Client().CreateGoods(ctx, s.Goods, units)
	}
}

// Audit writes the audit of the goods into the history.
func Audit() scenario.Step {
	return func(ctx context.Context, s *scenario.Scene) error {
		audit, err := s.Client().Audit(ctx, s.Goods)
		if err != nil {
			return err
		}
		return s.History.Add(history.Line{Audit: &history.Audit{At: time.Now(), Audit: audit}})
	}
}

// Watching writes down the stock and the sales of the goods again and again while
// the steps are done.
func Watching(every time.Duration, steps ...scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Scene) error {
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

func watch(ctx context.Context, s *scenario.Scene, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		audit, err := s.Client().AuditNow(ctx, s.Goods)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.History.Add(sampleOf(s.Goods, audit)); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func sampleOf(goods int64, a stock.Audit) history.Line {
	return history.Line{Sample: &history.Sample{At: time.Now(), GoodsID: goods, Stock: a.Stock, Sold: a.Sold}}
}
