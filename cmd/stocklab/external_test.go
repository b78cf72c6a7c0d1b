package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/cluster"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/pkg/client"
)

// A demo sells on replicas that run already, and leaves them running.
func TestADemoOnExternalReplicas(t *testing.T) {
	l := startLabOf(t, servers.Choice{Mode: servers.Embedded, Redis: servers.None, Etcd: servers.None}, cluster.Options{Replicas: 2})
	there := l.cluster.Client()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(there.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := []string{"--admin-url", there.AdminURL, "--token-file", token}
	report := filepath.Join(t.TempDir(), "demo.json")
	status, out, errOut := stocklab(append(admin, "demo", "--url", there.URL, "--strategies", "sql-conditional,mutex",
		"--stock", "200", "--clients", "8", "--loops", "40", "--json", report)...)
	if status != cli.OK {
		t.Fatalf("exit status %d: %s%s", status, out, errOut)
	}
	for _, run := range cmdtest.ReadReport(t, report).Runs {
		if run.Replicas != 2 || run.ExpectedClean != (run.Strategy == "sql-conditional") {
			t.Errorf("%s on %d replicas, expected clean: %v; there are 2", run.Strategy, run.Replicas, run.ExpectedClean)
		}
	}
	names, err := there.Replicas(t.Context())
	if slices.Sort(names); err != nil || !slices.Equal(names, []string{"replica-1", "replica-2"}) {
		t.Errorf("after it %v answer (%v), want both replicas", names, err)
	}
}

// A buyer branches on the type of a problem, from a replica or from the balancer.
func TestTheBalancerAnswersInProblems(t *testing.T) {
	cmdtest.NeedLocal(t)
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
