package repo_test

import (
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// A counter of tokens that was lost gives one again: the last holder to claim it may write,
// and the one before may not. Each row is one claim after the other.
func TestTheLastClaimMayWrite(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "replica")
		create(t, s, 1, 10)
		write := func(strategy string, claim repo.Claim) error {
			read, err := s.Goods(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			return s.As(strategy).InTx(t.Context(), func(tx *repo.Tx) error {
				return tx.SetStockIfClaimed(t.Context(), read, read.Stock-1, claim)
			})
		}
		var before repo.Claim
		writer := ""
		for _, c := range []struct {
			strategy string
			token    uint64
			want     error
		}{
			{"redis-lua", 5, nil},
			{"redis-lua", 5, nil},
			{"redis-lua", 4, stock.ErrFenced},
			{"redis-lua", 6, nil},
			{"etcd", 2, nil},
			{"etcd", 1, stock.ErrFenced},
			{"redis-lua", 1, nil},
		} {
			claim, err := s.As(c.strategy).ClaimFence(t.Context(), 1, c.token)
			if !errors.Is(err, c.want) {
				t.Fatalf("token %d of %s: %v, want %v", c.token, c.strategy, err, c.want)
			}
			if err != nil {
				continue
			}
			if writer != "" {
				if err := write(writer, before); !errors.Is(err, stock.ErrFenced) {
					t.Errorf("the holder before token %d of %s writes: %v, want %v", c.token, c.strategy, err, stock.ErrFenced)
				}
			}
			if err := write(c.strategy, claim); err != nil {
				t.Errorf("token %d of %s does not write: %v", c.token, c.strategy, err)
			}
			before, writer = claim, c.strategy
		}
	})
}
