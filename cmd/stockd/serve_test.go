package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/config"
)

// What a newcomer does without a demo: serve, create, buy, bench.
func TestServeAndBench(t *testing.T) {
	folder := t.TempDir()
	replica := exec.Command(os.Args[0], "serve", "--http-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
		"--log-format=json", "--database-dsn", filepath.Join(folder, "stockd.db"))
	const token = "a token of sixteen"
	replica.Env = append(cmdtest.Environment(), "STOCKD_ADMIN_TOKEN="+token)
	log, err := replica.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	public, admin := listening(t, log)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, admin+"/goods", bytes.NewBufferString("goods_id=1&stock=300"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+token)
	if response, err := http.DefaultClient.Do(request); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("create: %v, %v", response, err)
	}
	path := filepath.Join(folder, "bench.json")
	for _, args := range [][]string{
		{"--requests", "200", "--clients", "8"},
		{"--duration", "500ms", "--rate", "200", "--clients", "8"},
	} {
		status, out, errOut := stockd(append([]string{"bench", "--url", public, "--strategy", "sql-conditional", "--json", path}, args...)...)
		if status != cli.OK {
			t.Fatalf("bench %v: exit status %d\n%s%s", args, status, out, errOut)
		}
		run := cmdtest.ReadReport(t, path).Runs[0]
		if !run.Clean || run.Requests < 90 || run.Answered == 0 || run.P99 <= 0 || run.Replicas != 1 {
			t.Errorf("bench %v: %+v", args, run)
		}
	}
	status, _, errOut := stockd("bench", "--url", public, "--strategy", "hope")
	if status != cli.Usage || !strings.Contains(errOut, "sql-conditional") {
		t.Errorf("bench of an unknown strategy: exit status %d, %q", status, errOut)
	}
	status, _, errOut = stockd("bench", "--url", public, "--strategy", "redis-lua")
	if status != cli.Failure || errOut != "stockd: redis-lua cannot sell here: redis: not configured\n" {
		t.Errorf("bench of a strategy without its server: exit status %d, %q", status, errOut)
	}
	status, _, errOut = stockd("bench", "--url", public, "--goods", "7")
	if status != cli.Failure || !strings.HasPrefix(errOut, "stockd: Unknown item") {
		t.Errorf("bench of unknown goods: exit status %d, %q", status, errOut)
	}
	if err := replica.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := replica.Wait(); err != nil {
		t.Errorf("the replica stopped with %v", err)
	}
}

// The first interrupt lets a replica drain, and a second one ends the process.
func TestASecondInterruptEndsAReplica(t *testing.T) {
	r := startReplica(t, "--http-drain-delay=1h")
	interrupt := func() error { return r.Process.Process.Signal(syscall.SIGINT) }
	if err := interrupt(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Await(t, "the drain", 20*time.Second, func() bool {
		return cmdtest.Do(cmdtest.Ask(t, http.MethodGet, r.URL+"/readyz")).Status == http.StatusServiceUnavailable
	})
	go func() { // the first one is still caught for a moment after the drain has begun
		for interrupt() == nil {
			time.Sleep(20 * time.Millisecond)
		}
	}()
	defer time.AfterFunc(20*time.Second, func() { _ = r.Process.Process.Kill() }).Stop() // it may be gone
	r.Exit(t)
	if status, ok := r.Process.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("it ends with %v", r.Process.ProcessState)
	}
}

// A person at a terminal reads where it sells, through what, and what to try next.
func TestAReplicaGreetsATerminal(t *testing.T) {
	c := config.Config{Deduct: config.Deduct{Strategy: "redis-stock"}}
	text := greet(reachable("http://[::]:8080"), reachable("https://10.0.0.5:8081"), c)
	if !cmdtest.ContainsAll(text, "sells at http://127.0.0.1:8080,", c.Deduct.Strategy, "is at https://10.0.0.5:8081.",
		"https://10.0.0.5:8081/goods\n", "http://127.0.0.1:8080/deduct\n") {
		t.Errorf("it says %s", text)
	}
	if text := greet("http://127.0.0.1:8080", "", c); !cmdtest.ContainsAll(text, "no admin API", "STOCKD_ADMIN_TOKEN") || strings.Contains(text, "curl") {
		t.Errorf("without an admin API it says %s", text)
	}
	if greeting(&cmdtest.Buffer{}, c) != nil {
		t.Error("it greets what is no terminal")
	}
}

// listening reads from the log of a replica where it listens.
func listening(t *testing.T, log io.Reader) (public, admin string) {
	t.Helper()
	decoder := json.NewDecoder(log)
	for public == "" || admin == "" {
		var line struct {
			Msg     string `json:"msg"`
			For     string `json:"for"`
			Address string `json:"address"`
		}
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		switch {
		case line.Msg == "listening" && line.For == "public":
			public = "http://" + line.Address
		case line.Msg == "listening" && line.For == "admin":
			admin = "http://" + line.Address
		}
	}
	go io.Copy(io.Discard, log) //nolint:errcheck // the rest of the log is not read
	return public, admin
}

// A replica that cannot have both of its listeners serves on none.
func TestNobodyIsServedByAReplicaThatCannotStart(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // the test is over
	t.Setenv("STOCKD_ADMIN_TOKEN", cmdtest.Token)
	status, _, errOut := stockd("serve", "--http-listen=127.0.0.1:0", "--admin-listen="+taken.Addr().String(),
		"--database-dsn", filepath.Join(t.TempDir(), "s.db"))
	if status != cli.Failure || !strings.Contains(errOut, "admin.listen: ") || strings.Contains(errOut, "msg=listening") {
		t.Errorf("exit status %d, %q; want %d without a listener that was served", status, errOut, cli.Failure)
	}
}
