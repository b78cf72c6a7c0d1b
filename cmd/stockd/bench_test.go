package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// bench runs one against the replica, and returns its run and what it has printed.
func (r process) bench(t *testing.T, args ...string) (run verdict.Run, out string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bench.json")
	args = append([]string{"bench", "--url", r.URL, "--clients", "8", "--json", file}, args...)
	out = succeeds(t, args...)
	return cmdtest.ReadReport(t, file).Runs[0], out
}

func TestABenchRestocks(t *testing.T) {
	r := startReplica(t)
	run, out := r.bench(t, append(r.owner(t), "--requests", "1500", "--restock")...)
	if run.Restocked != unitsPerRestock || run.Answered+run.Rejected != 1500 || run.Rejected == 0 || run.Rejected > run.Clients || !run.Clean {
		t.Errorf("%+v, want one restock, and a sale for each request but those that noticed the need", run)
	}
	if !strings.Contains(out, fmt.Sprintf("restocked with %d units", unitsPerRestock)) {
		t.Errorf("the restock is not reported:\n%s", out)
	}
}

// A bench that names no strategy sells as the item is sold, also where requests may not
// choose, and reports what sold.
func TestABenchSellsThroughTheItemsStrategy(t *testing.T) {
	r := startReplica(t, "--deduct-choose=false")
	succeeds(t, append(r.owner(t), "stock", "--goods=2", "--units=500", "--strategy=sql-insert-lock", "--group", "--fence")...)
	for goods, want := range map[string]string{"1": "sql-conditional", "2": "sql-insert-lock, grouped, fenced"} {
		if run, _ := r.bench(t, "--goods", goods, "--requests", "40"); run.Name() != want || run.Answered != 40 || run.Errors != 0 {
			t.Errorf("item %s: %s sold %d of 40, errors %v; want %s", goods, run.Name(), run.Answered, run.ErrorTypes, want)
		}
	}
}

// Replicas that do not name themselves in answers are not counted as one.
func TestABenchDoesNotCountConcealedReplicas(t *testing.T) {
	r := startReplica(t, "--http-reveal=false")
	run, out := r.bench(t, append(r.owner(t), "--requests", "100")...)
	if run.Replicas != 0 || !strings.Contains(out, "  ? ") {
		t.Errorf("%d replicas are known:\n%s", run.Replicas, out)
	}
}

// What an interrupted bench has sold is audited and shown.
func TestAnInterruptedBenchShowsWhatItHasSold(t *testing.T) {
	r := startReplica(t)
	bench := exec.Command(os.Args[0], "bench", "--url", r.URL, "--rate=20", "--clients=2", "--duration=40s")
	bench.Env = cmdtest.Environment()
	var out bytes.Buffer
	bench.Stdout = &out
	must.Do(t, bench.Start())
	labtest.Await(t, "a sale", 20*time.Second, func() bool {
		item, err := r.Goods(t.Context(), 1)
		return err == nil && item.Stock < 1000
	})
	must.Do(t, bench.Process.Signal(os.Interrupt))
	should.Do(t, bench.Wait())
	should.Contain(t, out.String(), "sql-conditional", "consistent")
}

// While the pending units of an item are unknown, its audit is not settled.
func TestAnAuditWithoutPendingUnitsIsWaitedFor(t *testing.T) {
	answers := []string{`{"goods_id": 1, "initial": 5, "stock": 5}`, `{"goods_id": 1, "initial": 5, "stock": 4, "sold": 0, "pending": 1}`, `{"goods_id": 1, "initial": 5, "stock": 4, "sold": 1, "pending": 0}`}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answers[min(asked, len(answers)-1)]) //nolint:errcheck // the test fails without it
		asked++
	}))
	defer server.Close()
	audit, err := settledAudit(t.Context(), client.Client{URL: server.URL}, 1)
	if err != nil || audit.Sold != 1 || asked != len(answers) {
		t.Errorf("after %d answers the audit is %+v (%v), want the one with no pending unit", asked, audit, err)
	}
}

func TestAnAuditIsNotWaitedForForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		sender := labtest.Repeating(`{"goods_id": 1, "sold": 3, "pending": 1}`)
		audit, err := settledAudit(t.Context(), client.Client{URL: "http://shop", HTTP: sender}, 1)
		if took := time.Since(began); err != nil || audit.Sold != 3 || took < pendingWithin || took > pendingWithin+time.Second {
			t.Errorf("%+v (%v) after %s, want the audit as it is after %s", audit, err, took, pendingWithin)
		}
	})
}

// Where buyers have signed tokens, a bench buys as one of them, and fails without one.
func TestABenchBuysAsTheBuyerOfAToken(t *testing.T) {
	keys, token := filepath.Join(t.TempDir(), "keys.json"), filepath.Join(t.TempDir(), "buyer.jwt")
	shop := newSigner(t, "shop")
	shop.writeKeys(t, keys)
	r := startReplica(t, "--buyer-from=token", "--buyer-required=true", "--buyer-jwks-file="+keys)
	must.Do(t, os.WriteFile(token, []byte(shop.token(t, "u-1")+"\n"), 0o600))
	run, _ := r.bench(t, "--requests", "20", "--buyer-token-file", token)
	if run.Sold != 20 || !run.Clean {
		t.Errorf("%+v, want 20 sold", run)
	}
	for _, args := range [][]string{{}, {"--buyer-token-file", token + ".gone"}} {
		status, _, errOut := stockd(append([]string{"bench", "--url", r.URL + "/", "--requests", "5"}, args...)...)
		if want := map[int]string{0: "none of 5 requests was sold: 5 × unauthorized", 2: "--buyer-token-file"}[len(args)]; status == cli.OK || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit status %d and %q, want %q", args, status, errOut, want)
		}
	}
}
