package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// needLocal skips a test that needs a database server and nginx.
func needLocal(t *testing.T) {
	t.Helper()
	labtest.Need(t, "mariadb", len(servers.LocalDatabases()) > 0, "apt-get install mariadb-server brings it")
	_, err := servers.Find("nginx")
	labtest.Need(t, "nginx", err == nil, "apt-get install nginx-light brings it")
}

// needLockServers skips a test that needs every server of a lock.
func needLockServers(t *testing.T) {
	t.Helper()
	needRedis(t)
	_, err := servers.Find("etcd")
	labtest.Need(t, "etcd", err == nil, "apt-get install etcd-server brings it")
	_, _, err = servers.FindZooKeeper()
	labtest.Need(t, "zookeeper", err == nil, "apt-get install zookeeper brings it")
}

func needRedis(t *testing.T) {
	t.Helper()
	_, err := servers.Find("redis-server")
	labtest.Need(t, "redis", err == nil, "apt-get install redis-server brings it")
}

// needDatabase skips a test that needs one kind of database server.
func needDatabase(t *testing.T, kind string) {
	t.Helper()
	found := slices.ContainsFunc(servers.LocalDatabases(), func(p servers.Program) bool { return p.Kind == kind })
	labtest.Need(t, kind, kind == "" || found, "it is used where it is found")
}

func await(t *testing.T, what string, within time.Duration, is func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("waited %s for %s", within, what)
}

// syncBuffer is written by one goroutine and read by another.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.buffer.String(), text)
}

func (b *syncBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// environment is os.Environ without what is meant for a stockd.
func environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "STOCKD_") {
			env = append(env, entry)
		}
	}
	return env
}
