package strategy_test

import (
	"os"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/pkg/strategytest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

func TestConformance(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		t.Parallel() // one waits for its disk, another for its turn
		strategytest.Run(t, strategytest.Bench{
			Open:  func(t *testing.T, replica string) *repo.Store { return labtest.Open(t, d, replica) },
			Locks: func(t *testing.T, needs []backend.Name) lock.Deps { return lab.Locks(t, d, needs...) },
		})
	})
}
