package strategytest_test

import (
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/strategytest"
)

// Another module runs the suite like this, with entries of its own.
func TestTheSuiteRunsOnABenchWithoutServers(t *testing.T) {
	bench := strategytest.SQLite(t, strategy.Registry()...)
	bench.Only = []string{"sql-bucket", "sql-conditional"}
	strategytest.Run(t, bench)
}
