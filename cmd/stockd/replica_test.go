package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/glebarez/go-sqlite" // what a replica has left in its database is read

	"github.com/stockd/stockd/internal/lab/client"
)

// replica is a stockd serve on a SQLite of its own, with goods 1 of which there
// are 1,000.
type replica struct {
	client.Client

	process *exec.Cmd
	log     *syncBuffer
	dsn     string
}

const ownersToken = "the owner's own token"

// startReplica starts one with further flags, and returns when it is ready.
func startReplica(t *testing.T, flags ...string) replica {
	t.Helper()
	r := startReplicaWith(t, nil, flags...)
	if err := r.CreateGoods(t.Context(), 1, 1000); err != nil {
		t.Fatal(err)
	}
	return r
}

// startReplicaWith starts one with further variables and flags, and without goods.
func startReplicaWith(t *testing.T, env []string, flags ...string) replica {
	t.Helper()
	r := replica{log: &syncBuffer{}, dsn: filepath.Join(t.TempDir(), "stockd.db")}
	flags = append([]string{"serve", "--http-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, flags...)
	env = append([]string{"STOCKD_DATABASE_DRIVER=sqlite", "STOCKD_DATABASE_DSN=" + r.dsn}, env...)
	r.process = exec.Command(os.Args[0], flags...)
	r.process.Env = slices.Concat(environment(), env, []string{"STOCKD_ADMIN_TOKEN=" + ownersToken})
	r.process.Stderr = r.log
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.process.ProcessState == nil {
			_ = r.process.Process.Kill() // it may be gone
			_ = r.process.Wait()         // it was killed
		}
		if t.Failed() {
			t.Log(r.log.text())
		}
	})
	listening := regexp.MustCompile(`address"?[=:]"?(127\.0\.0\.1:\d+)`)
	await(t, "two listeners", 20*time.Second, func() bool { return len(listening.FindAllString(r.log.text(), -1)) == 2 })
	found := listening.FindAllStringSubmatch(r.log.text(), -1)
	r.Client = client.Client{URL: "http://" + found[0][1], AdminURL: "http://" + found[1][1], Token: ownersToken}
	return r
}

// host is the address of the buyers' listener.
func (r replica) host() string { return strings.TrimPrefix(r.URL, "http://") }

// terminate asks the replica to stop.
func (r replica) terminate(t *testing.T) {
	t.Helper()
	if err := r.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// exit waits for the end of the replica, and returns its status.
func (r replica) exit(t *testing.T) int {
	t.Helper()
	_ = r.process.Wait() // the status tells
	return r.process.ProcessState.ExitCode()
}

// locksLeft counts the names that sql-insert-lock has left behind.
func (r replica) locksLeft(t *testing.T) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", r.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // it was only read
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM record_lock").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// heard is what a request was answered with.
type heard struct {
	status int
	header http.Header
	kind   string // the last part of the problem's type
	text   string
	close  bool
}

// do sends a request to its end; an error is a heard without a status.
func do(r *http.Request) heard {
	response, err := (&http.Client{Timeout: 20 * time.Second}).Do(r)
	if err != nil {
		return heard{text: err.Error()}
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return heard{text: err.Error()}
	}
	var body struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(content, &body); err != nil {
		return heard{status: response.StatusCode, text: fmt.Sprintf("no JSON: %q", content)}
	}
	return heard{
		status: response.StatusCode, header: response.Header, text: string(content), close: response.Close,
		kind: strings.TrimPrefix(body.Type, "urn:stockd:problem:"),
	}
}

func ask(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// buy buys one unit.
func (r replica) buy(t *testing.T, query string) heard {
	t.Helper()
	return do(ask(t, http.MethodPost, r.URL+"/deduct?"+query))
}

// buying is the same beside what the test does meanwhile.
func (r replica) buying(t *testing.T, query string) <-chan heard {
	t.Helper()
	request, answered := ask(t, http.MethodPost, r.URL+"/deduct?"+query), make(chan heard, 1)
	go func() { answered <- do(request) }()
	return answered
}

// sells fails where a purchase is not served as ever. Its buyer is a new one: a
// connection that is kept may be closed for idleness in the moment in which it is used.
func (r replica) sells(t *testing.T, when string) {
	t.Helper()
	start, request := time.Now(), ask(t, http.MethodPost, r.URL+"/deduct?goods_id=1")
	request.Close = true
	if got := do(request); got.status != http.StatusOK || time.Since(start) > 2*time.Second {
		t.Errorf("%s a purchase is answered with %d %s after %s", when, got.status, got.text, time.Since(start))
	}
}
