//go:build prove

package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/service/strategy"
)

// quiet receives the progress of a demo, and logs each run to the test.
type quiet struct{ t *testing.T }

func (q quiet) Say(string)      {}
func (q quiet) Begin(int)       {}
func (q quiet) Run(string, int) {}
func (q quiet) Answered(int)    {}
func (q quiet) End()            {}

func (q quiet) Done(r verdict.Run) {
	q.t.Logf("%s ×%d: sold %d of %d, %s", r.Strategy, r.Replicas, r.Sold, r.Stock, r.Reason)
}

// Every strategy that claims to be safe across replicas sells out exactly, on
// three of them, twenty times in a row, on every database. Those whose lock is
// on a server sell a tenth.
func TestProveSafeStrategiesSellOutExactly(t *testing.T) {
	const repetitions = 20
	var safe []string
	for _, entry := range strategy.Registry() {
		if entry.Guarantees.ExclusiveAcrossReplicas {
			safe = append(safe, entry.Name)
		}
	}
	for _, choice := range []servers.Choice{
		{Mode: servers.Embedded},
		{Mode: servers.Local, Database: servers.MariaDB},
		{Mode: servers.Local, Database: servers.MySQL},
	} {
		t.Run(fmt.Sprint(choice.Mode, choice.Database), func(t *testing.T) {
			cmdtest.NeedDatabase(t, choice.Database)
			if choice.Mode == servers.Local {
				cmdtest.NeedLockServers(t)
			}
			r, err := demo.Run(t.Context(), demo.Plan{
				Binary: os.Args[0], Servers: choice, Strategies: safe, Replicas: []int{3}, Repeat: repetitions,
				Stock: 1000, Clients: 50, Loops: 100, LockShare: 10, Progress: quiet{t},
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := len(safe) * repetitions; len(r.Runs) != want {
				t.Errorf("%d runs, want %d", len(r.Runs), want)
			}
			for i, run := range r.Runs {
				switch {
				case run.Verdict == verdict.NotRun && choice.Mode == servers.Embedded:
				case run.Strategy == "redis-getset" && run.Clean && run.Errors > 0: // it stalls: that is what it is here for
				case run.Sold != run.Stock || run.Left != 0 || !run.Clean || run.Rejected == 0:
					t.Errorf("run %d, %s: %+v", i, run.Strategy, run)
				}
			}
		})
	}
}
