package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

// Every secret is set and every backend is down: whatever fails, and however it says
// so, says nothing of a secret.
func TestTheLogNamesRequestsAndTellsNoSecret(t *testing.T) {
	secrets := map[string]string{"admin": cmdtest.Token}
	keys := []string{"redis-password", "redlock-password", "zookeeper-auth", "etcd-password", "database-password"}
	flags := slices.Grow([]string{
		"--log-level=debug", "--log-format=json", "--lock-wait=300ms", "--redis-timeout=100ms", "--trace-sample=1",
		"--trace-endpoint=http://127.0.0.1:1", "--redis-addresses=127.0.0.1:1", "--redis-username=stockd",
		"--redlock-addresses=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--zookeeper-addresses=127.0.0.1:1",
		"--etcd-endpoints=http://127.0.0.1:1", "--etcd-username=stockd",
	}, len(keys))
	folder := t.TempDir()
	for _, key := range keys {
		secrets[key] = "stockd:secret-of-" + key
		path := filepath.Join(folder, key)
		if err := os.WriteFile(path, []byte(secrets[key]), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--"+key+"-file="+path)
	}
	r := startReplica(t, flags...)
	known, err := r.Strategies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const bought = "bought-by-name-"
	for _, s := range known {
		request := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?goods_id=1&strategy="+s.Name)
		request.Header.Set("X-Request-ID", bought+s.Name)
		cmdtest.Do(request)
	}
	for _, token := range []string{cmdtest.Token, "a-wrong-token-of-a-stranger"} {
		request := cmdtest.Ask(t, http.MethodPost, r.AdminURL+"/goods?goods_id=none")
		request.Header.Set("Authorization", "Bearer "+token)
		cmdtest.Do(request)
	}
	secrets["wrong token"] = "a-wrong-token-of-a-stranger"
	r.Terminate(t)
	r.Exit(t)

	log := r.Log.Text()
	for name, secret := range secrets {
		if strings.Contains(log, strings.TrimPrefix(secret, "stockd:")) {
			t.Errorf("the log tells the secret %s", name)
		}
	}
	lines := make(map[string]int)
	failures := 0
	for line := range strings.Lines(log) {
		var said struct {
			Message string `json:"msg"`
			Request string `json:"request_id"`
			Trace   string `json:"trace_id"`
			Path    string `json:"path"`
		}
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Errorf("a line is no JSON: %s", line)
		}
		if said.Path != "" && (said.Request == "" || said.Trace == "") {
			t.Errorf("a line of a request does not tell which: %s", line)
		}
		if said.Message == "request failed" {
			failures++
		}
		lines[said.Request]++
	}
	for _, s := range known {
		if lines[bought+s.Name] == 0 {
			t.Errorf("the log does not name the purchase by %s", s.Name)
		}
	}
	if failures < 10 {
		t.Errorf("only %d requests failed, and every backend was down", failures)
	}
}
