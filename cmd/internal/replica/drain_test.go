package replica

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/config"
)

// tardy is a listener that closes at once, and returns a connection of its backlog a moment later;
// its closing may fail.
type tardy struct {
	net.Listener

	late   net.Conn
	closed context.Context
	close  context.CancelFunc
	fails  error
}

func (l *tardy) Accept() (net.Conn, error) {
	<-l.closed.Done()
	if l.late == nil {
		return nil, net.ErrClosed
	}
	conn := l.late
	l.late = nil
	time.Sleep(time.Second)
	return conn, nil
}

func (l *tardy) Close() error {
	l.close()
	return l.fails
}

// A replica behind a balancer ends when drain returns: requests in flight have their answers
// by then, also where a listener could not be closed.
func TestTheBacklogIsServedWhenTheListenerCloses(t *testing.T) {
	for name, fails := range map[string]error{"closed": nil, "not closed well": errors.New("no descriptor is left")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				buyer, late := net.Pipe()
				l := &tardy{late: late, fails: fails}
				l.closed, l.close = context.WithCancel(t.Context())
				var answered atomic.Bool
				server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Second)
					answered.Store(true)
				})}
				d := newDrainer(config.HTTP{DrainDelay: time.Second, Drain: time.Minute}, server, l, func(error) {})
				var others sync.WaitGroup
				others.Go(func() {
					if err := d.serve(); err != nil {
						t.Errorf("it serves until %v", err)
					}
				})
				others.Go(func() { buyOn(t, buyer) })
				if err := d.drain(t.Context()); !errors.Is(err, fails) {
					t.Errorf("drain says %v, want %v", err, fails)
				}
				if !answered.Load() {
					t.Error("the connection of the backlog has no answer")
				}
				buyer.Close() //nolint:errcheck // the test is over
				others.Wait()
			})
		})
	}
}

// buyOn sends one request on a connection, and reads the answer.
func buyOn(t *testing.T, conn net.Conn) {
	request := cmdtest.Ask(t, http.MethodGet, "http://shop/")
	request.Close = true
	if err := request.Write(conn); err != nil {
		t.Errorf("the request is not read: %v", err)
		return
	}
	var answer strings.Builder
	if _, err := io.Copy(&answer, conn); err != nil || !strings.HasPrefix(answer.String(), "HTTP/1.1 200") {
		t.Errorf("the answer is %q, %v", &answer, err)
	}
}
