package nginx_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/nginx"
)

// start runs the real nginx before two replicas, which are one server, and returns its
// address.
func start(t *testing.T, limits nginx.Limits, replica http.HandlerFunc) (address string) {
	t.Helper()
	backend := httptest.NewServer(replica)
	t.Cleanup(backend.Close)
	served := strings.TrimPrefix(backend.URL, "http://")
	return startBefore(t, limits, served, served)
}

// startBefore runs it before the replicas at these addresses.
func startBefore(t *testing.T, limits nginx.Limits, replicas ...string) (address string) {
	t.Helper()
	folder, address := place(t)
	run(t, folder, nginx.Local(folder, address, replicas, limits), address, false)
	return address
}

// place is where an nginx keeps its files, and listens.
func place(t *testing.T) (folder, address string) {
	t.Helper()
	return t.TempDir(), servers.Loopback(must.Get(servers.FreePort())(t))
}

// program is nginx. A test without it is skipped.
func program(t *testing.T) string {
	t.Helper()
	path, err := servers.Find("nginx")
	labtest.Need(t, "nginx", err == nil, "apt-get install nginx-light brings it")
	return path
}

// run runs nginx with a configuration until the test ends, and waits for its listener. Unless it logs what
// fails, no client has caused a line of its log: a crowd would fill it.
func run(t *testing.T, folder, site, address string, logs bool) {
	t.Helper()
	file := filepath.Join(folder, "nginx.conf")
	must.Do(t, os.WriteFile(file, []byte(site), 0o600))
	process := exec.Command(program(t), "-p", folder, "-c", file, "-e", "stderr", "-g", "daemon off;")
	var log bytes.Buffer
	process.Stderr = &log
	must.Do(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM) // it may be gone
		_ = process.Wait()                          // it got SIGTERM
		if log.Len() > 0 && (t.Failed() || !logs) {
			t.Errorf("nginx logs\n%s", &log)
		}
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close() //nolint:errcheck // it was only a look
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// answer is what a buyer receives.
type answer struct {
	status     int
	retryAfter bool
	media      string
	problem    string
}

// ask sends a purchase from an address, which says that it is another one.
func ask(t *testing.T, address, from, says string) answer {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/deduct?goods_id=1", http.NoBody)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded"} {
		request.Header.Set(name, says)
	}
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	var problem struct {
		Type string `json:"type"`
	}
	_ = json.NewDecoder(response.Body).Decode(&problem) // a sale has none
	return answer{response.StatusCode, response.Header.Get("Retry-After") != "", response.Header.Get("Content-Type"), problem.Type}
}

// rejected is nginx's own answer, which is as stockd's.
func rejected() answer {
	return answer{http.StatusTooManyRequests, true, "application/problem+json", "urn:stockd:problem:rate-limited"}
}

// No client evades the rate by a header of its own, and none waits because of another one.
func TestARateByAddressHolds(t *testing.T) {
	var served []string // by nginx's word
	var mu sync.Mutex
	address := start(t, nginx.Limits{Rate: 1, Burst: 4}, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served = append(served, r.Header.Get("X-Forwarded-For"))
	})
	began := time.Now()
	accepted := 0
	for i := range 40 {
		switch got := ask(t, address, "127.0.0.2", fmt.Sprintf("198.51.100.%d", i)); {
		case got.status == http.StatusOK:
			accepted++
		case got != rejected():
			t.Errorf("too often is answered with %+v", got)
		}
	}
	// One at once and four before their time, and one more with each second.
	if most := 5 + int(time.Since(began)/time.Second) + 1; accepted < 5 || accepted > most {
		t.Errorf("%d purchases of 40 were accepted, want 5 to %d", accepted, most)
	}
	got := ask(t, address, "127.0.0.3", "127.0.0.2")
	should.Be(t, got.status, http.StatusOK, "another address is answered with", got)
	mu.Lock()
	defer mu.Unlock()
	if len(served) != accepted+1 || served[0] != "127.0.0.2" || served[accepted] != "127.0.0.3" {
		t.Errorf("the replica received %v", served)
	}
}

func TestConnectionsByAddressAreBounded(t *testing.T) {
	here, gone := make(chan struct{}), make(chan struct{})
	address := start(t, nginx.Limits{Connections: 2}, func(http.ResponseWriter, *http.Request) {
		here <- struct{}{}
		<-gone
	})
	var buyers sync.WaitGroup
	for range 2 {
		buyers.Go(func() {
			got := ask(t, address, "127.0.0.2", "198.51.100.1")
			should.Be(t, got.status, http.StatusOK, "one of two is answered with", got)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 {
		select {
		case <-here:
		case <-ctx.Done():
			t.Fatal("two are not served")
		}
	}
	should.Be(t, ask(t, address, "127.0.0.2", "198.51.100.2"), rejected(), "a third is answered with")
	buyers.Go(func() {
		got := ask(t, address, "127.0.0.3", "127.0.0.2")
		should.Be(t, got.status, http.StatusOK, "another address is answered with", got)
	})
	select {
	case <-here:
	case <-ctx.Done():
		t.Error("another address is not served")
	}
	close(gone)
	buyers.Wait()
}

// What a replica answers is passed on as it is, and no other replica is asked after it.
func TestWhatAReplicaAnswersIsPassedOn(t *testing.T) {
	var asked, status atomic.Int64
	const says = `{"type":"urn:stockd:problem:its-own","detail":"of the replica"}` // no client would receive it
	replica := func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "7") // nginx says 1 to 3
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, says)
	}
	for listener, address := range map[string]string{"public": start(t, nginx.Limits{}, replica), "admin": startAdmin(t, 1000, replica)} {
		for _, answered := range []int64{200, 201, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch} {
				asked.Store(0)
				status.Store(answered)
				response, body := sendTo(t, address, method)
				if int64(response.StatusCode) != answered || body != says || response.Header.Get("Retry-After") != "7" ||
					response.Header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("%s, %s: %d is passed on as %s %v %s", listener, method, answered, response.Status, response.Header, body)
				}
				should.Be(t, asked.Load(), 1, listener, method, "answered with", answered, "the requests that replicas got")
			}
		}
	}
}

// sendTo sends a request for an item, and returns the answer and its body.
func sendTo(t *testing.T, address, method string) (response *http.Response, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+"/goods/1", http.NoBody)
	must.Do(t, err)
	response, err = http.DefaultClient.Do(request)
	must.Do(t, err)
	read, err := io.ReadAll(response.Body)
	must.Do(t, errors.Join(err, response.Body.Close()))
	return response, string(read)
}

// In production clients do not learn where the replicas are.
func TestTheAddressesOfReplicasAreHidden(t *testing.T) {
	replica := func(asked *atomic.Int64) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) {
			if asked.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
		}
	}
	behind := httptest.NewServer(replica(new(atomic.Int64)))
	t.Cleanup(behind.Close)
	admin := strings.TrimPrefix(behind.URL, "http://")
	for address, hidden := range map[string]bool{
		start(t, nginx.Limits{}, replica(new(atomic.Int64))):                   false,
		start(t, nginx.Limits{HideUpstream: true}, replica(new(atomic.Int64))): true,
		startAdminBefore(t, 1000, "", admin, admin):                            true,
	} {
		for range 2 { // nginx's own answer, and the replica's
			request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/deduct", http.NoBody))(t)
			response := must.Get(http.DefaultClient.Do(request))(t)
			response.Body.Close() //nolint:errcheck // only the header was wanted
			if values, ok := response.Header["X-Stockd-Upstream"]; ok == hidden {
				t.Errorf("hidden: %v; %s has %q", hidden, response.Status, values)
			}
		}
	}
}

// A write without an answer may have happened; a read has changed nothing, and needs
// no key to be sent again.
func TestARequestWithoutAnAnswer(t *testing.T) {
	var asked atomic.Int64
	silent := func(http.ResponseWriter, *http.Request) {
		asked.Add(1)
		panic(http.ErrAbortHandler)
	}
	wants := map[string]string{
		http.MethodGet: "backend-unavailable", http.MethodHead: "", http.MethodPost: "outcome-unknown", http.MethodPut: "outcome-unknown",
		http.MethodPatch: "outcome-unknown", http.MethodDelete: "outcome-unknown",
	}
	for listener, address := range map[string]string{"public": start(t, nginx.Limits{}, silent), "admin": startAdmin(t, 1000, silent)} {
		for method, want := range wants {
			asked.Store(0)
			response, body := sendTo(t, address, method)
			if n := asked.Load(); (method == http.MethodPost || method == http.MethodPatch) && n != 1 {
				t.Errorf("%s, %s was sent to %d replicas", listener, method, n)
			}
			if response.StatusCode != http.StatusServiceUnavailable || !slices.Contains([]string{"1", "2", "3"}, response.Header.Get("Retry-After")) ||
				response.Header.Get("Content-Type") != "application/problem+json" || response.Header.Get("Cache-Control") != "no-store" || response.Header.Get("X-Stockd-Upstream") == "" {
				t.Errorf("%s, %s is answered with %s %v", listener, method, response.Status, response.Header)
			}
			if !strings.Contains(body, want) || strings.Contains(body, "Idempotency-Key") != (want == "outcome-unknown") {
				t.Errorf("%s, %s is answered with %q, want %s", listener, method, body, want)
			}
		}
	}
}

// A replica that is paused says nothing, and closes nothing either.
func TestAReplicaThatIsSilentForTooLong(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	folder, address := place(t)
	site := nginx.Local(folder, address, []string{strings.TrimPrefix(silent.URL, "http://")}, nginx.Limits{})
	run(t, folder, strings.Replace(site, "proxy_read_timeout 17s", "proxy_read_timeout 300ms", 1), address, false)
	for method, want := range map[string]string{http.MethodGet: "backend-unavailable", http.MethodPost: "outcome-unknown"} {
		response, body := sendTo(t, address, method)
		if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, want) {
			t.Errorf("%s is answered with %s %q, want %s", method, response.Status, body, want)
		}
	}
}

// Clients that are rejected together do not return together.
func TestNginxSpreadsRetries(t *testing.T) {
	address := start(t, nginx.Limits{}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	seen := make(map[string]bool)
	for range 40 {
		response, _ := sendTo(t, address, http.MethodPost)
		seen[response.Header.Get("Retry-After")] = true
	}
	should.Be(t, len(seen), 3, "the values of Retry-After among 40", seen)
}

// The replicas share the requests evenly, over connections that are kept; and none is left out after
// it was gone for a moment.
func TestReplicasShareTheRequests(t *testing.T) {
	const crowd = 10 // who are all served at the same time
	var asked, opened [2]atomic.Int64
	var served sync.WaitGroup
	replicas, addresses := make([]*httptest.Server, 0, len(asked)), make([]string, 0, len(asked))
	for i := range asked {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			asked[i].Add(1)
			if r.Host != "shop.example" || r.Header.Get("X-Forwarded-Proto") != "http" || r.Proto != "HTTP/1.1" {
				t.Errorf("a replica receives %s for %s of %s", r.Proto, r.Host, r.Header.Get("X-Forwarded-Proto"))
			}
			served.Done()
			served.Wait()
		}))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened[i].Add(1)
			}
		}
		s.Start()
		defer s.Close()
		replicas, addresses = append(replicas, s), append(addresses, strings.TrimPrefix(s.URL, "http://"))
	}
	address := startBefore(t, nginx.Limits{}, addresses...)
	buy := func() int {
		response, _ := raw(t, address, "POST /deduct HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return response.StatusCode
	}
	for range 2 {
		served.Add(crowd)
		var buyers sync.WaitGroup
		for range crowd {
			buyers.Go(func() {
				should.Be(t, buy(), http.StatusOK, "a purchase is answered with")
			})
		}
		buyers.Wait()
	}
	for i := range asked {
		if n, conns := asked[i].Load(), opened[i].Load(); n != crowd || conns != crowd/2 {
			t.Errorf("replica %d got %d of %d requests on %d connections, want half of them, and half of a crowd", i, n, 2*crowd, conns)
		}
	}
	for _, s := range replicas { // all are gone for a moment
		s.Listener.Close() //nolint:errcheck // it is closed again
		s.CloseClientConnections()
	}
	for range 4 {
		should.Be(t, buy(), http.StatusServiceUnavailable, "without a replica a purchase is answered with")
	}
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", addresses[0]))(t)
	back := httptest.NewUnstartedServer(http.HandlerFunc(accept))
	back.Listener.Close() //nolint:errcheck // it has another
	back.Listener = l
	back.Start()
	defer back.Close()
	for range 4 {
		should.Be(t, buy(), http.StatusOK, "after a replica came back a purchase is answered with")
	}
}

// The times and sizes of nginx fit those of a replica, which answers for itself as long as it can.
func TestTheLimitsOfNginxFitThoseOfAReplica(t *testing.T) {
	c, err := config.Load("", nil)
	must.Do(t, err)
	seconds := func(d time.Duration) float64 { return d.Seconds() }
	longest, audit := seconds(c.Deduct.Timeout+c.HTTP.ReadTimeout), seconds(c.Audit.Timeout+c.HTTP.ReadTimeout)
	for template, bounds := range map[string]map[string][2]float64{
		"stockd": {
			"client_max_body_size": {config.MaxBody >> 10, config.MaxBody >> 10}, "client_body_buffer_size": {config.MaxBody >> 10, config.MaxBody >> 10},
			"client_header_timeout": {seconds(c.HTTP.ReadTimeout), seconds(c.HTTP.ReadTimeout)}, "client_body_timeout": {seconds(c.HTTP.ReadTimeout), seconds(c.HTTP.ReadTimeout)},
			"proxy_connect_timeout": {0.01, 0.05}, "proxy_read_timeout": {longest + 1, longest + 5}, "upstream keepalive_timeout": {1, seconds(c.HTTP.IdleTimeout) - 1},
		},
		"admin": {
			"client_max_body_size": {config.MaxBody >> 10, config.MaxBody >> 10}, "client_body_buffer_size": {config.MaxBody >> 10, config.MaxBody >> 10},
			"client_header_timeout": {seconds(c.HTTP.ReadTimeout), seconds(c.HTTP.ReadTimeout)}, "client_body_timeout": {seconds(c.HTTP.ReadTimeout), seconds(c.HTTP.ReadTimeout)},
			"proxy_connect_timeout": {0.01, 0.05}, "proxy_read_timeout": {audit + 1, audit + 5},
		},
	} {
		content := must.Get(os.ReadFile("templates/" + template + ".conf.template"))(t)
		if held := regexp.MustCompile(`(?m)^ *limit_req .*[^y];$`).FindString(string(content)); held != "" || !strings.Contains(string(content), " nodelay;") {
			t.Errorf("%s holds a burst back to the rate, so that clients wait for each other: %s", template, held)
		}
		upstream, server, _ := strings.Cut(string(content), "\nserver {")
		for name, bound := range bounds {
			where, text := server, name
			if rest, ok := strings.CutPrefix(name, "upstream "); ok {
				where, text = upstream, rest
			}
			found := regexp.MustCompile(`(?m)^ *` + text + ` (\d+)(ms|k|s);$`).FindStringSubmatch(where)
			if found == nil {
				t.Errorf("%s has no %s", template, name)
				continue
			}
			got, err := strconv.ParseFloat(found[1], 64)
			if found[2] == "ms" {
				got /= 1000
			}
			if err != nil || got < bound[0] || got > bound[1] {
				t.Errorf("%s has the %s %v, want %v to %v", template, name, got, bound[0], bound[1])
			}
		}
	}
	main, err := os.ReadFile("nginx.conf")
	if want := fmt.Sprintf("\nworker_shutdown_timeout %ds;\n", int(longest)+5); err != nil || !strings.Contains(string(main), want) {
		t.Errorf("nginx.conf lacks %q: a worker that is to stop lets purchases end (%v)", want, err)
	}
}

// requestID is the header that names a request.
const requestID = "X-Request-ID"

// exchange sends a request under a name, and returns what came back.
func exchange(t *testing.T, method, url, name, body string) (response *http.Response, problem map[string]any) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	if name != "" {
		request.Header.Set(requestID, name)
	}
	response = must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close() //nolint:errcheck // it has been read
	if err := json.NewDecoder(response.Body).Decode(&problem); err != nil {
		t.Errorf("%s %s is answered with %s, and no problem: %v", method, url, response.Status, err)
	}
	return response, problem
}

// assertNamed checks that an answer of nginx itself names the request, and that the
// replica was sent the same name where it was asked.
func assertNamed(t *testing.T, address string, status int, method, body string, replica func() string) {
	t.Helper()
	for name, kept := range map[string]bool{
		"": false, "two words": false, `"},{`: false, strings.Repeat("x", 129): false, strings.Repeat("x", 128): true, "shop/7:a.b_c~d+e=@-": true,
	} {
		response, problem := exchange(t, method, "http://"+address+"/goods", name, body)
		id := response.Header.Get(requestID)
		if response.StatusCode != status || response.Header.Get("Content-Type") != "application/problem+json" ||
			problem["instance"] != "urn:stockd:request:"+id || problem["status"] != float64(status) {
			t.Errorf("%q is answered with %s %v %v", name, response.Status, response.Header, problem)
		}
		if id == "" || (id == name) != kept {
			t.Errorf("%q is named %q", name, id)
		}
		if sent := replica(); sent != "" && sent != id {
			t.Errorf("the replica was sent the name %q, and the client %q", sent, id)
		}
	}
}

// What nginx answers itself is a problem like those of a replica, on both listeners.
func TestAnswersOfNginxNameTheRequest(t *testing.T) {
	var mu sync.Mutex
	var sent string
	abort := func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent = r.Header.Get(requestID)
		panic(http.ErrAbortHandler)
	}
	read := func() string {
		mu.Lock()
		defer mu.Unlock()
		return sent
	}
	asked := func() string { return "" }
	large := strings.Repeat("x", 17<<10)
	public := start(t, nginx.Limits{}, abort)
	for listener, address := range map[string]string{"public": public, "admin": startAdmin(t, 1000, abort)} {
		t.Run(listener, func(t *testing.T) {
			assertNamed(t, address, http.StatusServiceUnavailable, http.MethodGet, "", read)
			assertNamed(t, address, http.StatusServiceUnavailable, http.MethodPost, "", read)
			assertNamed(t, address, http.StatusRequestEntityTooLarge, http.MethodPost, large, asked)
		})
	}
}

func TestARequestBeyondTheLimitIsNamed(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	address := start(t, nginx.Limits{Connections: 1}, func(w http.ResponseWriter, _ *http.Request) {
		close(held)
		<-release
		_, _ = io.WriteString(w, `{}`) // the test has what it needs
	})
	var first sync.WaitGroup
	first.Go(func() { exchange(t, http.MethodGet, "http://"+address+"/goods", "", "") })
	<-held
	assertNamed(t, address, http.StatusTooManyRequests, http.MethodGet, "", func() string { return "" })
	close(release)
	first.Wait()
}

// startAdmin runs the admin listener before two replicas, which are one server, with a rate by
// address.
func startAdmin(t *testing.T, rate int, replica http.HandlerFunc) (address string) {
	t.Helper()
	backend := httptest.NewServer(replica)
	t.Cleanup(backend.Close)
	served := strings.TrimPrefix(backend.URL, "http://")
	return startAdminBefore(t, rate, "$upstream_addr", served, served)
}

// startAdminBefore runs it before the replicas at these addresses; upstream is empty where they are hidden.
func startAdminBefore(t *testing.T, rate int, upstream string, replicas ...string) (address string) {
	t.Helper()
	template := must.Get(os.ReadFile("templates/admin.conf.template"))(t)
	_, other := place(t)
	folder, address := place(t)
	site := nginx.Local(folder, other, replicas, nginx.Limits{})
	owners := "server " + strings.Join(replicas, " max_fails=0; server ") + " max_fails=0;"
	admin := strings.NewReplacer("${STOCKD_ADMIN_LISTEN}", address, "${STOCKD_OWNERS}", owners, "${STOCKD_ADMIN_RATE}", strconv.Itoa(rate), "${STOCKD_UPSTREAM}", upstream).Replace(string(template))
	run(t, folder, site[:strings.LastIndex(site, "}")]+admin+"}", address, true)
	return address
}

// This nginx authenticates no client, so that none names a buyer to a replica that trusts it.
func TestAClientNamesNoBuyer(t *testing.T) {
	var named []string
	address := start(t, nginx.Limits{}, func(_ http.ResponseWriter, r *http.Request) {
		named = append(named, r.Header.Values("X-Stockd-Buyer")...)
	})
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/deduct", http.NoBody))(t)
	request.Header.Set("X-Stockd-Buyer", "u-1")
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close() //nolint:errcheck // only its status was wanted
	if response.StatusCode != http.StatusOK || len(named) > 0 {
		t.Errorf("answered with %s, and the replica received %q", response.Status, named)
	}
}

// client keeps its connections, which come from an address.
func client(from string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}, Timeout: 10 * time.Second}
}

// status is what one request is answered with; kept tells whether the connection may be
// used again.
func status(t *testing.T, c *http.Client, address string) (code int, kept bool) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/goods/1", http.NoBody)
	must.Do(t, err)
	response, err := c.Do(request)
	must.Do(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	if closed := response.Body.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	return response.StatusCode, !response.Close
}

func accept(http.ResponseWriter, *http.Request) {}

// opened counts how many of many new connections are served.
func opened(t *testing.T, address, from string, tries int) (served int) {
	t.Helper()
	for range tries {
		c := client(from)
		switch code, kept := status(t, c, address); {
		case code == http.StatusOK:
			served++
		case code != http.StatusTooManyRequests || kept:
			t.Errorf("a new connection beyond the rate is answered with %d and kept: %t", code, kept)
		}
		c.CloseIdleConnections()
	}
	return served
}

func TestNewConnectionsByAddressAreBounded(t *testing.T) {
	address, began := start(t, nginx.Limits{ConnectionRate: 2}, accept), time.Now()
	old := client("127.0.0.2")
	defer old.CloseIdleConnections()
	status(t, old, address)
	served := opened(t, address, "127.0.0.2", 30)
	if most := 2 + 2*(int(time.Since(began)/time.Second)+1); served > most {
		t.Errorf("%d new connections are served, want at most %d", served, most)
	}
	for range 30 {
		code, _ := status(t, old, address)
		must.Be(t, code, http.StatusOK, "a connection that is open is answered with")
	}
	code, _ := status(t, client("127.0.0.3"), address)
	should.Be(t, code, http.StatusOK, "another address is answered with")
}

func TestNewConnectionsOfAllAreBounded(t *testing.T) {
	address, began, served := start(t, nginx.Limits{AllConnectionRate: 2}, accept), time.Now(), 0
	for _, from := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		served += opened(t, address, from, 10)
	}
	if most := 3 + 2*(int(time.Since(began)/time.Second)+1); served == 0 || served > most {
		t.Errorf("%d new connections are served, want 1 to %d", served, most)
	}
}

func TestConnectionsOfAllAreBounded(t *testing.T) {
	here, release := make(chan struct{}, 3), make(chan struct{})
	address := start(t, nginx.Limits{AllConnections: 2}, func(http.ResponseWriter, *http.Request) {
		here <- struct{}{}
		<-release
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var buyers sync.WaitGroup
	for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
		buyers.Go(func() {
			got := ask(t, address, from, "")
			should.Be(t, got.status, http.StatusOK, from, "is answered with", got)
		})
		select {
		case <-here:
		case <-ctx.Done():
			t.Fatal("two are not served")
		}
	}
	should.Be(t, ask(t, address, "127.0.0.4", ""), rejected(), "a third is answered with")
	close(release)
	buyers.Wait()
}

// malformed are requests that nginx answers without a replica, and how.
func malformed() []struct{ name, request, status, problem string } {
	const host = " HTTP/1.1\r\nHost: stockd\r\n"
	return []struct{ name, request, status, problem string }{
		{"no request line", "hello\r\n\r\n", "400", "invalid-request"},
		{"TLS on a plain port", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400", "invalid-request"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", "400", "invalid-request"},
		{"two lengths", "POST /deduct" + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "400", "invalid-request"},
		{"a length that is none", "POST /deduct" + host + "Content-Length: x\r\n\r\n", "400", "invalid-request"},
		{"an unknown coding", "POST /deduct" + host + "Transfer-Encoding: hope\r\n\r\n", "400", "invalid-request"},
		{"a version of the future", "GET / HTTP/3.7\r\nHost: stockd\r\n\r\n", "400", "invalid-request"},
		{"TRACE", "TRACE /" + host + "\r\n", "405", "method-not-allowed"},
		{"a long URI", "GET /" + strings.Repeat("x", 5<<10) + host + "\r\n", "414", "uri-too-long"},
		{"a long line", "GET /" + host + "X-Long: " + strings.Repeat("x", 5<<10) + "\r\n\r\n", "431", "header-too-large"},
		{"many lines", "GET /" + host + strings.Repeat("X-Long: "+strings.Repeat("x", 3<<10)+"\r\n", 6) + "\r\n", "431", "header-too-large"},
		{"a large body", "POST /goods" + host + "Content-Length: 20000\r\n\r\n", "413", "body-too-large"},
		{"the page of the problems", "GET /_stockd_problem" + host + "\r\n", "404", "not-found"},
	}
}

// raw sends a request as it is, and reads the answer.
func raw(t *testing.T, address, request string) (response *http.Response, body []byte) {
	t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", address))(t)
	defer conn.Close() //nolint:errcheck // it has been read
	must.Do(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	must.Get(io.WriteString(conn, request))(t)
	response = must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	defer response.Body.Close() //nolint:errcheck // it has been read
	body = must.Get(io.ReadAll(response.Body))(t)
	return response, body
}

func TestWhatNginxRejectsIsAProblem(t *testing.T) {
	never := func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a replica received %s %s", r.Method, r.URL) }
	for listener, address := range map[string]string{"public": start(t, nginx.Limits{}, never), "admin": startAdmin(t, 1000, never)} {
		for _, c := range malformed() {
			t.Run(listener+"/"+c.name, func(t *testing.T) {
				response, body := raw(t, address, c.request)
				var problem map[string]any
				if err := json.Unmarshal(body, &problem); err != nil {
					t.Fatalf("%s: no JSON: %v: %.100q", response.Status, err, body)
				}
				id := response.Header.Get(requestID)
				if !strings.HasPrefix(response.Status, c.status) || problem["status"] != float64(response.StatusCode) ||
					problem["type"] != "urn:stockd:problem:"+c.problem || problem["title"] == nil || problem["detail"] == nil ||
					len(response.Header.Values("Retry-After")) > 0 || id == "" || problem["instance"] != "urn:stockd:request:"+id || response.Header.Get("Content-Type") != "application/problem+json" || response.Header.Get("Cache-Control") != "no-store" {
					t.Errorf("it is answered with %s %v %+v, want %s %s", response.Status, response.Header, problem, c.status, c.problem)
				}
			})
		}
	}
}

// A replica reads a header of 16 KiB, of which one line may have 4 KiB here.
func TestAHeaderThatIsNotTooLargeIsPassedOn(t *testing.T) {
	line := "X-Long: " + strings.Repeat("x", 3900) + "\r\n"
	for listener, address := range map[string]string{"public": start(t, nginx.Limits{}, accept), "admin": startAdmin(t, 1000, accept)} {
		for name, request := range map[string]string{
			"long lines": "GET / HTTP/1.1\r\nHost: stockd\r\n" + strings.Repeat(line, 3), "a long URI": "GET /?q=" + strings.Repeat("x", 3900) + " HTTP/1.1\r\nHost: stockd\r\n",
		} {
			response, body := raw(t, address, request+"Connection: close\r\n\r\n")
			should.Be(t, response.StatusCode, http.StatusOK, listener, name, "answered with", response.Status, body)
		}
	}
}

func TestGuessesOfAnAdminTokenAreBounded(t *testing.T) {
	address, began, served := startAdmin(t, 2, accept), time.Now(), 0
	for range 30 {
		switch got := ask(t, address, "127.0.0.2", ""); {
		case got.status == http.StatusOK:
			served++
		case got != rejected():
			t.Errorf("beyond the rate it is answered with %+v", got)
		}
	}
	if most := 3 + 2*(int(time.Since(began)/time.Second)+1); served == 0 || served > most {
		t.Errorf("%d requests are served, want 1 to %d", served, most)
	}
	got := ask(t, address, "127.0.0.3", "")
	should.Be(t, got.status, http.StatusOK, "another address is answered with", got)
}

// A replica answers its own hosts alone, so that it must see the one that was asked for; and it bounds
// guesses of a token by the client's address, which no header changes.
func TestTheAdminAPIReceivesTheHostAsItWasSent(t *testing.T) {
	hosts := make(chan string, 1)
	address := startAdmin(t, 1000, func(_ http.ResponseWriter, r *http.Request) {
		if from := r.Header.Values("X-Forwarded-For"); len(from) != 1 || from[0] != "127.0.0.1" {
			t.Errorf("the replica received the addresses %q", from)
		}
		hosts <- r.Host
	})
	for _, host := range []string{"127.0.0.1:8081", "Rebound.example:80", "localhost"} {
		response, body := raw(t, address, "GET /goods HTTP/1.1\r\nHost: "+host+"\r\nX-Forwarded-For: 198.51.100.7\r\nConnection: close\r\n\r\n")
		must.Be(t, response.StatusCode, http.StatusOK, host, "is answered with", response.Status, body)
		should.Be(t, <-hosts, host, "the replica received the host")
	}
}
