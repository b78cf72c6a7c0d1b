// Package cmdtest is what the tests of the programs share: the servers they need, replicas
// in processes of their own, and the commands that documents show.
package cmdtest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/must"
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
