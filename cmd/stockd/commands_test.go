package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/backend/check"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// Commands for servers that run already: what a container without a shell is
// started, checked and stocked by.
func TestCommandsForARunningReplica(t *testing.T) {
	r := startReplicaWith(t, nil, "--deduct-per-user=4")
	owner := r.owner(t)

	t.Run("a ready replica is healthy, and one that is not there is not", func(t *testing.T) {
		_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
		succeeds(t, "healthcheck", "--http-listen", "0.0.0.0:"+port)
		admin := strings.TrimPrefix(r.AdminURL, "http://") // a crowd may have all of the public API
		succeeds(t, "healthcheck", "--http-listen", "127.0.0.1:1", "--admin-listen", admin, "--admin-token-file", owner[3])
		// What it started with may have broken since, and is not for this command.
		for _, broken := range [][]string{{"--admin-tokens-file", "gone"}, {"--buyer-jwks-file", "gone"}, {"--redis-password-file", "gone"}} {
			succeeds(t, append([]string{"healthcheck", "--http-listen", "0.0.0.0:" + port}, broken...)...)
		}
		if status, _, errOut := stockd("healthcheck", "--http-listen", "127.0.0.1:1"); status != cli.Failure || !strings.Contains(errOut, "/readyz") {
			t.Errorf("exit status %d, %q; want %d with what was asked", status, errOut, cli.Failure)
		}
	})
	t.Run("an item is put on sale once", func(t *testing.T) {
		for _, c := range []struct{ units, want string }{
			{"7", "item 1 is on sale with 7 units\n"},
			{"9", "item 1 was on sale already, and has 7 units left\n"},
		} {
			status, out, errOut := stockd(append(owner, "stock", "--units", c.units)...)
			if status != cli.OK || out != c.want {
				t.Errorf("exit status %d, %q (%s); want %q", status, out, errOut, c.want)
			}
		}
	})
	t.Run("why an item is not put on sale is said", func(t *testing.T) {
		status, _, errOut := stockd(append(owner, "stock", "--goods", "4", "--strategy", "hope")...)
		if status != cli.Failure || !strings.Contains(errOut, "hope") || strings.Contains(errOut, "Unknown item") {
			t.Errorf("exit status %d, %q; want %d with the strategy that there is not, and nothing else", status, errOut, cli.Failure)
		}
	})
	t.Run("a wrong token is said to be wrong", func(t *testing.T) {
		wrong := filepath.Join(t.TempDir(), "token")
		must.Do(t, os.WriteFile(wrong, []byte("another token of 24 signs"), 0o600))
		status, _, errOut := stockd("orders", "--admin-url", r.AdminURL, "--token-file", wrong)
		if want := "stockd: A valid bearer token is required\n"; status != cli.Failure || errOut != want {
			t.Errorf("exit status %d, %q; want %d with %q", status, errOut, cli.Failure, want)
		}
	})
	t.Run("an item has its own limit per buyer, or that of the configuration", func(t *testing.T) {
		for goods, c := range map[int64]struct {
			flags []string
			want  int64
		}{2: {[]string{"--per-user", "3"}, 3}, 5: {nil, 4}, 6: {[]string{"--per-user", "0"}, 0}} {
			succeeds(t, slices.Concat(owner, []string{"stock", "--goods", fmt.Sprint(goods)}, c.flags)...)
			should.Be(t, must.Get(r.Goods(t.Context(), goods))(t).PerUser, c.want, "the limit of item", goods)
		}
	})
	t.Run("what is not said of an item is as by default, and no is said", func(t *testing.T) {
		status, _, errOut := stockd(append(owner, "stock", "--goods", "3", "--group=false", "--fence=false")...)
		if found, err := r.Goods(t.Context(), 3); status != cli.OK || err != nil || found.Group == nil || found.Choice.Fence == nil || *found.Group || *found.Choice.Fence {
			t.Errorf("exit status %d (%s), and goods 3 are %+v (%v), want neither grouped nor fenced", status, errOut, found, err)
		}
		if found, err := r.Goods(t.Context(), 2); err != nil || found.Group != nil || found.Choice.Fence != nil {
			t.Errorf("goods 2 are %+v (%v), want them sold as by default", found, err)
		}
	})
}

// owner are the flags of who administers the replica.
func (r process) owner(t *testing.T) []string {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte(r.Token+"\n"), 0o600))
	return []string{"--admin-url", r.AdminURL, "--token-file", token}
}

func TestTheStockOfAnItemIsCorrectedOnceUnderAKey(t *testing.T) {
	r := startReplicaWith(t, nil)
	correct := func(args ...string) (status int, out, errOut string) {
		return stockd(append(append(r.owner(t), "stock", "correct"), args...)...)
	}
	succeeds(t, append(r.owner(t), "stock", "--units=7")...)
	for range 2 {
		status, out, errOut := correct("--counted=5", "--reason=inventory", "--key=november")
		if want := "item 1 was corrected by -2, and has 5 units to sell\n"; status != cli.OK || out != want {
			t.Errorf("exit status %d, %q (%s); want %q", status, out, errOut, want)
		}
	}
	if status, _, errOut := correct("--by=-6", "--reason=fire"); status != cli.Failure || !strings.Contains(errOut, "Fewer units can be sold") {
		t.Errorf("exit status %d, %q", status, errOut)
	}
}

// What was imported is exported, and importing it again changes nothing: also after an interruption.
func TestItemsAreImportedAndExported(t *testing.T) {
	r := startReplicaWith(t, nil)
	folder := t.TempDir()
	run := func(name, content string) (status int, out, errOut string) {
		file := filepath.Join(folder, name)
		must.Do(t, os.WriteFile(file, []byte(content), 0o600))
		return stockd(append(r.owner(t), "stock", "import", file)...)
	}
	const items = 250 // several requests
	table := "\ufeffgoods_id,stock,per_user,strategy,group\n"
	for id := range items {
		table += fmt.Sprintf("%d, %d,2,mutex,true\n", id+1, id)
	}
	table += "900,many,,,\n"
	for _, want := range []string{"250 created, 0 changed, 0 the same, 1 failed, of 251", "0 created, 0 changed, 250 the same, 1 failed, of 251"} {
		if status, out, errOut := run("items.csv", table); status != cli.Failure || !strings.Contains(out, want) || !strings.Contains(out, "line 252: ") || !strings.Contains(out, "stock") {
			t.Errorf("exit status %d, %q (%s); want %s, and why line 252 failed", status, out, errOut, want)
		}
	}
	_, exported, _ := stockd(append(r.owner(t), "stock", "export", "--after=200")...)
	if lines := strings.Count(exported, "\n"); lines != items-200 || !strings.Contains(exported, `{"goods_id":250,"stock":249,"per_user":2,"strategy":"mutex","group":true,"fence":null}`) {
		t.Errorf("exported are %d items: %s", lines, exported)
	}
	if status, out, errOut := run("items.jsonl", exported); status != cli.OK || !strings.HasPrefix(out, "0 created, 0 changed, 50 the same") {
		t.Errorf("exit status %d, %q (%s); what was exported is not the same", status, out, errOut)
	}
	for content, want := range map[string]string{"stock\n7\n": "names of the columns", "goods_id,stock\n7\n": "wrong number of fields", "{\"goods_id\": 1}\n{\n": "line 2"} {
		if status, _, errOut := run("wrong", content); status != cli.Usage || !strings.Contains(errOut, want) {
			t.Errorf("%q: exit status %d, %q; want %q", content, status, errOut, want)
		}
	}
	// What was closed before it began does not begin at another shop, either.
	c := client.Client{URL: r.URL, AdminURL: r.AdminURL, Token: r.Token}
	must.Get(c.Create(t.Context(), client.NewItem{GoodsID: 950, Stock: 5, StartsAt: new(time.Now().Add(time.Hour))}))(t)
	must.Get(c.CloseSale(t.Context(), 950))(t)
	_, closed, _ := stockd(append(r.owner(t), "stock", "export", "--after=949")...)
	r = startReplicaWith(t, nil)
	if status, out, errOut := run("closed.jsonl", closed); status != cli.OK || !strings.HasPrefix(out, "1 created") {
		t.Errorf("exit status %d, %q (%s) of %s", status, out, errOut, closed)
	}
	should.Be(t, must.Get(client.Client{URL: r.URL}.Goods(t.Context(), 950))(t).Availability, client.SaleEnded)
}

func TestTheSaleOfAnItemIsClosedWithItsAudit(t *testing.T) {
	r := startReplicaWith(t, nil)
	succeeds(t, append(r.owner(t), "stock", "--units=7")...)
	r.Buy(t, "goods_id=1")
	for range 2 {
		status, out, errOut := stockd(append(r.owner(t), "stock", "close")...)
		if want := "1 units sold in 1 orders, 0 held, 6 left, consistent: true\n"; status != cli.OK || !strings.HasSuffix(out, want) {
			t.Errorf("exit status %d, %q (%s); want %q", status, out, errOut, want)
		}
	}
}

// A reservation from its hold to its return, by commands alone.
func TestCommandsForOrdersAndReservations(t *testing.T) {
	r := startReplicaWith(t, nil)
	owner := r.owner(t)
	c := client.Client{URL: r.URL, AdminURL: r.AdminURL, Token: r.Token}
	must.Get(c.Create(t.Context(), client.NewItem{GoodsID: 1, Stock: 10}))(t)
	ids := make([]string, 2)
	for i := range ids {
		held := must.Get(c.Reserve(t.Context(), client.Purchase{GoodsID: 1, Quantity: 3, UserID: "ann"}, time.Minute))(t)
		ids[i] = held.ReservationID
	}
	says := func(status int, want string, args ...string) (out string) {
		t.Helper()
		got, out, errOut := stockd(append(args, owner...)...)
		if got != status || !strings.Contains(out+errOut, want) {
			t.Errorf("%v: exit status %d, %q (%s); want %d with %q", args, got, out, errOut, status, want)
		}
		return out
	}
	says(cli.OK, ids[0]+": held, 3 of item 1 by sql-conditional, until ", "reservations", "show", ids[0])
	says(cli.OK, ids[0]+": held", "reservations", "extend", ids[0], "--ttl=2m")
	says(cli.OK, ids[0]+": held", "reservations", "extend", ids[0], "--ttl=1s")
	says(cli.OK, ids[0]+": confirmed", "reservations", "confirm", ids[0], "--payment-reference=pay-1")
	says(cli.OK, ", paid by pay-1\n", "reservations", "show", ids[0])
	says(cli.Failure, "is an order already", "reservations", "release", ids[0])
	says(cli.OK, ids[1]+": released", "reservations", "release", ids[1])
	says(cli.Failure, "Unknown reservation", "reservations", "show", "404")
	says(cli.OK, "back in stock: 1 of order "+ids[0]+"\n", "orders", "return", ids[0], "--units=1", "--key=back")
	says(cli.OK, "back in stock: 1 of order "+ids[0]+"\n", "orders", "return", ids[0], "--units=1", "--key=back")
	says(cli.Failure, "2 of 3 are left", "orders", "return", ids[0], "--units=3")
	says(cli.OK, "back in stock: 2 of order ", "orders", "return", ids[0])
	if lines := strings.Split(says(cli.OK, ids[0], "orders"), "\n"); len(lines) != 3 || !strings.Contains(lines[1], "  order  ") || !strings.HasSuffix(lines[1], "  ann") {
		t.Errorf("the orders are %q", lines)
	}
	should.Be(t, says(cli.OK, "", "orders", "--goods=2"), "", "the orders of another item")
	should.Contain(t, says(cli.OK, "", "orders", "--steps", "--reader=warehouse"), "  hold     "+ids[0], "  confirm  "+ids[0], "  return   "+ids[0])
	if text := r.scrape(t, http.StatusOK, cmdtest.Token); !strings.Contains(text, `stockd_feed_reader_behind_seconds{reader="warehouse"}`) {
		t.Error("the metrics do not name the reader of the steps")
	}
	says(cli.OK, "  restock  ", "orders", "--kinds=restock,limit")
	var kinds, cursors []string
	for line := range strings.Lines(says(cli.OK, "", "orders", "--steps", "--json")) {
		var step client.ListedOrder
		must.Do(t, json.Unmarshal([]byte(line), &step))
		kinds, cursors = append(kinds, step.Kind), append(cursors, step.Cursor)
	}
	if want := []string{"hold", "hold", "confirm", "release", "return", "return"}; !slices.Equal(kinds, want) {
		t.Errorf("the steps are %v, want %v", kinds, want)
	} else if out := says(cli.OK, "", "orders", "--steps", "--after", cursors[len(cursors)-1]); out != "" {
		t.Errorf("after the last step there is %q", out)
	}
}

// Where the environment says how this machine's replica is reached, commands ask there.
func TestCommandsAskTheConfiguredReplica(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte(cmdtest.Token), 0o600))
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusTeapot)
	}))
	defer s.Close()
	listen := strings.TrimPrefix(s.URL, "http://")
	t.Setenv("STOCKD_ADMIN_LISTEN", listen)
	t.Setenv("STOCKD_ADMIN_TOKEN_FILE", token)
	stockd("stock", "close")
	t.Setenv("STOCKD_ADMIN_TOKEN_FILE", "")
	t.Setenv("STOCKD_HTTP_LISTEN", listen)
	stockd("bench", "--requests", "1")
	if want := "/goods/1/close Bearer " + cmdtest.Token; len(asked) < 2 || asked[0] != want || strings.Contains(asked[1], "Bearer") {
		t.Errorf("%q are asked, and %q is first, before a public one", asked, want)
	}
}

// A listing that goes on until it is interrupted is done then; one that has an end is not whole.
func TestAnInterruptedListingOfOrdersFailsUnlessItFollows(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte(cmdtest.Token), 0o600))
	for _, follows := range []bool{true, false} {
		ctx, interrupt := context.WithTimeout(t.Context(), 10*time.Second)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("after") == "" {
				_, _ = io.WriteString(w, `{"orders": [{"order_id": "1"}], "next": "1"}`) // the client notices
				return
			}
			interrupt()
			<-r.Context().Done()
		}))
		cmd := ordersCommand()
		cmd.SetArgs([]string{"--admin-url", s.URL, "--token-file", token, "--follow=" + strconv.FormatBool(follows)})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(ctx); (err == nil) != follows || !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("one that follows, %v, is interrupted with %v", follows, err)
		}
		s.Close()
	}
}

// A proxy of the machine's would answer in the place of a replica.
func TestHealthcheckUsesNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer proxy.Close()
	check := exec.CommandContext(t.Context(), os.Args[0], "healthcheck", "--http-listen=stockd.invalid:8080")
	check.Env = append(cmdtest.Environment(), "HTTP_PROXY="+proxy.URL, "NO_PROXY=")
	said, err := check.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "/readyz") {
		t.Errorf("of a replica that there is not it says %q, %v", said, err)
	}
}

func TestVersionNamesTheCommit(t *testing.T) {
	status, out, errOut := stockd("version")
	if status != cli.OK || !strings.HasPrefix(out, "stockd ") || !strings.Contains(out, "commit ") || !strings.Contains(out, "go1.") {
		t.Errorf("exit status %d, %q (%s); want version, commit and Go", status, out, errOut)
	}
}

func readSecret(t *testing.T, path string) (content string, mode fs.FileMode) {
	t.Helper()
	read := must.Get(os.ReadFile(path))(t)
	info := must.Get(os.Stat(path))(t)
	return strings.TrimSpace(string(read)), info.Mode().Perm()
}

func TestSecretsAreRandomAndWrittenOnce(t *testing.T) {
	folder := t.TempDir()
	token, auth, given := filepath.Join(folder, "token"), filepath.Join(folder, "auth"), filepath.Join(folder, "given")
	must.Do(t, os.WriteFile(given, []byte("of the admin"), 0o600))
	args := []string{"secrets", token, auth + "=stockd:", given}
	status, out, errOut := stockd(args...)
	must.Be(t, status, cli.OK, "the exit status", errOut)
	should.Contain(t, out, token+": written", given+": kept")
	raw := string(must.Get(os.ReadFile(token))(t))
	should.Be(t, raw, strings.TrimSpace(raw), "the token, which has no blanks around it")
	first, mode := readSecret(t, token)
	if len(first) < 26 || mode != ownerReads {
		t.Errorf("the token has %d characters and mode %v", len(first), mode)
	}
	user, password, _ := strings.Cut(func() string { s, _ := readSecret(t, auth); return s }(), ":")
	if user != "stockd" || len(password) < 26 || password == first {
		t.Errorf("the other secret is %q for %q", password, user)
	}
	content, _ := readSecret(t, given)
	should.Be(t, content, "of the admin", "the file that existed has")
	if status, out, _ := stockd(args...); status != cli.OK || strings.Contains(out, "written") {
		t.Errorf("again: exit status %d, %q", status, out)
	}
	again, _ := readSecret(t, token)
	should.Be(t, again, first, "the token after the second run")
}

func TestSecretsOfContainersAreReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	succeeds(t, "secrets", "--world-readable", path)
	_, mode := readSecret(t, path)
	should.Be(t, mode, everyoneReads, "the mode is")
}

func TestManyStartsWriteOneSecret(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "token")
	var starts sync.WaitGroup
	contents := make([]string, 8)
	for i := range contents {
		starts.Go(func() {
			if status, _, errOut := stockd("secrets", path); status != cli.OK {
				t.Errorf("exit status %d, %q", status, errOut)
				return
			}
			contents[i], _ = readSecret(t, path)
		})
	}
	starts.Wait()
	if slices.Sort(contents); contents[0] == "" || contents[0] != contents[len(contents)-1] {
		t.Errorf("the starts read %q", contents)
	}
	should.Be(t, len(must.Get(os.ReadDir(folder))(t)), 1, "files, the token alone")
}

// The two files of a key are of one pair, wherever an earlier start ended.
func TestTheKeyOfBuyersIsWrittenOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	secrets := func(want int) (out string) {
		t.Helper()
		status, out, errOut := stockd("secrets", "--jwks")
		must.Be(t, status, want, "exit status", out, errOut)
		return out + errOut
	}
	should.Be(t, secrets(cli.OK), "buyers.key: written\nkeys.json: written\n", "at first")
	_, private := readSecret(t, "buyers.key")
	keys, public := readSecret(t, "keys.json")
	should.Be(t, [2]fs.FileMode{private, public}, [2]fs.FileMode{ownerReads, ownerWrites}, "the modes")
	should.Be(t, secrets(cli.OK), "buyers.key: kept\nkeys.json: kept\n", "again")
	must.Do(t, os.Remove("keys.json"))
	should.Be(t, secrets(cli.OK), "buyers.key: kept\nkeys.json: written\n", "without the public key")
	again, _ := readSecret(t, "keys.json")
	should.Be(t, again, keys, "the public key")
	must.Do(t, os.Remove("buyers.key"))
	should.Contain(t, secrets(cli.Failure), "--jwks-file keys.json", "--key-file buyers.key")
	should.Reject(os.Stat("buyers.key"))(t, fs.ErrNotExist)
}

func TestSecretsNameTheFileThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "token")
	if status, _, errOut := stockd("secrets", path); status != cli.Failure || !strings.Contains(errOut, path) {
		t.Errorf("exit status %d, %q", status, errOut)
	}
}

// The command tells what to do, and its exit status whether something must be done.
func TestCheckPrintsWhatToDo(t *testing.T) {
	dsn := "--database-dsn=" + filepath.Join(t.TempDir(), "stockd.db")
	if status, out, errOut := stockd("check", dsn); status != cli.Failure || !strings.Contains(out, "stockd migrate up") || !strings.Contains(errOut, "1 of ") {
		t.Errorf("of a database without tables it says %d, %s%s", status, out, errOut)
	}
	succeeds(t, "migrate", "up", dsn)
	status, out, errOut := stockd("check", dsn, "--json")
	var found []check.Finding
	if err := json.Unmarshal([]byte(out), &found); status != cli.OK || err != nil || len(found) < 4 || found[0].What == "" || found[0].State == "" {
		t.Errorf("of one with tables it says %d, %s%s (%v)", status, out, errOut, err)
	}
	if status, _, errOut := stockd("check", dsn, "--replicas=0"); status != cli.Usage || !strings.Contains(errOut, "--replicas") {
		t.Errorf("of no replicas it says %d, %s", status, errOut)
	}
}
