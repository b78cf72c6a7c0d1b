package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// drip sends a byte now and then, until the other end has had enough. It returns
// when that was, and what was answered.
func drip(conn net.Conn, patience time.Duration) (took time.Duration, answer string, err error) {
	start, answered := time.Now(), make(chan string, 1)
	go func() {
		content, _ := io.ReadAll(conn) // a connection that is cut is what is waited for
		answered <- string(content)
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case answer := <-answered:
			return time.Since(start), answer, nil
		case <-tick.C:
			_, _ = io.WriteString(conn, "x") // it fails once the connection is cut
		}
		if time.Since(start) > patience {
			return 0, "", fmt.Errorf("still connected after %s", patience)
		}
	}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	r := startReplica(t, impatient()...)
	for name, c := range map[string]struct{ head, want string }{
		"a slow header": {"POST /deduct?goods_id=1 HTTP/1.1\r\nHost: shop\r\nX-Slow: ", ""},
		"a slow body": {
			"POST /deduct?goods_id=1 HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n{",
			"urn:stockd:problem:request-timeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var slow sync.WaitGroup
			for range 50 {
				conn := r.Send(t, c.head)
				slow.Go(func() {
					defer conn.Close() //nolint:errcheck // the other end has cut it
					took, answer, err := drip(conn, 10*time.Second)
					if err != nil || took > 3*time.Second || !strings.Contains(answer, c.want) {
						t.Errorf("cut off after %s with %q: %v", took, answer, err)
					}
				})
			}
			r.Sells(t, "beside slow clients")
			slow.Wait()
		})
	}
	r.Sells(t, "after slow clients")
}

// What is too large is rejected before it is all here, and takes no memory.
func TestLargeBodiesAreRefused(t *testing.T) {
	r := startReplica(t)
	before := r.memory(t)
	body := bytes.Repeat([]byte(`{"goods_id": 1} `), 10<<20/16)
	var senders sync.WaitGroup
	for i := range 20 {
		senders.Go(func() {
			var content io.Reader = bytes.NewReader(body)
			if i%2 == 1 {
				content = io.MultiReader(content) // without a Content-Length
			}
			request := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct")
			request.Body = io.NopCloser(content)
			request.Header.Set("Content-Type", "application/json")
			if i%2 == 0 {
				request.ContentLength = int64(len(body))
			}
			// The replica hangs up in the middle, so that the answer may be lost.
			if got := cmdtest.Do(request); got.Status != 0 && (got.Status != http.StatusRequestEntityTooLarge || got.Kind != "body-too-large") {
				t.Errorf("10 MiB are answered with %d %s", got.Status, got.Text)
			}
		})
	}
	senders.Wait()
	if grown := r.memory(t) - before; grown > 48<<20 {
		t.Errorf("20 bodies of 10 MiB took %d MiB of memory", grown>>20)
	}
	// A client that sends and then reads gets the reason at once.
	start := time.Now()
	conn := r.Send(t, "POST /deduct HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: 10485760\r\n\r\n"+string(body[:32<<10]))
	defer conn.Close() //nolint:errcheck // it has been read
	must.Do(t, conn.SetReadDeadline(start.Add(10*time.Second)))
	response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	defer response.Body.Close() //nolint:errcheck // only its status was wanted
	should.Be(t, response.StatusCode, http.StatusRequestEntityTooLarge, "10 MiB are answered", response.Status)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s to say so", took)
	}
	r.Sells(t, "after large bodies")
}

// memory is the most resident memory that the replica has had, in bytes.
func (r process) memory(t *testing.T) int64 {
	t.Helper()
	return must.Get(servers.Resident(r.Process.Process.Pid, servers.PeakMemory))(t)
}

// fragments are of languages that something behind a field might speak.
func fragments() []string {
	return []string{
		`1'; DROP TABLE tb_goods_stock; --`, `1 OR 1=1`, `' UNION SELECT * FROM tb_stock_ledger --`, `1); DELETE FROM tb_stock_ledger; --`,
		`"><script>alert(1)</script>`, `{{7*7}}${7*7}`, `return redis.call('FLUSHALL')`, `../../etc/passwd`, "\x00\x01", "\r\nX-Injected: yes", `%s%n%d`, `{"$gt": ""}`,
	}
}

// Whatever stands in a field, of a buyer or of the admin, in a body, a header or a path, is a value: it is taken as
// one or rejected, and runs nowhere.
func TestFragmentsInEveryField(t *testing.T) {
	r := startReplica(t)
	sold := int64(0)
	for _, fragment := range fragments() {
		text, path := url.QueryEscape(fragment), url.PathEscape(fragment)
		var requests []*http.Request
		for _, field := range []string{"goods_id", "quantity", "user_id", "strategy", "group", "fence", "durable", "unheard_of"} {
			form := url.Values{"goods_id": {"1"}}
			form.Set(field, fragment)
			requests = append(requests, cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?"+form.Encode()))
		}
		for _, header := range []string{"Idempotency-Key", "X-Request-ID"} {
			if !strings.ContainsAny(fragment, "\r\n\x00\x01") { // HTTP itself has no room for it
				request := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?goods_id=1")
				request.Header.Set(header, fragment)
				requests = append(requests, request)
			}
		}
		for _, c := range []struct{ method, target, form string }{
			{http.MethodPost, "/goods", "goods_id=" + text + "&stock=1"},
			{http.MethodPost, "/goods", "goods_id=2&stock=" + text},
			{http.MethodPost, "/goods", "goods_id=2&stock=1&" + text + "=1"},
			{http.MethodPost, "/goods/1/restock", "quantity=" + text},
			{http.MethodPost, "/goods/" + path + "/restock", "quantity=1"},
			{http.MethodGet, "/goods/" + path, ""},
			{http.MethodGet, "/goods/" + path + "/audit", ""},
			{http.MethodGet, "/goods/1/audit?full=" + text, ""},
		} {
			request := r.owners(t, c.method, c.target, cmdtest.Token)
			request.Body = io.NopCloser(strings.NewReader(c.form))
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			requests = append(requests, request)
		}
		for _, request := range requests {
			got := cmdtest.Do(request)
			what := fmt.Sprintf("%s %s %v", request.Method, request.URL, request.Header)
			switch {
			case got.Status == http.StatusOK && request.URL.Path == "/deduct":
				sold++
			case got.Status < 400 || got.Status >= 500 || got.Header.Get("X-Content-Type-Options") != "nosniff":
				t.Errorf("%s is answered with %d %s", what, got.Status, got.Text)
			}
			if strings.Contains(got.Text, "<script>") || got.Header.Get("X-Injected") != "" || strings.Contains(got.Header.Get("X-Request-ID"), "<") {
				t.Errorf("%s is sent back as it is: %v %s", what, got.Header, got.Text)
			}
		}
	}
	if audit, err := r.AuditInFull(t.Context(), 1); err != nil || audit.Sold != sold || audit.Initial != 1000 || audit.Stock != 1000-sold || sold == 0 {
		t.Errorf("%d were sold, and the audit is %+v (%v)", sold, audit, err)
	}
	if _, err := r.Goods(t.Context(), 2); err == nil {
		t.Error("goods 2 were created")
	}
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
	return list
}

// holdsOff has a replica keep so many idle connections, which must not keep it
// from selling, nor take more than so many bytes; it gets rid of them all.
func (r process) holdsOff(t *testing.T, connections int, memory int64) {
	t.Helper()
	r.Sells(t, "before idle connections")
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
	if want := `stockd_connections_rejected_total{by="connections",listener="public"} 5` + "\n"; !strings.Contains(r.scrape(t, http.StatusOK, cmdtest.Token), want) {
		t.Errorf("the metrics lack %s", want)
	}
	must.Do(t, first.Close())
	cmdtest.Await(t, "room", 5*time.Second, func() bool {
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
	cmdtest.Await(t, "nginx", 10*time.Second, func() bool {
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

// Tokens are replaced in their file, and the replica goes on.
func TestTokensAreReplacedWithoutARestart(t *testing.T) {
	const alices, bobs = "0123456789abcdef-alice", "0123456789abcdef-bob"
	file := filepath.Join(t.TempDir(), "tokens")
	overwrite(t, file, "alice "+alices+"\n")
	r := startReplica(t, "--admin-tokens-file="+file)
	status := func(token string) int { return cmdtest.Do(r.owners(t, http.MethodDelete, "/nowhere", token)).Status }
	if got := status(alices); got != http.StatusNotFound {
		t.Fatalf("alice is answered with %d", got)
	}
	overwrite(t, file, "# alice has left\nbob "+bobs+"\n")
	cmdtest.Await(t, "the new tokens", 10*time.Second, func() bool { return r.Log.Contains("admin tokens reloaded") })
	should.Be(t, status(bobs), http.StatusNotFound, "bob is answered with")
	should.Be(t, status(alices), http.StatusUnauthorized, "alice, who has left")
	overwrite(t, file, "bob\n")
	cmdtest.Await(t, "a warning", 10*time.Second, func() bool { return r.Log.Contains(file + ":1") })
	should.Be(t, status(bobs), http.StatusNotFound, "with a broken file bob")
	if !r.Log.Contains("token=bob") || r.Log.Contains(bobs) {
		t.Error("the log lacks bob, or has the token of bob")
	}
}
