package shop

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// What a replica has of its own wins over what all have, and what the cluster says of it over both. None of it
// is of the environment of this process.
func TestTheEnvironmentOfAReplica(t *testing.T) {
	c := &Cluster{token: "secret", shop: &Shop{Servers: &servers.Backends{Database: &servers.Database{}}}, asked: Replicas{
		Processors: 3, Servers: []string{"STOCKD_A=servers"}, Env: []string{"STOCKD_A=all"},
		Own: map[int][]string{1: {"STOCKD_A=another"}, 2: {"STOCKD_A=own"}},
	}}
	r := &Replica{Name: "replica-2", URL: "http://127.0.0.1:1", AdminURL: "http://127.0.0.1:2", number: 2, cluster: c, history: "file"}
	want := []string{
		"STOCKD_LAB_ENABLED=true", "STOCKD_LAB_HISTORY=file", "STOCKD_A=servers", "STOCKD_A=all", "STOCKD_A=own", "GOMAXPROCS=3",
		"STOCKD_REPLICA=replica-2", "STOCKD_HTTP_LISTEN=127.0.0.1:1", "STOCKD_ADMIN_LISTEN=127.0.0.1:2", "STOCKD_ADMIN_TOKEN=secret",
	}
	if got := r.env(); !slices.Equal(got, want) {
		t.Errorf("it gets %q, want %q", got, want)
	}
	r.history = ""
	if got := r.env(); !slices.Equal(got, want[2:]) {
		t.Errorf("without the lab it gets %q, want %q", got, want[2:])
	}
	t.Setenv("STOCKD_B", "1")
	t.Setenv("STOCKDTEST", "1")
	if got := outside(); !slices.Contains(got, "STOCKDTEST=1") || slices.ContainsFunc(got, func(one string) bool { return strings.HasPrefix(one, "STOCKD_") }) {
		t.Error("of this process it gets a variable of a stockd, or lacks another one")
	}
}

func TestReplicasShareTheProcessors(t *testing.T) {
	n := runtime.NumCPU()
	for _, c := range []struct {
		options  Replicas
		embedded bool
		want     int
	}{
		{Replicas{Count: n + 1}, false, 1},
		{Replicas{Count: n + 1}, true, 2},
		{Replicas{Count: 1}, false, max(1, n/2)},
		{Replicas{Count: n + 1, Processors: 1}, true, 1},
	} {
		should.Be(t, c.options.processors(c.embedded), c.want, "each has … of …", c.options, n)
	}
}

// A replica that has left keeps its number: what it recorded is not taken for another one's. The balancer
// knows who came and who went.
func TestNoTwoReplicasHaveTheSameName(t *testing.T) {
	var changes []string
	c := &Cluster{folder: t.TempDir(), asked: Replicas{Lab: true}}
	c.rebalance = func(_ context.Context, joined, left string) error {
		changes = append(changes, fmt.Sprintf("%s joined, %s left, %d are there", joined, left, len(c.Replicas)))
		return nil
	}
	for range 2 {
		c.Replicas = append(c.Replicas, c.Another())
	}
	last := c.Replicas[1]
	must.Do(t, c.Leave(t.Context(), last))
	next := c.Another()
	must.Do(t, c.Join(t.Context(), next))
	if next.Name != "replica-3" || next.Log() == last.Log() || next.History() == last.History() || next.number != 3 {
		t.Errorf("after %s comes %s, number %d, with %s and %s", last.Name, next.Name, next.number, next.Log(), next.History())
	}
	if want := []string{" joined, replica-2 left, 1 are there", "replica-3 joined,  left, 2 are there"}; !slices.Equal(changes, want) {
		t.Errorf("the balancer gets %q, want %q", changes, want)
	}
}
