package nginx_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/nginx"
)

// Of a request that was sent to no replica it is known that nothing happened. It is asked once more, for others may
// be there by now.
func TestAWriteThatWasNotSentIsBusy(t *testing.T) {
	var asked atomic.Int64
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer silent.Close()
	gone, there := servers.Loopback(1), strings.TrimPrefix(silent.URL, "http://")
	for _, c := range []struct {
		replicas            []string
		method, want, tries string
		asked               int64
	}{
		{[]string{gone, gone}, http.MethodPost, "busy", `^\S+, \S+ : \S+, \S+$`, 0},
		{[]string{gone}, http.MethodPatch, "busy", `^\S+ : \S+$`, 0},
		{[]string{gone, gone}, http.MethodGet, "backend-unavailable", ` : `, 0},
		{[]string{gone, gone, gone, there}, http.MethodPost, "outcome-unknown", `^(\S+, )*` + there + `$`, 1},
	} {
		for listener, address := range map[string]string{
			"public": startBefore(t, nginx.Limits{}, c.replicas...), "admin": startAdminBefore(t, 1000, "$upstream_addr", c.replicas...),
		} {
			asked.Store(0)
			response, body := sendTo(t, address, c.method)
			tried := response.Header.Get("X-Stockd-Upstream")
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "problem:"+c.want+`"`) || response.Header.Get("Retry-After") == "" ||
				!regexp.MustCompile(c.tries).MatchString(tried) || asked.Load() != c.asked {
				t.Errorf("%s, %s to %d: %s %q after %q, of which %d got it; want %s after %s", listener, c.method, len(c.replicas), response.Status, body, tried, asked.Load(), c.want, c.tries)
			}
		}
	}
}

// A process that hangs keeps what it has, and its kernel accepts more for it. The others sell on.
func TestAReplicaThatHangsGetsNoMoreRequests(t *testing.T) {
	for listener, before := range map[string]func(replicas ...string) string{
		"public": func(replicas ...string) string { return startBefore(t, nginx.Limits{}, replicas...) },
		"admin":  func(replicas ...string) string { return startAdminBefore(t, 1000, "", replicas...) },
	} {
		var hangs, asked atomic.Int64 // the one that gets the first request, from 1, and how many it gets
		began, resumed := make(chan struct{}), make(chan struct{})
		addresses := make([]string, 3)
		for i := range addresses {
			s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if hangs.CompareAndSwap(0, int64(i+1)) {
					close(began)
				}
				if hangs.Load() == int64(i+1) {
					asked.Add(1)
					<-resumed
				}
			}))
			defer s.Close()
			addresses[i] = strings.TrimPrefix(s.URL, "http://")
		}
		address := before(addresses...)
		var first sync.WaitGroup
		first.Go(func() { ask(t, address, "127.0.0.2", "") })
		<-began
		for range 30 {
			if asked.Load() == 1 {
				ask(t, address, "127.0.0.3", "")
			}
		}
		should.Be(t, asked.Load(), 1, listener, "the requests that a replica that hangs got")
		close(resumed)
		first.Wait()
	}
}

// unreachable is an address that lets connections wait, as one does that is gone: its queue is full.
func unreachable(t *testing.T) (address string) {
	t.Helper()
	fd := must.Get(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))(t)
	t.Cleanup(func() { _ = syscall.Close(fd) }) // nothing is accepted from it
	port := must.Get(servers.FreePort())(t)
	must.Do(t, errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)))
	for range 16 {
		conn, err := net.DialTimeout("tcp", servers.Loopback(port), 300*time.Millisecond)
		if err != nil {
			return servers.Loopback(port)
		}
		t.Cleanup(func() { _ = conn.Close() }) // it only filled the queue
	}
	t.Fatal("the queue of a listener takes 16 connections")
	return ""
}

// A container that has stopped takes its address with it. The next replica sells, and the log says what failed; what
// a client sends causes no line.
func TestAnAddressThatIsGoneIsLoggedAndPassedOver(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(accept))
	defer backend.Close()
	gone, there := unreachable(t), strings.TrimPrefix(backend.URL, "http://")
	folder, address := place(t)
	run(t, folder, nginx.Local(folder, address, []string{gone, there}, nginx.Limits{}), address, false)
	var passed []string // the names of the requests that were passed on
	for i := range 40 { // of which each begins at either
		name := fmt.Sprintf("request-%d", i)
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/deduct", http.NoBody))(t)
		request.Header.Set(requestID, name)
		response := must.Get(http.DefaultClient.Do(request))(t)
		response.Body.Close() //nolint:errcheck // only the header was wanted
		should.Be(t, response.StatusCode, http.StatusOK, name, "is answered with", response.Status)
		if strings.Contains(response.Header.Get("X-Stockd-Upstream"), ", ") {
			passed = append(passed, "request="+name+" ")
		}
	}
	for _, c := range malformed() {
		raw(t, address, c.request)
	}
	log, err := os.ReadFile(filepath.Join(folder, "failures.log"))
	must.Do(t, err)
	if len(passed) == 0 || bytes.Count(log, []byte("\n")) != len(passed) {
		t.Errorf("%d requests were passed on, and nginx logs\n%s", len(passed), log)
	}
	for _, name := range passed {
		if !bytes.Contains(log, []byte(name)) {
			t.Errorf("%s is not in\n%s", name, log)
		}
	}
}

// A list of replicas that changes while nginx waits for one of them ends the search.
func TestAWriteThatMeetsAnotherListOfReplicasIsAskedOfIt(t *testing.T) {
	t.Parallel()
	const purchase = "goods_id=1"
	backend := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != purchase {
			http.Error(w, fmt.Sprintf("%q (%v)", body, err), http.StatusBadRequest)
		}
	}))
	defer backend.Close()
	gone := unreachable(t)
	_, shared, err := net.SplitHostPort(gone)
	must.Do(t, err)
	if backend.Listener, err = net.Listen("tcp", "127.0.0.2:"+shared); err != nil {
		t.Fatal(err)
	}
	backend.Start()
	names, known := nameServer(t)
	folder, address := place(t)
	site := strings.NewReplacer(
		"proxy_connect_timeout 40ms", "proxy_connect_timeout 5s", // nginx asks for names every two seconds
		gone+" max_fails=0", "shop.test:"+shared+" max_fails=0 resolve",
		"access_log off;", "access_log off; resolver "+names+" valid=1s ipv6=off;",
	).Replace(nginx.Local(folder, address, []string{gone}, nginx.Limits{}))
	file := filepath.Join(folder, "nginx.conf")
	must.Do(t, os.WriteFile(file, []byte(site), 0o600))
	said, err := exec.Command(program(t), "-t", "-p", folder, "-c", file, "-e", "stderr").CombinedOutput()
	labtest.Need(t, "nginx 1.27.3", !bytes.Contains(said, []byte(`invalid parameter "resolve"`)), "a later one asks for names again")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	run(t, folder, site, address, true)
	<-known
	response, body := raw(t, address, "POST /deduct HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\na\r\n"+purchase+"\r\n0\r\n\r\n")
	if response.StatusCode != http.StatusOK || !strings.Contains(response.Header.Get("X-Stockd-Upstream"), gone+" : ") {
		t.Errorf("a write is answered with %s %q after %q", response.Status, body, response.Header.Get("X-Stockd-Upstream"))
	}
}

// nameServer answers the first question with 127.0.0.1, and then every one with 127.0.0.2.
func nameServer(t *testing.T) (address string, known <-chan struct{}) {
	t.Helper()
	conn := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = conn.Close() }) // ends the loop, too
	answered := make(chan struct{})
	go func() {
		question := make([]byte, 512)
		for last := byte(1); ; last = 2 {
			n, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			// An answer is the question, marked as one, and a record of its name: A, IN, for a second, of 4 bytes.
			reply := append(slices.Clone(question[:n]), 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, last)
			copy(reply[2:], []byte{0x81, 0x80, 0, 1, 0, 1})
			if _, err = conn.WriteTo(reply, from); err == nil && last == 1 {
				close(answered)
			}
		}
	}()
	return conn.LocalAddr().String(), answered
}
