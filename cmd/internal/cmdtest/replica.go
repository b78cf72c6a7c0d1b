package cmdtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
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

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/testlog"
)

// Replica is a process of the program under test that runs a replica on a SQLite of its
// own, with 1,000 units of item 1.
type Replica struct {
	shop.Client

	Process *exec.Cmd
	Log     *testlog.Lines
	DSN     string
}

// Token is that of its admin API.
const Token = "the owner's own token"

// StartReplica executes the test binary with a command and flags, and returns when the
// replica serves.
func StartReplica(t *testing.T, command string, flags ...string) Replica {
	t.Helper()
	r := StartEmpty(t, command, nil, flags...)
	must.Do(t, r.CreateGoods(t.Context(), 1, 1000))
	return r
}

// StartEmpty is StartReplica with further variables, and without an item.
func StartEmpty(t *testing.T, command string, env []string, flags ...string) Replica {
	t.Helper()
	return startEmpty(t, []string{os.Args[0]}, command, env, flags...)
}

// StartWithFiles is StartEmpty of a replica that may have so many files open.
func StartWithFiles(t *testing.T, command string, files int) Replica {
	t.Helper()
	return startEmpty(t, []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files), os.Args[0]}, command, nil)
}

func startEmpty(t *testing.T, program []string, command string, env []string, flags ...string) Replica {
	t.Helper()
	r := Replica{Log: &testlog.Lines{}, DSN: filepath.Join(t.TempDir(), "stockd.db")}
	flags = append([]string{command, "--http-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, flags...)
	env = append([]string{"STOCKD_DATABASE_DRIVER=sqlite", "STOCKD_DATABASE_DSN=" + r.DSN}, env...)
	flags = append(program, flags...)
	r.Process = exec.Command(flags[0], flags[1:]...) //nolint:gosec // the test binary itself
	r.Process.Env = slices.Concat(Environment(), env, []string{"STOCKD_ADMIN_TOKEN=" + Token})
	r.Process.Stderr = r.Log
	must.Do(t, r.Process.Start())
	t.Cleanup(func() {
		if r.Process.ProcessState == nil {
			_ = r.Process.Process.Kill() // it may be gone
			_ = r.Process.Wait()         // it was killed
		}
		if t.Failed() {
			t.Log(r.Log.String())
		}
	})
	listening := regexp.MustCompile(`address"?[=:]"?(127\.0\.0\.1:\d+)`)
	labtest.Await(t, "two listeners", 20*time.Second, func() bool { return len(listening.FindAllString(r.Log.String(), -1)) == 2 })
	found := listening.FindAllStringSubmatch(r.Log.String(), -1)
	r.Client = shop.Client{URL: "http://" + found[0][1], AdminURL: "http://" + found[1][1], Token: Token}
	return r
}

// Host is the address of the public API.
func (r Replica) Host() string { return strings.TrimPrefix(r.URL, "http://") }

// Terminate asks the replica to stop.
func (r Replica) Terminate(t *testing.T) {
	t.Helper()
	must.Do(t, r.Process.Process.Signal(syscall.SIGTERM))
}

// Exit waits for the end of the replica, and returns its status.
func (r Replica) Exit(t *testing.T) int {
	t.Helper()
	_ = r.Process.Wait() // the status tells
	return r.Process.ProcessState.ExitCode()
}

// Answer is the answer to a request.
type Answer struct {
	Status int
	Header http.Header
	Kind   string // the last part of the problem's type
	Text   string
	Close  bool
}

// Do sends a request to its end; an error is an Answer without a status.
func Do(r *http.Request) Answer {
	response, err := (&http.Client{Timeout: 20 * time.Second}).Do(r) //nolint:gosec // a replica of the test
	if err != nil {
		return Answer{Text: err.Error()}
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return Answer{Text: err.Error()}
	}
	var body struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(content, &body); err != nil {
		return Answer{Status: response.StatusCode, Text: fmt.Sprintf("no JSON: %q", content)}
	}
	return Answer{
		Status: response.StatusCode, Header: response.Header, Text: string(content), Close: response.Close,
		Kind: strings.TrimPrefix(body.Type, "urn:stockd:problem:"),
	}
}

// Ask makes a request without a body.
func Ask(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, http.NoBody))(t)
	return r
}

// Buy buys one unit.
func (r Replica) Buy(t *testing.T, query string) Answer {
	t.Helper()
	return Do(Ask(t, http.MethodPost, r.URL+"/deduct?"+query))
}

// Sells fails the test where a purchase is not served as usual. It has a connection of its
// own: one that is kept may be closed as idle while it is used.
func (r Replica) Sells(t *testing.T, when string) {
	t.Helper()
	start, request := time.Now(), Ask(t, http.MethodPost, r.URL+"/deduct?goods_id=1")
	request.Close = true
	if got := Do(request); got.Status != http.StatusOK || time.Since(start) > 2*time.Second {
		t.Errorf("%s a purchase is answered with %d %s after %s", when, got.Status, got.Text, time.Since(start))
	}
}

// Send opens a connection and writes a text to it.
func (r Replica) Send(t *testing.T, text string) net.Conn {
	t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", r.Host()))(t)
	must.Get(io.WriteString(conn, text))(t)
	return conn
}
