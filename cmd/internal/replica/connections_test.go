package replica

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// crowd is a listener of so many connections, and then closed.
type crowd struct {
	net.Listener

	left   int
	closed atomic.Int64
}

// one of them, whose client has gone.
type one struct {
	net.Conn

	of *crowd
}

func (one) SetDeadline(time.Time) error { return nil }

func (one) SetWriteDeadline(time.Time) error { return nil }

func (one) Read([]byte) (int, error) { return 0, io.EOF }

func (c one) Close() error {
	c.of.closed.Add(1)
	return nil
}

func (c *crowd) Accept() (net.Conn, error) {
	if c.left == 0 {
		return nil, net.ErrClosed
	}
	c.left--
	return one{of: c}, nil
}

// What is beyond a limit is closed and counted by its reason; what is within is not touched.
func TestConnectionsBeyondALimitAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		limits   config.HTTP
		open     int64
		accepted int
		rejected string
	}{
		"no limit":       {config.HTTP{}, 1 << 30, 5, ""},
		"below the most": {config.HTTP{MaxConnections: 3}, 2, 5, ""},
		"at the most":    {config.HTTP{MaxConnections: 3}, 3, 0, byConnections},
		"a rate":         {config.HTTP{ConnectionRate: 2}, 0, 2, byRate},
		"both":           {config.HTTP{MaxConnections: 3, ConnectionRate: 2}, 3, 0, byConnections},
	} {
		synctest.Test(t, func(t *testing.T) {
			inner := &crowd{left: 5}
			var rejected []string
			l := newCappedListener(inner, c.limits, maxAnswered, func() int64 { return c.open }, func(by string) { rejected = append(rejected, by) })
			accepted := 0
			for {
				_, err := l.Accept()
				if errors.Is(err, net.ErrClosed) {
					break
				}
				accepted++
			}
			if want := slices.Repeat([]string{c.rejected}, 5-c.accepted); accepted != c.accepted || int(inner.closed.Load()) != 5-c.accepted || !slices.Equal(rejected, want) {
				t.Errorf("%s: %d are accepted, %d closed and %q rejected, want %d and the rest by %q", name, accepted, inner.closed.Load(), rejected, c.accepted, c.rejected)
			}
			if c.rejected != byRate {
				return
			}
			time.Sleep(500 * time.Millisecond) // half of a second is half of the rate
			inner.left = 5
			if _, err := l.Accept(); err != nil || inner.left != 4 {
				t.Errorf("%s: a later connection is not accepted: %v, %d", name, err, inner.left)
			}
		})
	}
}

// fullListener rejects every connection. ended is closed when its last one has been.
func fullListener(t *testing.T, wrap func(net.Listener) net.Listener) (l *cappedListener, ended chan error) {
	t.Helper()
	listener := must.Get(openListener(t.Context(), "test", "127.0.0.1:0"))(t)
	l, ended = newCappedListener(wrap(listener), config.HTTP{MaxConnections: 1}, maxAnswered, func() int64 { return 1 }, func(string) {}), make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	return l, ended
}

func plain(l net.Listener) net.Listener { return l }

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String()))(t)
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // it may have ended
	return conn
}

// problemOn reads the one answer of a connection, which must end with it and without a reset.
func problemOn(t *testing.T, name string, conn net.Conn) (status int, header http.Header, kind string) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // otherwise the read fails
	content, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("%s: the connection ends with %v after %q", name, err, content)
		return 0, nil, ""
	}
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(content)), nil)
	if err != nil {
		t.Errorf("%s: %q is no answer: %v", name, content, err)
		return 0, nil, ""
	}
	defer response.Body.Close() //nolint:errcheck // it is in memory
	var problem struct {
		Type   string `json:"type"`
		Detail string `json:"detail"`
		Status int    `json:"status"`
	}
	err = json.NewDecoder(response.Body).Decode(&problem)
	h := response.Header
	if err != nil || problem.Status != response.StatusCode || problem.Detail == "" || h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" || !response.Close {
		t.Errorf("%s: it is answered with %q (%v)", name, content, err)
	}
	return response.StatusCode, h, problem.Type
}

// A connection beyond a limit carries a purchase already, which was not made: its client gets that answer, also
// where it sends the rest of the purchase after it.
func TestAConnectionBeyondALimitIsAnsweredBusy(t *testing.T) {
	l, ended := fullListener(t, plain)
	var all sync.WaitGroup
	for _, late := range []int{0, 1, 40, 14 << 10} { // bytes that are sent after the answer
		all.Go(func() {
			name, conn := fmt.Sprintf("%d bytes late", late), dial(t, l)
			request := "POST /deduct HTTP/1.1\r\nHost: shop\r\nContent-Length: 16384\r\n\r\n" + strings.Repeat("x", 16<<10)
			early := len(request) - late
			if _, err := io.WriteString(conn, request[:early]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if late > 0 {
				time.Sleep(100 * time.Millisecond) // the answer has come
				if _, err := io.WriteString(conn, request[early:]); err != nil {
					t.Errorf("%s: the rest cannot be sent: %v", name, err)
				}
				time.Sleep(100 * time.Millisecond) // a reset has come
			}
			status, header, kind := problemOn(t, name, conn)
			if after, err := strconv.Atoi(header.Get("Retry-After")); status != http.StatusServiceUnavailable || kind != "urn:stockd:problem:busy" || err != nil || after < 1 {
				t.Errorf("%s: it is answered with %d %s %v", name, status, kind, header)
			}
		})
	}
	all.Wait()
	conn := dial(t, l)
	must.Get(io.WriteString(conn, "POST"))(t)
	time.Sleep(50 * time.Millisecond) // it is accepted
	must.Do(t, l.Close())
	problemOn(t, "while the listener closes", conn)
	_ = conn.Close()                       // it ends the answer
	should.Fail(t, <-ended, net.ErrClosed) // no connection beyond the limit is accepted
}

// A connection beyond a limit is reset where nothing can have been sent on it, and where too many are answered.
func TestAConnectionWithoutARequestIsReset(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(net.Listener) net.Listener
		sent string
		busy int
	}{
		"silent":              {plain, "", 0},
		"beyond the answered": {plain, "POST", maxAnswered},
		"encrypted": {func(l net.Listener) net.Listener {
			return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12})
		}, "", 0},
	} {
		l, ended := fullListener(t, c.wrap)
		for range c.busy {
			l.answered <- struct{}{}
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err == nil { // it was made before it was reset
			if _, err = io.WriteString(conn, c.sent); err == nil { // the first call after the reset has the error, and no other
				_, err = conn.Read(make([]byte, 1))
			}
			_ = conn.Close() // it has ended
		}
		should.Fail(t, err, syscall.ECONNRESET, "it ends with", name)
		must.Do(t, l.Close())
		should.Fail(t, <-ended, net.ErrClosed, "it is accepted", name)
	}
}

// What is no request is answered by net/http itself: that is a problem, too, and its client receives it.
func TestWhatIsNoRequestIsAnsweredWithAProblem(t *testing.T) {
	own := httptest.NewTLSServer(nil)
	defer own.Close()
	for scheme, wrap := range map[string]func(net.Listener) net.Listener{"http": plain, "https": func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: own.TLS.Certificates})
	}} {
		listener := must.Get(openListener(t.Context(), "test", "127.0.0.1:0"))(t)
		c := config.Config{HTTP: config.HTTP{ReadTimeout: 10 * time.Second}, Deduct: config.Deduct{Timeout: time.Second}}
		server := newServer(c, slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "HTTP/1.1 400 Bad Request", http.StatusTeapot)
		}))
		go server.Serve(newCappedListener(wrap(listener), c.HTTP, maxAnswered, nil, nil)) //nolint:errcheck // it ends with the test
		t.Cleanup(func() { server.Close() })                                              //nolint:errcheck // the test is over
		open := func() net.Conn {
			conn := dial(t, listener)
			if scheme == "https" {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			return conn
		}
		const get, host = "GET / HTTP/1.1\r\n", "Host: shop\r\n"
		for name, c := range map[string]struct {
			sent string
			want int
		}{
			"a control character":           {get + host + "Idempotency-Key: a\x01b\r\n\r\n", http.StatusBadRequest},
			"a control character, and more": {"POST / HTTP/1.1\r\n" + host + "A: \x00\r\nContent-Length: 500000\r\n\r\n" + strings.Repeat("x", 500_000), http.StatusBadRequest},
			"HTTP/0.9":                      {"GET /\r\n\r\n", http.StatusBadRequest},
			"no host":                       {get + "\r\n", http.StatusBadRequest},
			"two hosts":                     {get + host + host + "\r\n", http.StatusBadRequest},
			"a host that is none":           {get + "Host: a b\r\n\r\n", http.StatusBadRequest},
			"a blank in a name":             {get + host + "A B: c\r\n\r\n", http.StatusBadRequest},
			"a header without a colon":      {get + host + "A\r\n\r\n", http.StatusBadRequest},
			"a target that is none":         {"GET :// HTTP/1.1\r\n" + host + "\r\n", http.StatusBadRequest},
			"two lengths":                   {get + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", http.StatusBadRequest},
			"a length below zero":           {get + host + "Content-Length: -1\r\n\r\n", http.StatusBadRequest},
			"another protocol":              {"SSH-2.0-OpenSSH_9.9\r\n\r\n", http.StatusBadRequest},
			"a large header":                {get + host + "A: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
			"a transfer encoding":           {get + host + "Transfer-Encoding: gzip\r\n\r\n", http.StatusBadRequest},
			"a version to come":             {"GET / HTTP/3.0\r\n" + host + "\r\n", http.StatusBadRequest},
			"an expectation":                {get + host + "Expect: 200-ok\r\n\r\n", http.StatusBadRequest},
		} {
			conn := open()
			go io.WriteString(conn, c.sent) //nolint:errcheck // the answer may come before the rest is sent
			wantKind := "urn:stockd:problem:invalid-request"
			if c.want == http.StatusRequestHeaderFieldsTooLarge {
				wantKind = "urn:stockd:problem:header-too-large" // as nginx has it
			}
			if status, _, kind := problemOn(t, scheme+", "+name, conn); status != c.want || kind != wantKind {
				t.Errorf("%s, %s: it is answered with %d %s, want %d", scheme, name, status, kind, c.want)
			}
		}
		conn := open()
		must.Get(io.WriteString(conn, get+host+"Connection: close\r\n\r\n"))(t)
		if content, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(content), "HTTP/1.1 418") || !strings.HasSuffix(string(content), "\r\n\r\nHTTP/1.1 400 Bad Request\n") {
			t.Errorf("%s: the answer of a route is %q, %v", scheme, content, err)
		}
		if scheme == "https" {
			conn := dial(t, listener)
			must.Get(io.WriteString(conn, get+host+"\r\n"))(t)
			status, _, _ := problemOn(t, "HTTP where HTTPS is served", conn)
			should.Be(t, status, http.StatusBadRequest, "HTTP where HTTPS is served is answered with")
		}
	}
}

// exhausted is a listener of a process that has all files open that it may.
type exhausted struct{ net.Listener }

func (exhausted) Accept() (net.Conn, error) {
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

// net/http tries again in silence.
func TestConnectionsThatWaitForAFileAreLoggedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		l := newCappedListener(exhausted{}, config.HTTP{}, maxAnswered, nil, nil)
		l.noFile = warnOfFiles(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), "public")
		for range 3 * 60 {
			should.Reject(l.Accept())(t, syscall.EMFILE)
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "too many open files"); n < 10 || n > 18 {
			t.Errorf("it is logged %d times in 3 minutes", n)
		}
	})
}
