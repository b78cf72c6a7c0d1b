//go:build prove

package main

import (
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/scenario/catalogue"
)

// It holds as long as no remedy is broken. Some planted bugs break one, and turn its experiment red here.
func TestProveEveryExperimentIsReproduced(t *testing.T) {
	cmdtest.NeedLocal(t)
	cmdtest.NeedLockServers(t)
	for _, e := range catalogue.All() {
		t.Run(e.Name, func(t *testing.T) {
			status, out, errOut := stocklab("lab", "run", "--servers=local", e.Name)
			if status != cli.OK || !strings.Contains(out, "1 reproduced") {
				t.Errorf("exit status %d:\n%s\n%s", status, out, errOut)
			}
		})
	}
}
