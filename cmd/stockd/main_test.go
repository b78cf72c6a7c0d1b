package main

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/migrations"
	"github.com/stockd/stockd/pkg/client"
)

func TestMain(m *testing.M) { cmdtest.Main(m, run) }

// stockd runs a command to its end.
func stockd(args ...string) (status int, out, errOut string) { return cmdtest.Run(run, args...) }

// succeeds runs a command that must succeed, and returns what it prints.
func succeeds(t *testing.T, args ...string) (out string) {
	t.Helper()
	status, out, errOut := stockd(args...)
	must.Be(t, status, cli.OK, args, "exit status", out, errOut)
	return out
}

func TestHelpShowsWhatACommandDoes(t *testing.T) {
	cmdtest.Helps(t, root(), func(args ...string) string {
		_, out, _ := stockd(args...)
		return out
	})
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte("a token"), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sell"}, `"sell"`},
		{[]string{"serve", "--http.listen=127.0.0.1:0"}, "unknown flag: --http.listen; did you mean --http-listen?"},
		{[]string{"bench", "--clients", "0"}, "--clients must be 1"},
		{[]string{"bench", "--clients", "10001"}, "--clients must be 1 to 10000, not 10001"},
		{[]string{"bench", "--requests=-1"}, "--requests must not be negative"},
		{[]string{"bench", "--duration=-1s"}, "--duration must not be negative"},
		{[]string{"bench", "--timeout=0s"}, "--timeout must be above 0"},
		{[]string{"bench", "--rate=-1"}, "--rate must be a number of at least 0, not -1"},
		{[]string{"bench", "--rate=NaN"}, "--rate must be a number of at least 0, not NaN"},
		{[]string{"bench", "--rate=Inf"}, "--rate must be a number of at least 0, not +Inf"},
		{[]string{"bench", "--goods", "0"}, "--goods"},
		{[]string{"bench", "--restock"}, "--token-file must name"},
		{[]string{"serve", "--lab-enabled=true", "--database-dsn=/nonexistent/s.db"}, "stockd has no failpoints"},
		{[]string{"serve", "--redis-get-set-lock", "redis-setnx-ttl", "--strategies-only-safe=true"}, "redis_get_set.lock: \"redis-setnx-ttl\" does not notify"},
		{[]string{"stock", "--token-file", "no-such-file"}, "no-such-file"},
		{[]string{"stock", "--goods", "0"}, "--goods must be at least 1"},
		{[]string{"stock", "--units=-1"}, "--units 0 to "},
		{[]string{"stock", "--units=9000000000001"}, "--units 0 to "},
		{[]string{"stock", "--per-user=-1"}, "--per-user must be 0 to 1000000000"},
		{[]string{"stock", "--per-user=1000000001"}, "--per-user must be 0 to 1000000000"},
		{[]string{"stock", "correct", "--reason=x"}, "one of --counted and --by"},
		{[]string{"stock", "correct", "--reason=x", "--by=1", "--counted=1"}, "one of --counted and --by"},
		{[]string{"stock", "correct", "--by=1"}, "--reason must be given"},
		{[]string{"migrate"}, "up, down or status"},
		{[]string{"ledger"}, "stockd ledger archive"},
		{[]string{"ledger", "archive"}, "--older-than must be at least 1h"},
		{[]string{"ledger", "archive", "--older-than=59m59s"}, "--older-than must be at least 1h"},
		{[]string{"ledger", "archive", "--older-than=1h", "--batch=0"}, "--batch must be 1 to 50000"},
		{[]string{"ledger", "archive", "--older-than=1h", "--batch=50001"}, "--batch must be 1 to 50000"},
		{[]string{"ledger", "archive", "--older-than=1h", "--pause=-1s"}, "--pause must not be negative"},
		{[]string{"secrets"}, "name the files"},
		{[]string{"secrets", "keys.json", "--jwks"}, "keys.json is a file of --jwks"},
		{[]string{"secrets", "buyers.key=x", "--jwks"}, "buyers.key is a file of --jwks"},
		{[]string{"buyer-token"}, "--buyer must be 1 to 64"},
		{[]string{"buyer-token", "--buyer=7", "--ttl=0s"}, "--ttl must be 1s to 720h"},
		{[]string{"buyer-token", "--buyer=7", "--ttl=720h1s"}, "--ttl must be 1s to 720h"},
		{[]string{"buyer-token", "--buyer=7", "--goods=-1"}, "--goods must be at least 1"},
		{[]string{"buyer-token", "--buyer=7"}, "buyer.from is request"},
		{[]string{"buyer-token", "--buyer=7", "--buyer-from=token"}, "none of buyer.jwks_file, "},
		{[]string{"buyer-token", "--buyer=7", "--buyer-from=token", "--buyer-secret-file=" + token}, "at least 32 bytes"},
		{[]string{"buyer-token", "--buyer=7", "--buyer-from=token", "--buyer-jwks-file=keys.json", "--key-file=gone.key"}, "--key-file: "},
		{[]string{"buyer-token", "--buyer=7", "--buyer-from=token", "--buyer-jwks-file=gone.json", "--key-file=" + token}, "buyer.jwks_file: "},
		{[]string{"reservations"}, "show, confirm, release or extend"},
		{[]string{"reservations", "show"}, "wants one RESERVATION"},
		{[]string{"reservations", "confirm", "1"}, "--token-file must name"},
		{[]string{"reservations", "confirm", "1", "--token-file", token}, "--payment-reference must name"},
		{[]string{"reservations", "extend", "1", "--ttl=1500ms", "--token-file", token}, "--ttl must be whole seconds"},
		{[]string{"reservations", "extend", "1", "--ttl=0s", "--token-file", token}, "--ttl must be whole seconds"},
		{[]string{"orders"}, "--token-file must name"},
		{[]string{"orders", "return", "1", "2"}, "wants one ORDER"},
		{[]string{"orders", "return", "1", "--units=-1"}, "--units must be at least 0"},
		{[]string{"orders", "return"}, "wants one ORDER"},
		{[]string{"orders", "return", ""}, "wants one ORDER"},
		{[]string{"migrate", "sideways"}, `"sideways"`},
	} {
		status, _, errOut := stockd(c.args...)
		if status != cli.Usage || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: exit status %d, %q; want %d with %q", c.args, status, errOut, cli.Usage, c.want)
		}
	}
}

// What is just within its bounds is no mistake.
func TestTheMostThatACommandTakes(t *testing.T) {
	must.Do(t, checkLoad(load.Plan{Clients: 10_000, GoodsID: 1, Timeout: 1}))
	must.Do(t, checkItem(client.Goods{ID: 1, Stock: stock.MaxStock, PerUser: stock.MaxPerUser}))
}

func TestConfigPrintsWhatIsInForce(t *testing.T) {
	t.Setenv("STOCKD_ADMIN_TOKEN", "not to be seen by anyone")
	status, out, _ := stockd("config", "--http-listen", "127.0.0.1:9999")
	if status != cli.OK || !strings.Contains(out, "127.0.0.1:9999") || !strings.Contains(out, "# --http-listen") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	if strings.Contains(out, "not to be seen") || !strings.Contains(out, "# STOCKD_ADMIN_TOKEN") {
		t.Errorf("the token is shown, or where it is from is not:\n%s", out)
	}
}

func TestMigrate(t *testing.T) {
	dsn := filepath.Join(t.TempDir(), "stockd.db")
	type step struct{ command, want string }
	steps := []step{
		{"status", "pending"},
		{"up", "applied 00001"},
		{"up", "nothing to do"},
		{"status", "applied 2"},
	}
	files, err := fs.Glob(migrations.Files, "sqlite/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations (%v)", len(files), err)
	}
	for _, file := range slices.Backward(files) {
		steps = append(steps, step{"down", "took back " + path.Base(file)})
	}
	for _, step := range append(steps, step{"status", "pending"}) {
		status, out, errOut := stockd("migrate", step.command, "--database-dsn", dsn)
		if status != cli.OK || !strings.Contains(out, step.want) {
			t.Errorf("migrate %s: exit status %d, %q %q; want %q", step.command, status, out, errOut, step.want)
		}
	}
}

// process is a stockd serve in a process of its own.
type process struct{ cmdtest.Replica }

// startReplica starts one with further flags.
func startReplica(t *testing.T, flags ...string) process {
	t.Helper()
	return process{cmdtest.StartReplica(t, "serve", flags...)}
}

// startReplicaWith starts one with further variables and flags, and without an item.
func startReplicaWith(t *testing.T, env []string, flags ...string) process {
	t.Helper()
	return process{cmdtest.StartEmpty(t, "serve", env, flags...)}
}
