package shop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/nginx"
)

// startBalancer puts nginx before the replicas where it is found, and the
// standard library's reverse proxy, which takes turns, otherwise.
func (c *Cluster) startBalancer(ctx context.Context) error {
	program, err := servers.Find("nginx")
	switch mode := cmp.Or(c.asked.Balancer, c.shop.options.Servers.Mode); {
	case mode == servers.Embedded, mode == servers.Auto && err != nil:
		return c.startProxy()
	case err != nil:
		return fmt.Errorf("start balancer: %w; apt-get install nginx-light brings it", err)
	}
	return c.startNginx(ctx, program)
}

func (c *Cluster) addresses() []string {
	list := make([]string, len(c.Replicas))
	for i, r := range c.Replicas {
		list[i] = strings.TrimPrefix(r.URL, "http://")
	}
	return list
}

func (c *Cluster) startNginx(ctx context.Context, program string) error {
	address, file, write := "", "", func() error { return nil }
	server, err := servers.Launch(ctx, c.shop.Supervisor, servers.Spec{
		Name: "nginx", Program: program, Stop: syscall.SIGQUIT, Grace: 2 * time.Second,
		Configure: func(folder string, port int) (args, env []string, err error) {
			address = servers.Loopback(port)
			file = filepath.Join(folder, "nginx.conf")
			write = func() error {
				return os.WriteFile(file, []byte(nginx.Local(folder, address, c.addresses(), c.asked.Limits)), 0o600)
			}
			return []string{"-p", folder, "-c", file, "-e", "stderr", "-g", "daemon off;"}, nil, write()
		},
		Ready: func(ctx context.Context, pid int) error { return nginxListens(ctx, filepath.Dir(file), address, pid) },
	})
	if err != nil {
		return err
	}
	c.URL, c.closer = "http://"+address, server.Close
	c.rebalance = func(ctx context.Context, joined, left string) error {
		if err := write(); err != nil {
			return fmt.Errorf("change the balancer: %w", err)
		}
		if err := server.Signal(syscall.SIGHUP); err != nil {
			return fmt.Errorf("change the balancer: %w", err)
		}
		return c.await(ctx, joined, left)
	}
	c.Balancer = servers.Info{Name: "nginx", Version: nginxVersion(program), Started: servers.Local}
	return nil
}

// nginxListens asks whether an nginx listens, and whether it is this process: another one may have taken the
// port, which nginx tries for two seconds to get. It writes the file of its process id when it has it.
func nginxListens(ctx context.Context, folder, address string, pid int) error {
	its, err := os.ReadFile(filepath.Join(folder, "nginx.pid"))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(its)) != strconv.Itoa(pid) {
		return fmt.Errorf("nginx.pid is of process %s, not %d", bytes.TrimSpace(its), pid)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// await waits until new connections to the balancer lead to a replica that has joined, and not
// to one that has left: nginx reads its configuration a moment after it was asked to. What is
// under way on old connections is still answered.
func (c *Cluster) await(ctx context.Context, joined, left string) error {
	const looks, lookWithin = 8, 250 * time.Millisecond // at each replica, some of which may be paused
	ctx, cancel := context.WithTimeout(ctx, balanceWithin)
	defer cancel()
	fresh := Client{URL: c.URL, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: lookWithin}}
	for {
		seen := make(map[string]bool)
		for range looks * len(c.Replicas) {
			if name, err := fresh.Replica(ctx); err == nil {
				seen[name] = true
			}
		}
		if (joined == "" || seen[joined]) && !seen[left] && ctx.Err() == nil {
			return nil
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("change the balancer: it leads to %v: %w", slices.Sorted(maps.Keys(seen)), err)
		}
	}
}

// balanceWithin is how long the balancer may take to know its replicas.
const balanceWithin = 10 * time.Second

func nginxVersion(program string) string {
	// nginx prints its version on standard error.
	said, err := exec.Command(program, "-v").CombinedOutput()
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(`nginx/(\S+)`).FindSubmatch(said)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// idleWithin is how long the proxy keeps a connection that it does not use. A replica closes one
// that never carried a request after http.read_timeout, and net/http dials such spare ones
// for a crowd: a purchase that is written as the replica closes gets no answer.
const idleWithin = 2 * time.Second

func (c *Cluster) startProxy() error {
	var targets atomic.Pointer[[]string]
	c.rebalance = func(context.Context, string, string) error {
		list := c.addresses()
		targets.Store(&list)
		return nil
	}
	if err := c.rebalance(context.Background(), "", ""); err != nil {
		return err
	}
	var turn atomic.Uint64
	next := func() *url.URL {
		list := *targets.Load()
		return &url.URL{Scheme: "http", Host: list[turn.Add(1)%uint64(len(list))]}
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(next()) },
		Transport: &passOn{
			// One idle connection for each client that the plan may have.
			RoundTripper: &http.Transport{MaxIdleConnsPerHost: 1024, MaxIdleConns: 0, IdleConnTimeout: idleWithin},
			hosts:        func() []string { return *targets.Load() },
		},
		ErrorLog: log.New(io.Discard, "", 0), // the client gets the error, and counts it
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("start balancer: %w", err)
	}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	c.URL = "http://" + listener.Addr().String()
	c.Balancer = servers.Info{Name: "net/http reverse proxy", Started: servers.Embedded}
	c.closer = func(context.Context) error {
		err := server.Close()
		if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}
	return nil
}

// passOn gives a request to the next replica where one cannot be connected to,
// as nginx does: no byte of it was sent, so that it cannot be executed twice.
type passOn struct {
	http.RoundTripper
	hosts func() []string
}

// RoundTrip asks one replica after the other until a connection is made.
func (p *passOn) RoundTrip(r *http.Request) (response *http.Response, err error) {
	hosts := p.hosts()
	at := slices.Index(hosts, r.URL.Host)
	for range hosts {
		response, err = p.RoundTripper.RoundTrip(r)
		failed, ok := errors.AsType[*net.OpError](err)
		if !ok || failed.Op != "dial" || r.Body != nil {
			break
		}
		at++ // and not the next turn, which other requests take too
		r = r.Clone(r.Context())
		r.URL.Host = hosts[at%len(hosts)]
	}
	return response, err
}
