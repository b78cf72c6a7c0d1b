package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/stockd/stockd/internal/service/rescue"
	"github.com/stockd/stockd/internal/stock"
)

// rescued is a strategy whose panic is an error of the batch, for whoever calls it
// in a goroutine that serves many.
type rescued struct {
	strategy Strategy
	log      *slog.Logger
}

func (r rescued) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return orUnknown(ctx, r.log, goodsID, func() ([]stock.Outcome, error) {
		return r.strategy.Deduct(ctx, goodsID, batch)
	})
}

// orUnknown writes a batch. Where that ends in a panic, the fate of each of the
// batch is unknown: it may have come after the commit.
func orUnknown(ctx context.Context, log *slog.Logger, goodsID int64, write func() ([]stock.Outcome, error)) (outcomes []stock.Outcome, err error) {
	err = rescue.Do(ctx, log, "write a batch of "+lockName(goodsID), func() error {
		outcomes, err = write()
		return err
	})
	if errors.Is(err, rescue.ErrPanicked) {
		return nil, fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	return outcomes, err
}
