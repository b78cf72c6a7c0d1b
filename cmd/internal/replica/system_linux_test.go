package replica

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// A replica that may open fewer files than it accepts connections says so at the start, with both numbers.
func TestALimitOnOpenFilesThatIsTooLowIsAWarning(t *testing.T) {
	before := new(unix.Rlimit)
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, before))
	t.Cleanup(func() { must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, before)) })
	c := config.Config{Database: config.Database{MaxOpen: 16}, Lock: config.Lock{Connections: 8}, Redis: config.Redis{Addresses: []string{"a:1"}, MaxOpen: 32}, HTTP: config.HTTP{MaxConnections: 100}}
	const enough = 100 + 1024 + 16 + 8 + 1 + 32 + 64
	admin := c
	admin.Admin.Token = config.NewSecret("0123456789abcdef-owner")
	for _, row := range []struct {
		c     config.Config
		limit uint64
		want  string
	}{
		{c, enough, ""},
		{c, enough - 1, "limit=1244 needed=1245 http.max_connections=100"},
		{admin, enough + 1124, ""},
		{admin, enough + 1123, "limit=2368 needed=2369 http.max_connections=100"},
	} {
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: row.limit, Max: before.Max}))
		var log strings.Builder
		warn(t.Context(), row.c, slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Contains(log.String(), "too few open files"); got != (row.want != "") || !strings.Contains(log.String(), row.want) {
			t.Errorf("with a limit of %d it is logged %q, want %q", row.limit, &log, row.want)
		}
	}
}

// Connections that are not accepted yet when a listener closes are accepted, and no later ones.
func TestAListenerThatClosesAcceptsItsBacklog(t *testing.T) {
	listener := must.Get(openListener(t.Context(), "test", "127.0.0.1:0"))(t)
	const waiting = 3
	for range waiting {
		conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String()))(t)
		defer conn.Close() //nolint:errcheck // the test is over
	}
	for range 2 { // the second time there is nothing to do
		must.Do(t, listener.Close())
	}
	for range waiting {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatalf("a connection of the backlog is not accepted: %v", err)
		}
		defer conn.Close() //nolint:errcheck // the test is over
	}
	should.Reject(listener.Accept())(t, net.ErrClosed)
}

// A client whose connection is made has an answer, at whatever moment of the closing that is.
func TestNoConnectionIsResetByTheClosing(t *testing.T) {
	const closings, clients = 20, 8
	for range closings {
		listener := must.Get(openListener(t.Context(), "test", "127.0.0.1:0"))(t)
		server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
		var group sync.WaitGroup
		group.Go(func() { should.Fail(t, server.Serve(listener), net.ErrClosed) })
		for range clients {
			group.Go(func() {
				for {
					conn, err := net.DialTimeout("tcp", listener.Addr().String(), 40*time.Millisecond)
					if err != nil {
						return
					}
					_, err = conn.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
					_, answer := io.ReadAll(conn)
					should.Do(t, err, answer, conn.Close())
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		should.Do(t, listener.Close())
		group.Wait()
	}
}
