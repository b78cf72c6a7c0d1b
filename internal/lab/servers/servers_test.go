package servers_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

var lab *labtest.Lab

func TestMain(m *testing.M) {
	servers.SuperviseIfAsked()
	if len(os.Args) == 2 && os.Args[1] == clientArgument {
		superviseAndWait()
	}
	os.Exit(labtest.Main(m, &lab))
}

func TestChoices(t *testing.T) {
	for text, want := range map[string]servers.Choice{
		"auto":                   {Mode: servers.Auto},
		"embedded":               {Mode: servers.Embedded},
		"local,database=mysql":   {Mode: servers.Local, Database: servers.MySQL},
		"auto,database=sqlite":   {Mode: servers.Auto, Database: servers.SQLite},
		"local,database=mariadb": {Mode: servers.Local, Database: servers.MariaDB},
		"auto,redis=embedded":    {Mode: servers.Auto, Redis: servers.Embedded},
		"embedded,redis=local,zookeeper=local,etcd=local": {
			Mode: servers.Embedded, Redis: servers.Local, ZooKeeper: servers.Local, Etcd: servers.Local,
		},
		"local,etcd=none,database=sqlite,zookeeper=none,redis=none": {
			Mode: servers.Local, Database: servers.SQLite, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None,
		},
	} {
		if got, err := servers.ParseChoice(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %+v (%v), want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "remote", "none", "local,database=oracle", "local,database=none", "local,cache=redis", "local,database",
		"local,redis=redis", "local,redis=auto", "local,zookeeper=embedded", "local,etcd=embedded", "local,etcd=", "local,etcd=none=none",
		"embedded,database=mariadb", "embedded,database=mysql", "embedded,database=vitess",
	} {
		if c, err := servers.ParseChoice(text); err == nil || !reflect.DeepEqual(c, servers.Choice{}) {
			t.Errorf("%q is taken for a choice: %+v (%v)", text, c, err)
		}
	}
}

// A start that fails says which server it was, and shows what the server said.
func TestAFailingStartShowsTheEndOfTheLog(t *testing.T) {
	folder := t.TempDir()
	script := `#!/bin/sh
case "$*" in
*--version*) echo "mysqld Ver 9.9.9 for a test" ;;
*--initialize-insecure*) mkdir "$(echo "$*" | sed 's/.*--datadir=\([^ ]*\).*/\1/')" ;;
*) seq -f "[Note] line %g" 20; echo "[ERROR] the disk is on fire"; exit 3 ;;
esac
`
	fake := filepath.Join(folder, "mysqld")
	must.Do(t, os.WriteFile(fake, []byte(script), 0o700))
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	_, err := servers.StartDatabase(t.Context(), lab.Supervisor(), servers.Choice{Mode: servers.Local, Database: servers.MySQL})
	if err == nil {
		t.Fatal("a server that ends at once was started")
	}
	should.Contain(t, err.Error(), "start mysql", "exit status 3", "[Note] line 7\n", "the disk is on fire")
	if strings.Contains(err.Error(), "[Note] line 6\n") {
		t.Errorf("the error has more than 15 lines of the log:\n%v", err)
	}
}

// A start that is cancelled while the server makes its data leaves no process to a supervisor that goes on.
func TestAStartThatIsCancelledEndsWhatMakesTheData(t *testing.T) {
	folder := t.TempDir()
	script := `#!/bin/sh
case "$*" in
*--version*) echo "mysqld Ver 9.9.9 for a test" ;;
*) sleep 0.3; echo $$ >"` + folder + `/next" && mv "` + folder + `/next" "` + folder + `/pid" && exec sleep 60 ;;
esac
`
	must.Do(t, os.WriteFile(filepath.Join(folder, "mysqld"), []byte(script), 0o700))
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := servers.StartDatabase(ctx, lab.Supervisor(), servers.Choice{Mode: servers.Local, Database: servers.MySQL})
		failed <- err
	}()
	var content []byte
	if !labtest.Eventually(20*time.Second, func() (ok bool) {
		var err error
		content, err = os.ReadFile(filepath.Join(folder, "pid"))
		return err == nil
	}) {
		t.Fatal("the server makes no data")
	}
	cancel()
	should.Fail(t, <-failed, context.Canceled, "a start that was cancelled")
	pid := must.Get(strconv.Atoi(strings.TrimSpace(string(content))))(t)
	should.Fail(t, syscall.Kill(pid, 0), syscall.ESRCH, "process … goes on after the start was cancelled", pid)
}

func TestAPrivateServerLetsNobodyInWithoutThePassword(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		for _, user := range []string{"root", "stockd", ""} {
			stranger := *d
			stranger.Password = ""
			stranger.DSN = user + strings.TrimPrefix(d.DSN, "stockd")
			store, err := stranger.Open(t.Context(), "stranger", 1)
			if err == nil {
				t.Errorf("%q gets in without a password", user)
				store.Close() //nolint:errcheck // it should not be there
			}
		}
	})
}

// startBackends starts backends for a test, and shows what was said meanwhile.
func startBackends(t *testing.T, text string) (b *servers.Backends, said []string) {
	t.Helper()
	choice := must.Get(servers.ParseChoice(text))(t)
	b = must.Get(servers.StartBackends(t.Context(), lab.Supervisor(), choice, func(words string) { said = append(said, words) }))(t)
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
	should.Equal(t, slices.Sorted(maps.Keys(infos)), []string{"database", "redis", "redlock"}, "there are")
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
		"STOCKD_REDIS_ADDRESSES", "STOCKD_REDIS_USERNAME", "STOCKD_REDIS_PASSWORD",
		"STOCKD_REDLOCK_ADDRESSES", "STOCKD_REDLOCK_USERNAME", "STOCKD_REDLOCK_PASSWORD",
	}) {
		t.Errorf("a replica gets %q", got)
	}
	should.Do(t, open(t, b.Redis).Ping(t.Context()).Err())
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
	should.Be(t, b.Redis.Started, servers.Embedded, "there are …", b.Infos())
	should.Equal(t, slices.Sorted(maps.Keys(b.Missing)), []string{"etcd", "zookeeper"}, "missing are")
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
		should.Be(t, b.Missing[name], want, "the … is missing because", name)
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
	should.Be(t, len(names(b.Env())), 13, "a replica gets …", names(b.Env()))
}

// What runs in this process must not write between its lines. A process of its
// own shows what is written past the testing package, too.
func TestEmbeddedBackendsPrintNothing(t *testing.T) {
	const inside = "STOCKDTEST_INSIDE"
	if os.Getenv(inside) != "" {
		b, _ := startBackends(t, "embedded")
		should.Do(t, errors.Join(b.Redis.Kill(t.Context()), b.Redis.Restart(t.Context())))
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

// limit bounds what a test waits for.
const limit = 10 * time.Second

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// through is a Redis whose keys no other test uses, reached through a proxy
// and directly.
func through(t *testing.T) (p *servers.Proxy, far, near *redis.Client) {
	t.Helper()
	server := lab.OwnRedis(t)
	p = labtest.NewProxy(t, server.Address)
	at := *server
	at.Address = p.Address
	return p, open(t, &at), open(t, server)
}

func open(t *testing.T, r *servers.Redis) *redis.Client {
	t.Helper()
	client := r.Open()
	t.Cleanup(func() {
		should.Do(t, client.Close())
	})
	return client
}

// later does something, and tells how it ended.
func later(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

func ended(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(limit):
		t.Fatal("it does not end")
		return nil
	}
}

func pending(t *testing.T, done <-chan error, what string) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s has ended with %v", what, err)
	case <-time.After(100 * time.Millisecond):
	}
}
