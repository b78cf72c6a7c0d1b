package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
)

// greets opens a connection, asks on it, and tells whether it was served. A connection
// that is rejected is reset: it is not left to wait.
func (r process) greets(t *testing.T) (conn net.Conn, served bool) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.Host())
	if err != nil {
		return nil, false
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck // the test is over
	_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: shop\r\n\r\n")
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection is neither served nor rejected")
	}
	if err != nil {
		return conn, false
	}
	response.Body.Close() //nolint:errcheck // only its status was wanted
	return conn, response.StatusCode == http.StatusOK
}

// rejections reads the metric from the admin API, which has connections of its own.
func (r process) rejections(t *testing.T, by string) int {
	t.Helper()
	text := r.scrape(t, http.StatusOK, cmdtest.Token)
	found := regexp.MustCompile(`stockd_connections_rejected_total{by="` + by + `",listener="public"} (\d+)`).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("the metrics lack the connections rejected by %s", by)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Idle connections use up the places of the public API alone, and only while they are open.
func TestConnectionsAreCapped(t *testing.T) {
	const limit = 20
	r := startReplica(t, fmt.Sprintf("--http-max-connections=%d", limit))
	open := make([]net.Conn, 0, limit)
	for i := range limit {
		conn, served := r.greets(t)
		if !served {
			t.Fatalf("connection %d is not served", i+1)
		}
		open = append(open, conn)
	}
	for range 5 {
		if _, served := r.greets(t); served {
			t.Error("a connection beyond the limit is served")
		}
	}
	if got := r.rejections(t, "connections"); got != 5 {
		t.Errorf("%d connections were rejected, want 5", got)
	}
	if err := open[0].Close(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Await(t, "a place", 5*time.Second, func() bool {
		_, served := r.greets(t)
		return served
	})
}

// Of a flood of connections as many are served as come in a second, and the next ones when
// it is over.
func TestNewConnectionsAreLimitedByRate(t *testing.T) {
	const perSecond, flood = 10, 100
	r := startReplica(t, fmt.Sprintf("--http-connection-rate=%d", perSecond))
	served, begun := 0, time.Now()
	for range flood {
		if _, ok := r.greets(t); ok {
			served++
		}
	}
	most := perSecond * (2 + int(time.Since(begun).Seconds()))
	if served < perSecond || served > most {
		t.Errorf("%d of %d connections are served within %s, want %d to %d", served, flood, time.Since(begun), perSecond, most)
	}
	if got := r.rejections(t, "rate"); got != flood-served {
		t.Errorf("%d connections were rejected, want %d", got, flood-served)
	}
	cmdtest.Await(t, "the flood to be over", 5*time.Second, func() bool {
		_, ok := r.greets(t)
		return ok
	})
}
