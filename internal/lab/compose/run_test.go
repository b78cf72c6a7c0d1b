//go:build compose

package compose

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/pkg/client"
)

// project is a compose project of its own, on ports of its own, in a clone that
// has nothing but what was committed.
type project struct {
	folder string
	there  shop.Client
}

const (
	httpPort  = "18080"
	adminPort = "18081"
)

// start clones the repository and brings it up.
func start(t *testing.T) project {
	t.Helper()
	if out, err := exec.Command("docker", "info").CombinedOutput(); err != nil {
		t.Skipf("no Docker engine answers: %s", out)
	}
	p := project{folder: filepath.Join(t.TempDir(), "stockd")}
	if out, err := exec.Command("git", "clone", "-q", root, p.folder).CombinedOutput(); err != nil {
		t.Fatalf("clone: %v: %s", err, out)
	}
	t.Cleanup(func() {
		p.run(context.WithoutCancel(t.Context()), t, "--profile", "*", "down", "--volumes", "--timeout", "30")
	})
	p.compose(t, "up", "--build", "--detach", "--wait")
	p.there = shop.Client{
		URL: "http://127.0.0.1:" + httpPort, AdminURL: "http://127.0.0.1:" + adminPort, Token: p.token(t),
	}
	return p
}

// token is the one that compose has made, which the archive of docker compose cp holds.
func (p project) token(t *testing.T) string {
	t.Helper()
	archive := tar.NewReader(strings.NewReader(p.compose(t, "cp", "stockd:/run/secrets/admin/token", "-")))
	must.Get(archive.Next())(t)
	token := must.Get(io.ReadAll(archive))(t)
	return strings.TrimSpace(string(token))
}

// compose runs docker compose and returns what it printed.
func (p project) compose(t *testing.T, args ...string) string {
	t.Helper()
	return p.run(t.Context(), t, args...)
}

func (p project) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "docker", append([]string{"compose", "--project-name", "stockd-test"}, args...)...)
	cmd.Dir, cmd.Env = p.folder, append(os.Environ(), "HTTP_PORT="+httpPort, "ADMIN_PORT="+adminPort)
	return cmd
}

func (p project) run(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := p.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("docker compose %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String()
}

// replicas waits until so many answer through nginx.
func (p project) replicas(t *testing.T, want int) {
	t.Helper()
	var names []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var err error
		if names, err = p.there.Replicas(t.Context()); err == nil && len(names) == want {
			return
		}
	}
	t.Fatalf("%v answer through nginx, want %d", names, want)
}

// sale is one strategy that sells while something happens to the servers.
type sale struct {
	project
	goods    int64
	strategy string
	mu       sync.Mutex
	sold     []string // the keys of purchases that were accepted
	after    int      // how many were, after the servers were struck
	struck   bool
}

const plenty = 1_000_000

// sell buys until the deed is done and so long after it.
func (s *sale) sell(t *testing.T, after time.Duration, deed func()) *load.Result {
	t.Helper()
	must.Do(t, s.there.CreateGoods(t.Context(), s.goods, plenty))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		defer stop()
		time.Sleep(2 * time.Second)
		deed()
		s.mu.Lock()
		s.struck = true
		s.mu.Unlock()
		time.Sleep(after)
	}()
	var number [16]int
	result, err := load.Run(ctx, load.Plan{
		URL: s.there.URL, Strategy: s.strategy, GoodsID: s.goods, Clients: len(number), Timeout: 20 * time.Second, Duration: 20 * time.Minute,
		Key: func(client int) string {
			number[client]++
			return fmt.Sprintf("%d-%d-%d", s.goods, client, number[client])
		},
		Observe: s.observe,
	})
	must.Do(t, err)
	return result
}

func (s *sale) observe(a load.Answer) {
	if a.Kind != load.Sold {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sold = append(s.sold, a.Key)
	if s.struck {
		s.after++
	}
}

// lost lists the accepted purchases that the ledger does not have.
func (s *sale) lost(t *testing.T) (lost []string) {
	t.Helper()
	query := fmt.Sprintf("SELECT request_id FROM tb_stock_ledger WHERE goods_id = %d", s.goods)
	rows := strings.Fields(s.compose(t, "exec", "--no-TTY", "mysql", "sh", "-c",
		`MYSQL_PWD=$(cat /run/secrets/mysql-owner/password) mysql --user=owner --skip-column-names --execute="`+query+`" stockd`))
	slices.Sort(rows)
	for _, key := range s.sold {
		if _, found := slices.BinarySearch(rows, key); !found {
			lost = append(lost, key)
		}
	}
	return lost
}

// audit wants every accepted sale, and none without an answer that allows it.
func (s *sale) audit(t *testing.T, r *load.Result) {
	t.Helper()
	audit := must.Get(s.there.Audit(t.Context(), s.goods))(t)
	t.Logf("%s: %d sent, %d sold (%d after the deed), %d unknown, %v; ledger: %d orders, clean: %v",
		s.strategy, r.Sent, r.Sold, s.after, r.Unknown, r.Errors, audit.Orders, audit.Clean)
	if lost := s.lost(t); len(lost) > 0 || len(s.sold) == 0 {
		t.Errorf("%s: %d of %d accepted sales are not in the ledger, %v the first", s.strategy, len(lost), len(s.sold), lost[:min(3, len(lost))])
	}
	reported, unknown := int64(r.Sold), int64(r.Unknown)
	if !audit.Clean || audit.Orders < reported || audit.Orders > reported+unknown || audit.Stock != plenty-audit.Orders {
		t.Errorf("%s: %+v; %d were answered as sold, the outcome of %d is unknown", s.strategy, audit, reported, unknown)
	}
}

// The parts share the servers, in this order.
func TestCompose(t *testing.T) {
	p := start(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, project)
	}{
		{"a fresh clone has goods 1 on sale, with 5,000 units", freshlyStocked},
		{"nginx reaches no store, and etcd asks for a password", minRights},
		{"the process lock fails on three replicas and holds on one", scaled},
		{"a killed replica costs no sale and stops none", killed},
		{"scaling under load costs no buyer its certainty", scaledUnderLoad},
		{"no accepted sale is lost when everything is taken down", takenDown},
		{"every strategy does on three replicas what it claims", everyStrategy},
		{"Prometheus reads every replica", watched},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, p) }) {
			t.Log(p.run(context.WithoutCancel(t.Context()), t, "ps", "--all"))
		}
	}
}

func freshlyStocked(t *testing.T, p project) {
	goods, err := p.there.Goods(t.Context(), 1)
	if err != nil || goods.Stock != 5000 {
		t.Errorf("goods 1: %+v (%v), want 5000 units", goods, err)
	}
	if version := p.compose(t, "exec", "stockd", "/stockd", "version"); strings.Contains(version, "unknown") {
		t.Errorf("%q names no commit", version)
	}
	stranger := p.there
	stranger.Token = "a-token-of-a-stranger"
	should.Reject(stranger.Shop().Restock(t.Context(), 1, 1, ""))(t, client.ErrUnauthorized, "the restock of a stranger")
}

func minRights(t *testing.T, p project) {
	for _, store := range []string{"mysql", "redis", "zookeeper", "etcd"} {
		if reached := p.compose(t, "exec", "--no-TTY", "nginx", "sh", "-c", "getent hosts "+store+" || true"); reached != "" {
			t.Errorf("nginx finds %s at %s", store, reached)
		}
	}
	if found := p.compose(t, "exec", "--no-TTY", "nginx", "getent", "hosts", "stockd"); found == "" {
		t.Error("nginx finds no replica")
	}
	out, err := p.command(t.Context(), "exec", "--no-TTY", "etcd", "etcdctl", "get", "--prefix", "stockd/").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "user name is empty") {
		t.Errorf("etcd without a password: %s (%v)", out, err)
	}
}

// scaled changes the number of replicas without notifying nginx.
func scaled(t *testing.T, p project) {
	before := p.compose(t, "ps", "--format", "{{.ID}}", "nginx")
	for _, replicas := range []int{3, 1, 3} {
		p.compose(t, "up", "--detach", "--wait", fmt.Sprintf("--scale=stockd=%d", replicas))
		p.replicas(t, replicas)
		// The demo fails where mutex does not oversell on three replicas, where it
		// does on one, and where sql-conditional is inconsistent.
		t.Log(p.compose(t, "run", "--rm", "--no-TTY", "demo", "--strategies=mutex,sql-conditional"))
		p.replicas(t, replicas)
	}
	should.Be(t, p.compose(t, "ps", "--format", "{{.ID}}", "nginx"), before, "nginx, which was not made anew")
}

func killed(t *testing.T, p project) {
	for i, strategy := range []string{"sql-conditional", "redis-reentrant", "redis-stock"} {
		s := &sale{project: p, goods: int64(1001 + i), strategy: strategy}
		result := s.sell(t, 8*time.Second, func() {
			victim := strings.Fields(p.compose(t, "ps", "--quiet", "stockd"))[0]
			if out, err := exec.Command("docker", "kill", victim).CombinedOutput(); err != nil {
				t.Errorf("kill: %v: %s", err, out)
			}
		})
		s.audit(t, result)
		if s.after == 0 || len(result.Replicas) != 3 {
			t.Errorf("%s: %d sales after the kill, on %v", strategy, s.after, result.Replicas)
		}
		p.compose(t, "up", "--detach", "--wait")
		p.replicas(t, 3)
	}
}

// scaledUnderLoad changes the number of replicas while a crowd buys: containers that stop take their addresses with
// them, which nginx learns a moment later, and has in its log.
func scaledUnderLoad(t *testing.T, p project) {
	const rounds = 2
	s := &sale{project: p, goods: 1501, strategy: "sql-conditional"}
	result := s.sell(t, time.Second, func() {
		for range rounds {
			for _, replicas := range []int{5, 2, 5, 1, 3} {
				p.compose(t, "up", "--detach", "--wait", "--no-recreate", fmt.Sprintf("--scale=stockd=%d", replicas))
			}
		}
	})
	s.audit(t, result)
	t.Logf("%d sold; of all answers 999 in 1,000 came within %d ms, and the longest took %d ms", result.Sold,
		result.Latency.ValueAtQuantile(99.9)/1000, result.Latency.Max()/1000)
	if failed := result.Sent - result.Sold - result.Errors["busy"]; failed > 0 {
		t.Errorf("%d purchases failed: %d with an unknown outcome, %v", failed, result.Unknown, result.Errors)
	}
	should.Contain(t, p.compose(t, "logs", "--no-log-prefix", "nginx"), ` status="504, 200"`) // of an address that was gone
}

func takenDown(t *testing.T, p project) {
	for i, strategy := range []string{"sql-conditional", "redis-stock"} {
		s := &sale{project: p, goods: int64(2001 + i), strategy: strategy}
		result := s.sell(t, 0, func() { p.compose(t, "down") })
		p.compose(t, "up", "--detach", "--wait")
		s.audit(t, result)
	}
}

// everyStrategy has the demo judge all of them, redlock on its five masters among
// them: it fails where one that claims to be clean is not, or cannot be tried.
func everyStrategy(t *testing.T, p project) {
	p.compose(t, "--profile", "redlock", "up", "--detach", "--wait")
	p.replicas(t, 3)
	table := p.compose(t, "run", "--rm", "--no-TTY", "demo")
	t.Log(table)
	if strings.Contains(table, "not run") {
		t.Error("a strategy was not run")
	}
}

// watched has Prometheus alone come up, of what watches: it is read here from outside.
func watched(t *testing.T, p project) {
	p.compose(t, "--profile", "watch", "up", "--detach", "--wait", "prometheus")
	up := func() (values []string) {
		out := p.compose(t, "exec", "--no-TTY", "prometheus", "wget", "-q", "-O", "-", "http://127.0.0.1:9090/api/v1/query?query=up")
		var said struct {
			Data struct{ Result []struct{ Value [2]any } }
		}
		if err := json.Unmarshal([]byte(out), &said); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, r := range said.Data.Result {
			values = append(values, fmt.Sprint(r.Value[1]))
		}
		return values
	}
	want, got := []string{"1", "1", "1"}, []string(nil)
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && !slices.Equal(got, want); time.Sleep(time.Second) {
		got = up()
	}
	should.Equal(t, got, want, "the replicas are for Prometheus")
}
