package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

// Commands for servers that run already: what a container without a shell is
// started, checked and stocked by.
func TestCommandsForARunningReplica(t *testing.T) {
	r := startReplicaWith(t, nil)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(r.Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	owner := []string{"--admin-url", r.AdminURL, "--token-file", token}

	t.Run("a ready replica is healthy, and one that is not there is not", func(t *testing.T) {
		_, port, _ := strings.Cut(strings.TrimPrefix(r.URL, "http://"), ":")
		if status, _, errOut := stockd("healthcheck", "--http-listen", "0.0.0.0:"+port); status != cli.OK {
			t.Errorf("exit status %d, want 0: %s", status, errOut)
		}
		if status, _, errOut := stockd("healthcheck", "--http-listen", "127.0.0.1:1"); status != cli.Failure || !strings.Contains(errOut, "/readyz") {
			t.Errorf("exit status %d, %q; want %d with what was asked", status, errOut, cli.Failure)
		}
	})
	t.Run("an item is put on sale once", func(t *testing.T) {
		for _, c := range []struct{ units, want string }{
			{"7", "goods 1 is on sale with 7 units\n"},
			{"9", "goods 1 was on sale already, and has 7 units left\n"},
		} {
			status, out, errOut := stockd(append(owner, "stock", "--units", c.units)...)
			if status != cli.OK || out != c.want {
				t.Errorf("exit status %d, %q (%s); want %q", status, out, errOut, c.want)
			}
		}
	})
	t.Run("an item is put on sale with a limit per buyer", func(t *testing.T) {
		status, _, errOut := stockd(append(owner, "stock", "--goods", "2", "--per-user", "3")...)
		if found, err := r.Goods(t.Context(), 2); status != cli.OK || err != nil || found.PerUser != 3 {
			t.Errorf("exit status %d (%s), and goods 2 are %+v (%v), want a limit of 3", status, errOut, found, err)
		}
	})
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
