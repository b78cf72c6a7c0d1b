package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/pkg/client"
)

// unitsPerRestock last for seconds, so that a bench sells and does not restock.
const unitsPerRestock = 100_000

// supply looks after the stock of a bench, so that it measures sales and not rejections.
type supply struct {
	client  client.Client
	goodsID int64
	restock bool

	left      int64 // units at the last look that found some
	restocked int64
	gone      bool
}

// soldOut ends the run, or restocks. Units that a failed purchase has returned after the
// rejection are sold first; those that are still there at the next look are not for sale.
func (s *supply) soldOut(ctx context.Context) (more bool, err error) {
	item, err := s.client.Goods(ctx, s.goodsID)
	switch {
	case err != nil:
		return false, err
	case item.Stock > 0 && item.Stock != s.left:
		s.left = item.Stock
		return true, nil
	case !s.restock:
		s.gone = true
		return false, nil
	}
	if _, err := s.client.Restock(ctx, s.goodsID, unitsPerRestock, ""); err != nil {
		return false, err
	}
	s.restocked += unitsPerRestock
	return true, nil
}

// note adds to the notes of strategies what the table does not say: when the stock was gone, or
// how much was added.
func (s *supply) note(strategies []string, after time.Duration) string {
	list := slices.DeleteFunc(strategies, func(note string) bool { return note == "" })
	if s.gone {
		list = append(list, fmt.Sprintf("the stock was gone after %s, and the run ended; --restock adds units",
			after.Round(time.Millisecond)))
	}
	if s.restocked > 0 {
		list = append(list, fmt.Sprintf("restocked with %d units", s.restocked))
	}
	return strings.Join(list, "; ")
}

// buyers names a new user for each perUser requests, and never one of an earlier run;
// it is nil where the item has no limit, or the plan has the token of its buyer.
func buyers(plan load.Plan, perUser int64) func() string {
	if perUser == 0 || plan.BuyerToken != "" {
		return nil
	}
	prefix := "bench-" + rand.Text() + "-"
	var sent atomic.Int64
	return func() string { return prefix + strconv.FormatInt((sent.Add(1)-1)/perUser, 36) }
}
