package demo_test

import (
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
)

func TestThePageHasARowARun(t *testing.T) {
	var page strings.Builder
	err := demo.Page(&page, &verdict.Report{On: "database: MariaDB 10.11 (local)", Processors: 2, Runs: []verdict.Run{
		{
			Strategy: "naive", Replicas: 1, Stock: 1000, Clients: 50, Requests: 5000, Sold: 5000, Left: 833, Oversold: 4000, Lost: 4833,
			PerSecond: 1587.4, P50: 28, P99: 78.66, Verdict: verdict.Expected,
		},
		{Strategy: "sql-conditional", Replicas: 3, Group: true, Stock: 1000, Sold: 1001, Clean: true, Verdict: verdict.Unexpected, Reason: "1 oversold"},
		{Strategy: "zk-herd", Replicas: 1, Verdict: verdict.NotRun, Reason: "there is no ZooKeeper"},
	}})
	must.Do(t, err)
	for _, want := range []string{
		"| `naive` | 1 | 5,000 | 833 | 4,000 | 4,833 | 0 | 0 | 1,587 | 28.0 | 78.7 | oversold by 4,000, 4,833 updates lost — expected |\n",
		"| `sql-conditional`, grouped | 3 | 1,001 |", "consistent — not expected |\n",
		"| `zk-herd` | 1 | – |", "- `zk-herd`: there is no ZooKeeper\n", "- `sql-conditional`: 1 oversold\n",
		"database: MariaDB 10.11 (local), 2 processors", "1,000 units, 50 clients, 5,000 purchases",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, page.String())
		}
	}
}
