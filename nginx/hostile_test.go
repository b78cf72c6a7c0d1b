package nginx_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/nginx"
)

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
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
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
		if code, _ := status(t, old, address); code != http.StatusOK {
			t.Fatalf("a connection that is open is answered with %d", code)
		}
	}
	if code, _ := status(t, client("127.0.0.3"), address); code != http.StatusOK {
		t.Errorf("another address is answered with %d", code)
	}
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
			if got := ask(t, address, from, ""); got.status != http.StatusOK {
				t.Errorf("%s is answered with %+v", from, got)
			}
		})
		select {
		case <-here:
		case <-ctx.Done():
			t.Fatal("two are not served")
		}
	}
	if got := ask(t, address, "127.0.0.4", ""); got != rejected() {
		t.Errorf("a third is answered with %+v", got)
	}
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
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it has been read
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	response, err = http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	body, err = io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
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
					len(response.Header.Values("Retry-After")) > 0 || id == "" || problem["instance"] != "urn:stockd:request:"+id || response.Header.Get("Content-Type") != "application/problem+json" {
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
			if response, body := raw(t, address, request+"Connection: close\r\n\r\n"); response.StatusCode != http.StatusOK {
				t.Errorf("%s, %s: answered with %s %s", listener, name, response.Status, body)
			}
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
	if got := ask(t, address, "127.0.0.3", ""); got.status != http.StatusOK {
		t.Errorf("another address is answered with %+v", got)
	}
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
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s is answered with %s %q", host, response.Status, body)
		}
		if got := <-hosts; got != host {
			t.Errorf("the replica received the host %q of %q", got, host)
		}
	}
}
