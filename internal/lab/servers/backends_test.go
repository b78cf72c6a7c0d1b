package servers_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

// startBackends starts backends for a test, and shows what was said meanwhile.
func startBackends(t *testing.T, text string) (b *servers.Backends, said []string) {
	t.Helper()
	choice, err := servers.ParseChoice(text)
	if err != nil {
		t.Fatal(err)
	}
	b, err = servers.StartBackends(t.Context(), lab.Supervisor(), choice, func(words string) { said = append(said, words) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, b) })
	return b, said
}

func TestEmbeddedBackendsNeedNothing(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("JAVA_HOME", "")
	b, said := startBackends(t, "embedded")
	want := map[string]string{
		"zookeeper": "needs ZooKeeper: zookeeper has no embedded form; apt-get install zookeeper brings a server",
		"etcd":      "needs etcd: etcd has no embedded form; apt-get install etcd-server brings it",
	}
	if !maps.Equal(b.Missing, want) {
		t.Errorf("missing are %q, want %q", b.Missing, want)
	}
	infos := b.Infos()
	if got := slices.Sorted(maps.Keys(infos)); !slices.Equal(got, []string{"database", "redis", "redlock"}) {
		t.Errorf("there are %q", got)
	}
	for name, info := range infos {
		if info.Started != servers.Embedded || info.Name == "" {
			t.Errorf("the %s is %+v", name, info)
		}
	}
	if len(said) != 5 || said[0] != "starting database, redis, redlock, zookeeper, etcd" {
		t.Errorf("said is %q", said)
	}
	if got := names(b.Env()); !slices.Equal(got, []string{
		"STOCKD_DATABASE_DRIVER", "STOCKD_DATABASE_DSN", "STOCKD_DATABASE_PASSWORD",
		"STOCKD_REDIS_ADDRESSES", "STOCKD_REDIS_PASSWORD", "STOCKD_REDLOCK_ADDRESSES", "STOCKD_REDLOCK_PASSWORD",
	}) {
		t.Errorf("a replica gets %q", got)
	}
	if err := open(t, b.Redis).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
	closed(t, b)
	if err := open(t, b.Redis).Ping(t.Context()).Err(); err == nil {
		t.Error("an embedded Redis answers after its close")
	}
}

func names(env []string) []string {
	list := make([]string, len(env))
	for i, one := range env {
		list[i], _, _ = strings.Cut(one, "=")
	}
	return list
}

func TestAutoEmbedsWhatIsNotOnThisMachine(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("JAVA_HOME", "")
	if _, err := servers.Find("redis-server"); err == nil {
		t.Skip("there is a server in a folder where systems put them, which cannot be hidden")
	}
	b, _ := startBackends(t, "auto,database=sqlite")
	if b.Redis.Started != servers.Embedded {
		t.Errorf("there are %+v", b.Infos())
	}
	if got := slices.Sorted(maps.Keys(b.Missing)); !slices.Equal(got, []string{"etcd", "zookeeper"}) {
		t.Errorf("missing are %q", b.Missing)
	}
}

func TestLocalBackendsThatAreNotOnThisMachineAreMissing(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("JAVA_HOME", "")
	if _, err := servers.Find("redis-server"); err == nil {
		t.Skip("there is a server in a folder where systems put them, which cannot be hidden")
	}
	b, _ := startBackends(t, "local,database=sqlite")
	for name, want := range map[string]string{
		"redis":     "needs Redis: redis-server: not found on this machine; apt-get install redis-server brings it",
		"redlock":   "needs Redis: redis-server: not found on this machine; apt-get install redis-server brings it",
		"zookeeper": "needs ZooKeeper: java: not found on this machine; apt-get install zookeeper brings it",
		"etcd":      "needs etcd: not found on this machine; apt-get install etcd-server brings it",
	} {
		if b.Missing[name] != want {
			t.Errorf("the %s is missing because %q, want %q", name, b.Missing[name], want)
		}
	}
}

func TestADatabaseMustBeThere(t *testing.T) {
	b, err := servers.StartBackends(t.Context(), lab.Supervisor(),
		servers.Choice{Mode: servers.Embedded, Database: servers.MySQL}, func(string) {})
	if err == nil || b != nil {
		t.Errorf("there is %+v: %v", b, err)
	}
}

func TestWhatAChoiceLeavesOutIsMissing(t *testing.T) {
	b, _ := startBackends(t, "embedded,redis=none,zookeeper=none,etcd=none")
	const left = "left out by --servers"
	want := map[string]string{"redis": left, "redlock": left, "zookeeper": left, "etcd": left}
	if !maps.Equal(b.Missing, want) || len(b.Infos()) != 1 {
		t.Errorf("missing are %q, and there are %+v", b.Missing, b.Infos())
	}
}

func TestLocalBackendsRunAtOnce(t *testing.T) {
	lab.Redis(t)
	lab.ZooKeeper(t)
	lab.Etcd(t)
	b, _ := startBackends(t, "local,database=sqlite")
	if len(b.Missing) > 0 {
		t.Errorf("missing are %q", b.Missing)
	}
	for name, info := range b.Infos() {
		if name != "database" && info.Started != servers.Local {
			t.Errorf("the %s is %+v", name, info)
		}
	}
	if got := len(names(b.Env())); got != 9 {
		t.Errorf("a replica gets %q", names(b.Env()))
	}
}

// What runs in this process must not write between its lines. A process of its
// own shows what is written past the testing package, too.
func TestEmbeddedBackendsPrintNothing(t *testing.T) {
	const inside = "STOCKDTEST_INSIDE"
	if os.Getenv(inside) != "" {
		b, _ := startBackends(t, "embedded")
		if err := errors.Join(b.Redis.Kill(t.Context()), b.Redis.Restart(t.Context())); err != nil {
			t.Error(err)
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	var printed, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complained
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &printed, &complained)
	}
	if complained.Len() > 0 || !strings.HasPrefix(printed.String(), "PASS\n") {
		t.Errorf("it printed:\n%s\nand complained:\n%s", &printed, &complained)
	}
}
