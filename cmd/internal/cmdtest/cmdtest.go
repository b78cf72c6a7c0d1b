// Package cmdtest is what the tests of the programs share: the servers they need, replicas
// in processes of their own, and the commands that documents show.
package cmdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// NeedLocal skips a test that needs a database server and nginx.
func NeedLocal(t *testing.T) {
	t.Helper()
	labtest.Need(t, "mariadb", len(servers.LocalDatabases()) > 0, "apt-get install mariadb-server brings it")
	_, err := servers.Find("nginx")
	labtest.Need(t, "nginx", err == nil, "apt-get install nginx-light brings it")
}

// NeedLockServers skips a test that needs every server of a lock.
func NeedLockServers(t *testing.T) {
	t.Helper()
	NeedRedis(t)
	_, err := servers.Find("etcd")
	labtest.Need(t, "etcd", err == nil, "apt-get install etcd-server brings it")
	_, _, err = servers.FindZooKeeper()
	labtest.Need(t, "zookeeper", err == nil, "apt-get install zookeeper brings it")
}

// NeedRedis skips a test that needs Redis.
func NeedRedis(t *testing.T) {
	t.Helper()
	_, err := servers.Find("redis-server")
	labtest.Need(t, "redis", err == nil, "apt-get install redis-server brings it")
}

// NeedDatabase skips a test that needs one kind of database server.
func NeedDatabase(t *testing.T, kind string) {
	t.Helper()
	found := slices.ContainsFunc(servers.LocalDatabases(), func(p servers.Program) bool { return p.Kind == kind })
	labtest.Need(t, kind, kind == "" || found, "it is used where it is found")
}

// Buffer may be written and read at the same time.
type Buffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write appends to it.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

// Contains reports whether it has the text.
func (b *Buffer) Contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.buffer.String(), text)
}

// Text is what was written.
func (b *Buffer) Text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// Environment is os.Environ without the configuration of a stockd.
func Environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "STOCKD_") {
			env = append(env, entry)
		}
	}
	return env
}

// Main is the TestMain of a program. Its test binary is the program, too: replicas and
// commands that a test starts are this binary with the name of a command as its first
// argument.
func Main(m *testing.M, run func(args []string, out, errOut io.Writer) int) {
	servers.SuperviseIfAsked()
	logging.Disable() // as the programs do
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// Run runs a command of a program to its end.
func Run(program func(args []string, out, errOut io.Writer) int, args ...string) (status int, out, errOut string) {
	var o, e bytes.Buffer
	status = program(args, &o, &e)
	return status, o.String(), e.String()
}

// Own starts a server for one test, which is skipped where the machine has none, or fails where it is required
// by what it is called.
func Own[S interface {
	Close(ctx context.Context) error
}](t *testing.T, what string, start func(context.Context) (S, error)) S {
	t.Helper()
	server, err := start(t.Context())
	if missing, ok := errors.AsType[*servers.MissingError](err); ok {
		labtest.Need(t, what, false, missing.How)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		should.Do(t, server.Close(context.WithoutCancel(t.Context())))
	})
	return server
}

// ContainsAll reports whether a text has all parts.
func ContainsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// ReadReport reads what --json wrote.
func ReadReport(t *testing.T, path string) (r Report) {
	t.Helper()
	content := must.Get(os.ReadFile(path))(t)
	must.Do(t, json.Unmarshal(content, &r))
	return r
}

// Report is a report of runs, with the servers of a demo.
type Report struct {
	Servers map[string]servers.Info `json:"servers"`
	Runs    []verdict.Run           `json:"runs"`
}

// RaceShadow is how many times the memory that it takes otherwise a test binary takes: the race detector
// remembers who touched what.
func RaceShadow() int64 {
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return 6
	}
	return 1
}
