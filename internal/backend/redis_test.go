package backend_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// redisOptions have another value in each field.
func redisOptions() backend.RedisOptions {
	return backend.RedisOptions{
		Addresses: []string{"127.0.0.1:1"}, Username: "user", Password: "secret", TLS: &tls.Config{ServerName: "redis.example"},
		DB: 3, Replica: "shop", Timeout: 7 * time.Second, PoolSize: 11,
	}
}

// hangUp closes a client that was never connected.
func hangUp(t *testing.T, client io.Closer) {
	t.Helper()
	must.Do(t, client.Close())
}

// Every option reaches the client of one server and that of a cluster, and none of them does more
// than it is asked to: commands and connections are tried once, and end with their context.
func TestTheOptionsOfRedisReachItsClients(t *testing.T) {
	one, ok := backend.NewRedis(redisOptions()).(*redis.Client)
	if !ok {
		t.Fatal("the client of one server is none")
	}
	defer hangUp(t, one)
	options := redisOptions()
	options.Cluster = true
	cluster, ok := backend.NewRedis(options).(*redis.ClusterClient)
	if !ok {
		t.Fatal("the client of a cluster with one address is none")
	}
	defer hangUp(t, cluster)
	a, b := one.Options(), cluster.Options()
	for what, c := range map[string]struct{ one, cluster, want any }{
		"address":             {a.Addr, strings.Join(b.Addrs, ","), "127.0.0.1:1"},
		"user":                {a.Username, b.Username, "user"},
		"password":            {a.Password, b.Password, "secret"},
		"name":                {a.ClientName, b.ClientName, "stockd-shop"},
		"encryption":          {a.TLSConfig.ServerName, b.TLSConfig.ServerName, "redis.example"},
		"dial timeout":        {a.DialTimeout, b.DialTimeout, 7 * time.Second},
		"read timeout":        {a.ReadTimeout, b.ReadTimeout, 7 * time.Second},
		"write timeout":       {a.WriteTimeout, b.WriteTimeout, 7 * time.Second},
		"pool":                {a.PoolSize, b.PoolSize, 11},
		"wait for the pool":   {a.PoolTimeout, b.PoolTimeout, time.Hour},
		"protocol":            {a.Protocol, b.Protocol, 2},
		"ends with a context": {a.ContextTimeoutEnabled, b.ContextTimeoutEnabled, true},
		"anonymous library":   {a.DisableIdentity, b.DisableIdentity, true},
	} {
		if c.one != c.want || c.cluster != c.want {
			t.Errorf("%s: %v, and %v of a cluster, want %v", what, c.one, c.cluster, c.want)
		}
	}
	if a.DB != 3 || a.MaxRetries != 0 || a.DialerRetries != 1 {
		t.Errorf("database %d, %d retries, %d dials; want 3, none and one", a.DB, a.MaxRetries, a.DialerRetries)
	}
	if b.ClusterStateReloadInterval > time.Second {
		t.Errorf("a failover is found after %s, want a second", b.ClusterStateReloadInterval)
	}
}

// Another client is like the first one, with connections of its own.
func TestAnotherClientOfRedisHasItsOwnConnections(t *testing.T) {
	c := &backend.Clients{RedisOptions: redisOptions()}
	another := c.AnotherRedis(2)
	defer hangUp(t, another)
	one, ok := another.(*redis.Client)
	if !ok || one.Options().PoolSize != 2 || one.Options().ClientName != "stockd-shop" || one.Options().DB != 3 {
		t.Errorf("another client is %v, want 2 connections of the same options", another)
	}
	should.Be(t, c.RedisOptions.PoolSize, 11, "the shared options have … connections now")
}

// Sentinels have a user and a password of their own, and are asked for the master by its name.
func TestSentinelsAreAskedForTheMaster(t *testing.T) {
	sentinel := newScripted(t)
	client := backend.NewRedis(backend.RedisOptions{
		Addresses: []string{sentinel.address}, Master: "stock", Username: "user", Password: "secret",
		SentinelUsername: "watch", SentinelPassword: "tower", Timeout: answerWithin, PoolSize: 1,
	})
	defer hangUp(t, client)
	_ = client.Ping(t.Context()).Err() // it knows no master
	for _, want := range []string{"auth watch tower", "sentinel get-master-addr-by-name stock"} {
		if sentinel.count(want) == 0 {
			t.Errorf("it was never asked %q, but\n%s", want, sentinel)
		}
	}
	if n := sentinel.count("auth user secret"); n > 0 {
		t.Error("the Sentinel was told the master's password")
	}
}

// A script whose answer was lost may have run: it is sent once.
func TestACommandIsSentOnce(t *testing.T) {
	server := newScripted(t)
	client := backend.NewRedis(backend.RedisOptions{Addresses: []string{server.address}, Timeout: answerWithin, PoolSize: 2})
	defer hangUp(t, client)
	server.hangUpAt("eval")
	if err := client.Eval(t.Context(), "return 1", nil).Err(); err == nil || errors.Is(err, backend.ErrNotConnected) {
		t.Errorf("%v, want the end of a connection", err)
	}
	should.Be(t, server.count("eval"), 1, "the script was sent … times")
}

// Where no connection was made nothing has happened, and the error says so.
func TestAConnectionThatIsNotMadeIsToldFromOneThatBreaks(t *testing.T) {
	port := must.Get(servers.FreePort())(t)
	client := backend.NewRedis(backend.RedisOptions{Addresses: []string{servers.Loopback(port)}, Timeout: answerWithin, PoolSize: 1})
	defer hangUp(t, client)
	if err := client.Ping(t.Context()).Err(); !errors.Is(err, backend.ErrNotConnected) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v, want %v and why", err, backend.ErrNotConnected)
	}
	for _, first := range []string{"hello", "client", "select"} {
		server := newScripted(t)
		client := backend.NewRedis(backend.RedisOptions{Addresses: []string{server.address}, DB: 3, Timeout: answerWithin, PoolSize: 1})
		defer hangUp(t, client)
		server.hangUpAt(first)
		if err := client.Eval(t.Context(), "return 1", nil).Err(); !errors.Is(err, backend.ErrNotConnected) || server.count("eval") != 0 {
			t.Errorf("broken at %s: %v, and the script was sent %d times; want %v", first, err, server.count("eval"), backend.ErrNotConnected)
		}
	}
}

func TestTheVersionOfRedisIsReadFromTheServer(t *testing.T) {
	client := labtest.RedisClient(lab.Redis(t))
	defer hangUp(t, client)
	if version, err := backend.RedisVersion(t.Context(), client); err != nil || !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(version) {
		t.Errorf("the version is %q (%v)", version, err)
	}
	server := newScripted(t)
	odd := backend.NewRedis(backend.RedisOptions{Addresses: []string{server.address}, Timeout: answerWithin, PoolSize: 1})
	defer hangUp(t, odd)
	if version, err := backend.RedisVersion(t.Context(), odd); err == nil {
		t.Errorf("a server that tells no version has %q", version)
	}
}

// scripted answers OK to every command of an old Redis, and writes it down.
type scripted struct {
	address string

	mu       sync.Mutex
	commands []string
	last     string // the command at which it hangs up
}

func newScripted(t *testing.T) *scripted {
	t.Helper()
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	s := &scripted{address: listener.Addr().String()}
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() }) // or it is closed already
			all.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		end()
		_ = listener.Close() // the test is over
		all.Wait()
	})
	return s
}

// serve reads commands, which are arrays of texts.
func (s *scripted) serve(conn net.Conn) {
	defer conn.Close() //nolint:errcheck // it is of no use
	in := bufio.NewReader(conn)
	for {
		var words, length int
		if _, err := fmt.Fscanf(in, "*%d\r\n", &words); err != nil {
			return
		}
		command := make([]string, words)
		for i := range command {
			if _, err := fmt.Fscanf(in, "$%d\r\n", &length); err != nil {
				return
			}
			word := make([]byte, length+2)
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			command[i] = string(word[:length])
		}
		if s.note(strings.Join(command, " ")) {
			return
		}
		answer := "+OK\r\n"
		if command[0] == "hello" {
			answer = "-ERR unknown command\r\n" // as of a server before version 6
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

func (s *scripted) note(command string) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, command)
	return s.last != "" && strings.HasPrefix(command, s.last)
}

func (s *scripted) hangUpAt(command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = command
}

// count is how many commands begin with a text.
func (s *scripted) count(command string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		if strings.HasPrefix(c, command) {
			n++
		}
	}
	return n
}

func (s *scripted) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.commands, "\n")
}
