package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/pkg/client"
)

// Commands for servers that run already: what a container without a shell is
// started, checked and stocked by.
func TestServersThatAreYours(t *testing.T) {
	l := startLabOf(t, servers.Choice{Mode: servers.Embedded, Redis: servers.None, Etcd: servers.None}, cluster.Options{Replicas: 2})
	there := l.cluster.Client()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(there.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	owner := []string{"--admin-url", there.AdminURL, "--token-file", token}

	t.Run("a ready replica is healthy, and one that is not there is not", func(t *testing.T) {
		_, port, _ := strings.Cut(strings.TrimPrefix(l.cluster.Replicas[0].URL, "http://"), ":")
		if status, _, errOut := stockd(t, "healthcheck", "--http-listen", "0.0.0.0:"+port); status != exitOK {
			t.Errorf("exit status %d, want 0: %s", status, errOut)
		}
		if status, _, errOut := stockd(t, "healthcheck", "--http-listen", "127.0.0.1:1"); status != exitFailure || !strings.Contains(errOut, "/readyz") {
			t.Errorf("exit status %d, %q; want %d with what was asked", status, errOut, exitFailure)
		}
	})
	t.Run("goods are put on sale once", func(t *testing.T) {
		for _, c := range []struct{ units, want string }{
			{"7", "goods 1 is on sale with 7 units\n"},
			{"9", "goods 1 was on sale already, and has 7 units left\n"},
		} {
			status, out, errOut := stockd(t, append(owner, "stock", "--units", c.units)...)
			if status != exitOK || out != c.want {
				t.Errorf("exit status %d, %q (%s); want %q", status, out, errOut, c.want)
			}
		}
	})
	t.Run("goods are put on sale with a limit of one buyer", func(t *testing.T) {
		status, _, errOut := stockd(t, append(owner, "stock", "--goods", "2", "--per-user", "3")...)
		if found, err := there.Goods(t.Context(), 2); status != exitOK || err != nil || found.PerUser != 3 {
			t.Errorf("exit status %d (%s), and goods 2 are %+v (%v), want a limit of 3", status, errOut, found, err)
		}
	})
	t.Run("a demo sells on the replicas that there are, and leaves them running", func(t *testing.T) {
		report := filepath.Join(t.TempDir(), "demo.json")
		status, out, errOut := stockd(t, append(owner, "demo", "--url", there.URL, "--strategies", "sql-conditional,mutex",
			"--stock", "200", "--clients", "8", "--loops", "40", "--json", report)...)
		if status != exitOK {
			t.Fatalf("exit status %d: %s%s", status, out, errOut)
		}
		for _, run := range readReport(t, report).Runs {
			if run.Replicas != 2 || run.ExpectedClean != (run.Strategy == "sql-conditional") {
				t.Errorf("%s on %d replicas, expected clean: %v; there are 2", run.Strategy, run.Replicas, run.ExpectedClean)
			}
		}
		names, err := there.Replicas(t.Context())
		if slices.Sort(names); err != nil || !slices.Equal(names, []string{"replica-1", "replica-2"}) {
			t.Errorf("after it %v answer (%v), want both replicas", names, err)
		}
	})
}

// A proxy of the machine's would answer in the place of a replica.
func TestTheHealthOfAReplicaIsAskedOfNobodyElse(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer proxy.Close()
	check := exec.CommandContext(t.Context(), os.Args[0], "healthcheck", "--http-listen=stockd.invalid:8080")
	check.Env = append(environment(), "HTTP_PROXY="+proxy.URL, "NO_PROXY=")
	said, err := check.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "/readyz") {
		t.Errorf("of a replica that there is not it says %q, %v", said, err)
	}
}

func TestVersionNamesTheCommit(t *testing.T) {
	status, out, errOut := stockd(t, "version")
	if status != exitOK || !strings.HasPrefix(out, "stockd ") || !strings.Contains(out, "commit ") || !strings.Contains(out, "go1.") {
		t.Errorf("exit status %d, %q (%s); want version, commit and Go", status, out, errOut)
	}
}

// A buyer branches on the type of a problem, whoever it is from.
func TestTheBalancerAnswersInProblems(t *testing.T) {
	needLocal(t)
	choice := servers.Choice{Mode: servers.Local, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None}
	l := startLabOf(t, choice, cluster.Options{Replicas: 1})
	ask := func(body string) (status int, slug string) {
		response, err := http.Post(l.cluster.URL+"/deduct?goods_id=1", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close() //nolint:errcheck // it has been read
		var problem struct {
			Type string `json:"type"`
		}
		if err := json.NewDecoder(response.Body).Decode(&problem); err != nil {
			t.Fatalf("%s is no JSON: %v", response.Status, err)
		}
		return response.StatusCode, strings.TrimPrefix(problem.Type, "urn:stockd:problem:")
	}
	if status, slug := ask(strings.Repeat("x", 17<<10)); status != http.StatusRequestEntityTooLarge || slug != "body-too-large" {
		t.Errorf("17 KiB: %d %s, want 413 body-too-large", status, slug)
	}
	if err := l.cluster.Replicas[0].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, slug := ask("{}"); status != http.StatusServiceUnavailable || slug != "outcome-unknown" {
		t.Errorf("without a replica: %d %s, want 503 outcome-unknown", status, slug)
	}
	c := client.Client{URL: l.cluster.URL}
	_, err := c.Goods(t.Context(), 1)
	if problem, ok := errors.AsType[*client.Problem](err); !ok || problem.Code != "backend-unavailable" || !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("a read without a replica: %v, want backend-unavailable", err)
	}
	_, err = c.Deduct(t.Context(), client.Purchase{GoodsID: 1, RequestID: "mine"})
	if unknown, ok := errors.AsType[*client.UnknownError](err); !ok || unknown.RequestID != "mine" {
		t.Errorf("a purchase without a replica: %v, want the outcome of mine unknown", err)
	}
}
