package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// A password that is wrong is seen in the log of the replica when it starts, and
// is not shown there.
func TestAReplicaSaysAtItsStartWhichBackendItCannotReach(t *testing.T) {
	cmdtest.NeedRedis(t)
	k := labtest.StartSupervisor(t)
	server := cmdtest.Own(t, "redis", func(ctx context.Context) (*servers.Redis, error) { return servers.StartRedis(ctx, k, servers.Local) })
	const guess = "a-guess-at-the-password"
	r := startReplica(t, "--redis-addresses="+server.Address, "--redis-password="+guess)
	cmdtest.Await(t, "the log to name it", 5*time.Second, func() bool { return r.Log.Contains("backend does not answer") })
	if text := r.Log.Text(); !cmdtest.ContainsAll(text, "backend=redis", "WRONGPASS") || strings.Contains(text, guess) {
		t.Errorf("the log says\n%s", text)
	}
	if ready := cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/readyz")); ready.Status != http.StatusOK || !strings.Contains(ready.Text, "redis does not answer") {
		t.Errorf("/readyz is answered with %d %s", ready.Status, ready.Text)
	}
	if sold := cmdtest.Do(cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?goods_id=1&strategy=redsync")); sold.Status != http.StatusServiceUnavailable || sold.Kind != "backend-unavailable" {
		t.Errorf("a purchase is answered with %d %s", sold.Status, sold.Text)
	}
}
