package main

import (
	"bufio"
	"errors"
	"fmt"
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

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/nginx"
)

// owners is a request to the owner's listener.
func (r process) owners(t *testing.T, method, path, token string) *http.Request {
	t.Helper()
	request := cmdtest.Ask(t, method, r.AdminURL+path)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request
}

// impatient gives a client little time, so that a test of it is short.
func impatient() []string {
	return []string{"--http-read-timeout=1s", "--http-idle-timeout=1s"}
}

// memory is the most resident memory that the replica has had, in bytes.
func (r process) memory(t *testing.T) int64 {
	t.Helper()
	return must.Get(servers.Resident(r.Process.Process.Pid, servers.PeakMemory))(t)
}

// idle opens connections that then do nothing; each second one has asked before.
func (r process) idle(t *testing.T, connections int) []net.Conn {
	t.Helper()
	list := make([]net.Conn, connections)
	for i := range list {
		hello := ""
		if i%2 == 1 {
			hello = "GET /healthz HTTP/1.1\r\nHost: shop\r\n\r\n"
		}
		list[i] = r.Send(t, hello)
	}
	for i := 1; i < connections; i += 2 { // it is idle when it is answered
		response := must.Get(http.ReadResponse(bufio.NewReader(list[i]), nil))(t)
		must.Do(t, response.Body.Close())
	}
	return list
}

// holdsOff has a replica keep so many idle connections, which must not keep it
// from selling, nor take more than so many bytes; it gets rid of them all.
func (r process) holdsOff(t *testing.T, connections int, memory int64) {
	t.Helper()
	for range 20 { // what sales take is not what connections do
		r.Sells(t, "before idle connections")
	}
	before := r.memory(t)
	list := r.idle(t, connections)
	for range 20 {
		r.Sells(t, "beside idle connections")
	}
	for _, conn := range list {
		must.Do(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("an idle connection is still open: %v", err)
		}
		_ = conn.Close() // the other end has closed it
	}
	took := r.memory(t) - before
	t.Logf("%d idle connections took %d MiB", connections, took>>20)
	if most := memory * cmdtest.RaceShadow(); took > most {
		t.Errorf("%d idle connections took %d MiB, want at most %d", connections, took>>20, most>>20)
	}
	r.Sells(t, "after idle connections")
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	startReplica(t, impatient()...).holdsOff(t, 400, 8<<20)
}

// Idle connections use up the room of the public API alone, and only while they are open. One that is rejected is
// answered: it is not left to wait.
func TestConnectionsAreCapped(t *testing.T) {
	const limit = 20
	r := startReplica(t, fmt.Sprintf("--http-max-connections=%d", limit))
	serves := func(conn net.Conn) bool {
		t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the test is over
		must.Do(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection is neither served nor rejected")
		}
		if err != nil {
			return false
		}
		response.Body.Close() //nolint:errcheck // only its status was wanted
		return response.StatusCode == http.StatusOK
	}
	open := func() (net.Conn, bool) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Host())
		if err != nil {
			return nil, false
		}
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: shop\r\n\r\n") // it may be reset already
		return conn, serves(conn)
	}
	first, _ := open()
	for i := 1; i < limit; i++ {
		if _, served := open(); !served {
			t.Fatalf("connection %d is not served", i+1)
		}
	}
	for range 5 {
		if _, served := open(); served {
			t.Error("a connection beyond the limit is served")
		}
	}
	should.Contain(t, r.scrape(t, http.StatusOK, cmdtest.Token), `stockd_connections_rejected_total{by="connections",listener="public"} 5`+"\n")
	must.Do(t, first.Close())
	labtest.Await(t, "room", 5*time.Second, func() bool {
		_, served := open()
		return served
	})
}

// nginxBefore runs the nginx of this repository before a replica, until the test ends.
func nginxBefore(t *testing.T, replica string) (url string) {
	t.Helper()
	program, err := servers.Find("nginx")
	labtest.Need(t, "nginx", err == nil, "apt-get install nginx-light brings it")
	port := must.Get(servers.FreePort())(t)
	folder, address := t.TempDir(), servers.Loopback(port)
	file := filepath.Join(folder, "nginx.conf")
	overwrite(t, file, nginx.Local(folder, address, []string{replica}, nginx.Limits{}))
	process := exec.Command(program, "-p", folder, "-c", file, "-e", "stderr", "-g", "daemon off;")
	must.Do(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM) // it may be gone
		_ = process.Wait()                          // it got SIGTERM
	})
	labtest.Await(t, "nginx", 10*time.Second, func() bool {
		return cmdtest.Do(cmdtest.Ask(t, http.MethodGet, "http://"+address+"/healthz")).Status == http.StatusOK
	})
	return "http://" + address
}

// A burst of buyers has nginx open more connections than it may: each is sold a unit, or is busy, and of no purchase
// the outcome is unknown.
func TestABurstThroughNginxIsBusyAndNeverUnknown(t *testing.T) {
	const buyers = 300
	url := nginxBefore(t, startReplica(t, "--http-connection-rate=20").Host())
	answers := make(chan string, buyers)
	for range buyers {
		go func() {
			got := cmdtest.Do(cmdtest.Ask(t, http.MethodPost, url+"/deduct?goods_id=1"))
			answers <- fmt.Sprint(got.Status, got.Kind)
		}()
	}
	counts := make(map[string]int)
	for range buyers {
		counts[<-answers]++
	}
	if sold, busy := counts["200"], counts["503busy"]; sold+busy != buyers || sold == 0 || busy == 0 {
		t.Errorf("%d buyers are answered %v, want sales and busy alone", buyers, counts)
	}
}

// overwrite replaces the content of a file.
func overwrite(t *testing.T, path, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
}
