package replica

import (
	"context"
	"errors"
	"io"
	"log/slog"
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
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// piped is a listener with one connection, which is accepted at once, or a moment after the
// listener closed.
type piped struct {
	net.Listener

	conns  chan net.Conn
	late   bool
	closed context.Context
	close  context.CancelFunc
	fails  error // of Close
}

// pipe is a listener, and the client's end of its connection.
func pipe(t *testing.T) (l *piped, buyer net.Conn) {
	t.Helper()
	buyer, conn := net.Pipe()
	l = &piped{conns: make(chan net.Conn, 1)}
	l.closed, l.close = context.WithCancel(t.Context())
	l.conns <- conn
	return l, buyer
}

func (l *piped) Accept() (net.Conn, error) {
	if l.late {
		<-l.closed.Done()
		time.Sleep(time.Second)
	}
	select {
	case conn := <-l.conns:
		return conn, nil
	default:
	}
	<-l.closed.Done()
	return nil, net.ErrClosed
}

func (l *piped) Close() error {
	l.close()
	return l.fails
}

// startDrainer serves a handler on a listener, and has the client buy on its connection. end
// waits for both.
func startDrainer(t *testing.T, c config.HTTP, l net.Listener, buyer net.Conn, handler http.HandlerFunc, cancel context.CancelCauseFunc) (d *drainer, end func()) {
	t.Helper()
	d = newDrainer(c, &http.Server{ReadHeaderTimeout: time.Hour, Handler: handler}, l, cancel)
	var others sync.WaitGroup
	others.Go(func() {
		should.Do(t, d.serve())
	})
	others.Go(func() { buyOn(t, buyer) })
	return d, func() {
		buyer.Close() //nolint:errcheck // the test is over
		others.Wait()
	}
}

// A replica behind a balancer ends when drain returns: requests in flight have their answers
// by then, also where a listener could not be closed.
func TestTheBacklogIsServedWhenTheListenerCloses(t *testing.T) {
	for name, fails := range map[string]error{"closed": nil, "not closed well": errors.New("no descriptor is left")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, buyer := pipe(t)
				l.late, l.fails = true, fails
				var answered atomic.Bool
				d, end := startDrainer(t, config.HTTP{DrainDelay: time.Second, Drain: time.Minute}, l, buyer, func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Second)
					answered.Store(true)
				}, func(error) {})
				should.Fail(t, d.drain(t.Context()), fails)
				if !answered.Load() {
					t.Error("the connection of the backlog has no answer")
				}
				end()
			})
		})
	}
}

// What is in flight when the balancer has noticed has all of http.drain, however long the
// balancer took; what takes longer is cancelled, and answered.
func TestRequestsInFlightHaveAllOfTheDrain(t *testing.T) {
	const delay, drain = 10 * time.Second, 5 * time.Second
	for name, c := range map[string]struct {
		takes     time.Duration
		cancelled bool
	}{
		"ends within it":  {delay + drain - time.Second, false},
		"takes too long":  {time.Hour, true},
		"ends at its end": {delay + drain, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, buyer := pipe(t)
				requests, cancel := context.WithCancelCause(t.Context())
				d, end := startDrainer(t, config.HTTP{DrainDelay: delay, Drain: drain}, l, buyer, func(http.ResponseWriter, *http.Request) {
					select {
					case <-time.After(c.takes):
					case <-requests.Done():
					}
				}, cancel)
				synctest.Wait()
				if err := d.drain(t.Context()); (err != nil) != c.cancelled || (requests.Err() != nil) != c.cancelled {
					t.Errorf("drain says %v, and the request ended with %v", err, context.Cause(requests))
				}
				if cause := context.Cause(requests); c.cancelled && !errors.Is(cause, stock.ErrBusy) {
					t.Errorf("the request is cancelled by %v, which is not busy", cause)
				}
				end()
			})
		})
	}
}

// A request that ends neither within the drain nor after its cancellation is cut off.
func TestARequestThatDoesNotEndIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, buyer := pipe(t)
		hung := make(chan struct{})
		d := newDrainer(config.HTTP{Drain: time.Second}, &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung })},
			l, func(error) {})
		go d.serve() //nolint:errcheck // it ends with the listener
		must.Do(t, cmdtest.Ask(t, http.MethodGet, "http://shop/").Write(buyer))
		synctest.Wait()
		began := time.Now()
		if err := d.drain(t.Context()); err == nil || time.Since(began) != time.Second+lastMoment {
			t.Errorf("after %s drain says %v, want a failure after %s", time.Since(began), err, time.Second+lastMoment)
		}
		should.Reject(buyer.Read(make([]byte, 1)))(t, io.EOF, "reading from its connection")
		close(hung)
		synctest.Wait()
	})
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

// An idle connection of a balancer may carry a purchase already when the listener closes: it stays open
// for a while, also where no request has come for long.
func TestAnIdleConnectionIsServedAfterTheListenerHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Minute
		l, buyer := pipe(t)
		served := make(chan struct{}, 2)
		d, end := startDrainer(t, config.HTTP{DrainDelay: delay, Drain: time.Minute}, l, &idleFirst{buyer, delay + silence/2}, func(http.ResponseWriter, *http.Request) {
			served <- struct{}{}
		}, func(error) {})
		should.Do(t, d.drain(t.Context()))
		should.Be(t, len(served), 1, "the purchase on the idle connection has no answer")
		end()
	})
}

// A connection that stays idle is waited for only where there is a balancer, and not for long; one on
// which requests come is waited for until the end of the drain.
func TestADrainDoesNotWaitForWhatStaysIdle(t *testing.T) {
	for name, c := range map[string]struct {
		delay  time.Duration
		begins time.Duration // of the last request
		want   time.Duration
	}{
		"no balancer":          {0, 0, 0},
		"a balancer":           {time.Minute, 0, time.Minute + silence},
		"a request meanwhile":  {time.Minute, time.Minute + time.Second, time.Minute + time.Second + silence},
		"a request at the end": {time.Minute, time.Minute + 9*time.Second, time.Minute + 10*time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newDrainer(config.HTTP{DrainDelay: c.delay, Drain: 10 * time.Second}, &http.Server{ReadHeaderTimeout: time.Hour}, &piped{}, nil)
			l, other := pipe(t)
			defer other.Close() //nolint:errcheck // the test is over
			<-l.conns
			d.listener = l
			go d.serve() //nolint:errcheck // it ends with the listener
			d.note(nil, http.StateNew)
			d.note(nil, http.StateActive)
			d.note(nil, http.StateIdle)
			for at := time.Duration(0); c.begins > c.delay && at <= c.begins; at += time.Second {
				time.AfterFunc(at, func() { d.note(nil, http.StateActive) })
			}
			began := time.Now()
			should.Fail(t, d.drain(t.Context()), nil, "drain says", name)
			if took := time.Since(began); took < c.want || took > c.want+20*time.Millisecond {
				t.Errorf("%s: it takes %s, want %s", name, took, c.want)
			}
			d.note(nil, http.StateClosed)
			d.note(nil, http.StateNew)
			d.note(nil, http.StateHijacked) // it is a connection of the handler's
			should.Be(t, d.open.Load(), 0, name)
		})
	}
}

// idleFirst is a connection that is idle for a while before its first request.
type idleFirst struct {
	net.Conn

	idle time.Duration
}

func (c *idleFirst) Write(b []byte) (int, error) {
	time.Sleep(c.idle)
	c.idle = 0
	return c.Conn.Write(b)
}

// drainOnly is the configuration of a replica that drains within a second.
func drainOnly() config.HTTP { return config.HTTP{Drain: time.Second} }

func TestAReplicaExitsAlthoughAPartDoesNotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		hung := make(chan struct{})
		defer synctest.Wait()
		defer close(hung)
		open := newClosing(ctx, drainOnly())
		closed := make(map[string]time.Time)
		for _, name := range []string{"database", "lock clients", "strategies", "background jobs"} {
			open.add(name, func() error {
				switch name {
				case "strategies":
					<-hung
				case "lock clients": // the database may be closed no sooner than they are
					time.Sleep(minClose / 2)
				}
				closed[name] = time.Now()
				return nil
			})
		}
		start := time.Now()
		var log strings.Builder
		err := open.run(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), func() error {
			stop()
			time.Sleep(time.Second) // the drain
			return open.close()
		})
		if took := time.Since(start); took > time.Second+exitWithin {
			t.Errorf("it takes %s", took)
		}
		if !errors.Is(err, errForced) || !strings.HasSuffix(err.Error(), ": strategies") || !strings.Contains(log.String(), "open=[strategies]") {
			t.Errorf("it ends with %v and logs %s; want what is open", err, &log)
		}
		if closed["database"].IsZero() || closed["background jobs"].IsZero() {
			t.Errorf("closed are %v, want the parts beside the one that hangs", closed)
		}
		if closed["lock clients"].IsZero() || closed["database"].Before(closed["lock clients"]) {
			t.Errorf("closed are %v, want each part after the one before it", closed)
		}
	})
}

// A part that hangs on another one ends with that: nothing is forced.
func TestAPartIsAwaitedWhenTheOthersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		open, pool := newClosing(ctx, drainOnly()), make(chan struct{})
		failed := errors.New("not well")
		open.add("database", func() error { close(pool); return failed })
		open.add("strategies", func() error { <-pool; return nil })
		synctest.Wait()
		if err := open.run(t.Context(), slog.New(slog.DiscardHandler), open.close); !errors.Is(err, failed) || errors.Is(err, errForced) {
			t.Errorf("it ends with %v, want %v", err, failed)
		}
	})
}

// The time of the exit is counted from the signal, and leaves the requests all of their drain; without
// a signal it is counted from the failure that ended the replica.
func TestTheExitIsForcedAfterTheDrain(t *testing.T) {
	for name, signalled := range map[string]bool{"a signal": true, "a failure": false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			hung := make(chan struct{})
			defer synctest.Wait()
			defer close(hung)
			c := config.HTTP{DrainDelay: 10 * time.Second, Drain: 20 * time.Second}
			open := newClosing(ctx, c)
			open.add("strategies", func() error { <-hung; return nil })
			var began time.Time
			err := open.run(t.Context(), slog.New(slog.DiscardHandler), func() error {
				time.Sleep(time.Hour)
				if began = time.Now(); signalled {
					stop()
					<-hung // a request that does not end
				}
				return open.close()
			})
			took, drained := time.Since(began), c.DrainDelay+c.Drain
			if !errors.Is(err, errForced) || took <= drained+lastMoment || took > drained+exitWithin {
				t.Errorf("after %s it ends with %v in %s, want it forced within 2s after %s", name, err, took, drained)
			}
		})
	}
}
