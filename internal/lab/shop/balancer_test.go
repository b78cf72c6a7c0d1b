package shop

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func TestTheProxyClosesASpareConnectionBeforeAReplicaDoes(t *testing.T) {
	c := must.Get(config.Load("", nil))(t)
	if idleWithin >= c.HTTP.ReadTimeout {
		t.Errorf("the proxy keeps a connection that it does not use for %s, and a replica for %s", idleWithin, c.HTTP.ReadTimeout)
	}
}

// While nginx waits for a port that another process has taken, that one answers.
func TestAnotherListenerIsNotTakenForNginx(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	folder, address := t.TempDir(), listener.Addr().String()
	const pid = 42
	if err := nginxListens(t.Context(), folder, address, pid); err == nil {
		t.Error("without a process id it is taken for ours")
	}
	for its, want := range map[string]bool{"7\n": false, "42\n": true} {
		must.Do(t, os.WriteFile(filepath.Join(folder, "nginx.pid"), []byte(its), 0o600))
		should.Be(t, nginxListens(t.Context(), folder, address, pid) == nil, want, "it listens with the process id", its)
	}
	must.Do(t, listener.Close())
	if err := nginxListens(t.Context(), folder, address, pid); err == nil {
		t.Error("it listens no more, and is taken for ready")
	}
}

// stub is a replica that answers with its name, or ends the connection instead.
func stub(t *testing.T, name string, breaks bool, asked *atomic.Int64) (*Replica, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if breaks {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, name) //nolint:errcheck // the test notices
	}))
	t.Cleanup(server.Close)
	return &Replica{Name: name, URL: server.URL}, server
}

// answers counts what is answered to so many purchases without a body.
func answers(t *testing.T, c *Cluster, purchases int) map[string]int {
	t.Helper()
	got := make(map[string]int)
	for range purchases {
		response, err := http.Post(c.URL, "", http.NoBody)
		if err != nil {
			t.Error(err)
			continue
		}
		text := make([]byte, 1)
		if _, _ = response.Body.Read(text); response.StatusCode != http.StatusOK {
			text = []byte(response.Status)
		}
		got[string(text)]++
		_ = response.Body.Close() // it was read
	}
	return got
}

// The proxy stands for nginx: it takes turns, leaves out what does not listen, and sends nothing twice.
func TestTheProxyTakesTurnsAndSendsNothingTwice(t *testing.T) {
	var asked atomic.Int64
	a, _ := stub(t, "a", false, &asked)
	b, downs := stub(t, "b", false, &asked)
	breaks, _ := stub(t, "c", true, &asked)
	c := &Cluster{Replicas: []*Replica{a, b}}
	must.Do(t, c.startProxy())
	want := func(what string, want map[string]int) {
		t.Helper()
		asked.Store(0)
		if got := answers(t, c, 4); !maps.Equal(got, want) || asked.Load() > 4 {
			t.Errorf("%s: the answers are %v to %d requests, want %v to 4", what, got, asked.Load(), want)
		}
	}
	want("two replicas", map[string]int{"a": 2, "b": 2})
	downs.Close()
	want("one is down", map[string]int{"a": 4})
	must.Do(t, c.Leave(t.Context(), b))
	must.Do(t, c.Join(t.Context(), breaks))
	want("one breaks off", map[string]int{"a": 2, "502 Bad Gateway": 2})
	should.Do(t, c.Close(t.Context()))
	if _, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "http://")); err == nil {
		t.Error("a proxy that was closed listens")
	}
}

// Each of many requests at once asks every replica before it fails, also where others take turns meanwhile.
func TestTheProxyPassesOnARequestToEveryReplica(t *testing.T) {
	const clients, each = 20, 25
	var asked, failed atomic.Int64
	a, _ := stub(t, "a", false, &asked)
	b, downs := stub(t, "b", false, &asked)
	c := &Cluster{Replicas: []*Replica{a, b}}
	must.Do(t, c.startProxy())
	downs.Close()
	var crowd sync.WaitGroup
	for range clients {
		crowd.Go(func() { failed.Add(each - int64(answers(t, c, each)["a"])) })
	}
	crowd.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d requests failed beside a replica that answers", failed.Load(), clients*each)
	}
	should.Do(t, c.Close(t.Context()))
}

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
	should.Equal(t, r.env(), want, "it gets")
	r.history = ""
	should.Equal(t, r.env(), want[2:], "without the lab it gets")
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
	should.Equal(t, changes, []string{" joined, replica-2 left, 1 are there", "replica-3 joined,  left, 2 are there"}, "the balancer gets")
}
