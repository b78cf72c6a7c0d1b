package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/servers"
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
	if err := conn.SetReadDeadline(start.Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only its status was wanted
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("10 MiB are answered with %s", response.Status)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s to say so", took)
	}
	r.Sells(t, "after large bodies")
}

// memory is the most resident memory that the replica has had, in bytes.
func (r process) memory(t *testing.T) int64 {
	t.Helper()
	peak, err := servers.Resident(r.Process.Process.Pid, servers.PeakMemory)
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

func TestALimitByAddressIsNotFooledByAForgedHeader(t *testing.T) {
	r := startReplica(t, "--limit-address-rate=0.001", "--limit-address-burst=3")
	accepted := 0
	for i := range 20 {
		request := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?goods_id=1")
		for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP", "True-Client-IP", "X-Client-IP"} {
			request.Header.Set(name, fmt.Sprintf("198.51.100.%d", i))
		}
		switch got := cmdtest.Do(request); {
		case got.Status == http.StatusOK:
			accepted++
		case got.Kind != "rate-limited" || got.Header.Get("Retry-After") == "":
			t.Errorf("answered with %d %s", got.Status, got.Text)
		}
	}
	if accepted != 3 {
		t.Errorf("%d purchases of 20 were accepted, want 3", accepted)
	}
}

func TestNobodyIsTheOwnerWithoutTheToken(t *testing.T) {
	// Each client is another one: after ten wrong tokens the next are not looked at.
	r := startReplica(t, "--admin-pprof=true", "--http-trusted-proxies=127.0.0.1")
	for i, c := range []struct{ method, path string }{
		{http.MethodPost, "/goods"},
		{http.MethodPost, "/goods/1/restock?quantity=5"},
		{http.MethodGet, "/goods/1"},
		{http.MethodGet, "/goods/1/audit"},
		{http.MethodGet, "/goods/1/drift"},
		{http.MethodGet, "/strategies"},
		{http.MethodPut, "/strategies/naive?enabled=false&reason=mine"},
		{http.MethodGet, "/debug/pprof/"},
	} {
		for _, token := range []string{"", "wrong", cmdtest.Token + "x", cmdtest.Token[:len(cmdtest.Token)-1], strings.ToUpper(cmdtest.Token), "' OR '1'='1"} {
			request := r.owners(t, c.method, c.path, token)
			request.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i))
			if got := cmdtest.Do(request); got.Status != http.StatusUnauthorized || got.Kind != "unauthorized" {
				t.Errorf("%s %s with token %q is answered with %d %s", c.method, c.path, token, got.Status, got.Text)
			}
		}
	}
	if goods, err := r.Goods(t.Context(), 1); err != nil || goods.Stock != 1000 {
		t.Errorf("goods 1 are %+v, %v; want 1000 of them", goods, err)
	}
}

// fragments are of languages that something behind a field might speak.
func fragments() []string {
	return []string{
		`1'; DROP TABLE tb_goods_stock; --`, `1 OR 1=1`, `' UNION SELECT * FROM tb_stock_ledger --`, `1); DELETE FROM tb_stock_ledger; --`,
		`"><script>alert(1)</script>`, `{{7*7}}${7*7}`, `return redis.call('FLUSHALL')`, `../../etc/passwd`, "\x00\x01", "\r\nX-Injected: yes", `%s%n%d`, `{"$gt": ""}`,
	}
}

// Whatever stands in a field is a value: it is taken as one or rejected, and runs
// nowhere.
func TestFragmentsInEveryField(t *testing.T) {
	r := startReplica(t)
	sold := int64(0)
	for _, fragment := range fragments() {
		for _, field := range []string{"goods_id", "quantity", "user_id", "strategy", "group", "fence", "durable", "unheard_of", "Idempotency-Key", "X-Request-ID"} {
			got := r.buyWith(t, field, fragment)
			switch {
			case got.Status == http.StatusOK:
				sold++
			case got.Status < 400 || got.Status >= 500 || got.Header.Get("Content-Type") != "application/problem+json" || got.Header.Get("X-Content-Type-Options") != "nosniff":
				t.Errorf("%q in %s is answered with %d %s", fragment, field, got.Status, got.Text)
			}
			if strings.Contains(got.Text, "<script>") || got.Header.Get("X-Injected") != "" || strings.Contains(got.Header.Get("X-Request-ID"), "<") {
				t.Errorf("%q in %s is sent back as it is: %v %s", fragment, field, got.Header, got.Text)
			}
		}
	}
	audit, err := r.AuditInFull(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if audit.Sold != sold || audit.Initial != 1000 || audit.Stock != 1000-sold || sold == 0 {
		t.Errorf("%d were sold, and the audit is %+v", sold, audit)
	}
}

// The same in what the owner sends, in a body and in a path.
func TestFragmentsInEveryFieldOfTheOwner(t *testing.T) {
	r := startReplica(t)
	for _, fragment := range fragments() {
		text, path := url.QueryEscape(fragment), url.PathEscape(fragment)
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
			got := cmdtest.Do(request)
			if got.Status < 400 || got.Status >= 500 || got.Header.Get("X-Content-Type-Options") != "nosniff" || strings.Contains(got.Text, "<script>") {
				t.Errorf("%s %s with %q is answered with %d %s", c.method, c.target, c.form, got.Status, got.Text)
			}
		}
	}
	if audit, err := r.AuditInFull(t.Context(), 1); err != nil || audit.Initial != 1000 || audit.Stock != 1000 || !audit.Clean {
		t.Errorf("the audit is %+v (%v), want 1000 units and no other", audit, err)
	}
	if _, err := r.Goods(t.Context(), 2); err == nil {
		t.Error("goods 2 were created")
	}
}

// buyWith buys one unit with something else in one field.
func (r process) buyWith(t *testing.T, field, text string) cmdtest.Answer {
	t.Helper()
	values := url.Values{"goods_id": {"1"}}
	header := field == "Idempotency-Key" || field == "X-Request-ID"
	if !header {
		values.Set(field, text)
	}
	request := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?"+values.Encode())
	if !header {
		return cmdtest.Do(request)
	}
	if strings.ContainsAny(text, "\r\n\x00\x01") {
		return cmdtest.Do(request) // HTTP itself has no room for it
	}
	request.Header.Set(field, text)
	return cmdtest.Do(request)
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
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Fatalf("an idle connection is still open: %v", err)
		}
		_ = conn.Close() // the other end has closed it
	}
	took := r.memory(t) - before
	t.Logf("%d idle connections took %d MiB", connections, took>>20)
	if most := memory * raceShadow; took > most {
		t.Errorf("%d idle connections took %d MiB, want at most %d", connections, took>>20, most>>20)
	}
	r.Sells(t, "after idle connections")
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	startReplica(t, impatient()...).holdsOff(t, 400, 8<<20)
}
