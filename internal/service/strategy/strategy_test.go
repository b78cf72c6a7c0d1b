package strategy_test

import (
	"os"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy/strategytest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

func TestConformance(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		strategytest.Run(t, func(t *testing.T, replica string) *repo.Store {
			return labtest.Open(t, d, replica)
		})
	})
}
