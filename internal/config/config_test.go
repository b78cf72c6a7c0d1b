package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func flags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(set)
	must.Do(t, set.Parse(args))
	return set
}

func load(t *testing.T, path string, args ...string) *config.Loaded {
	t.Helper()
	return must.Get(config.Load(path, flags(t, args...)))(t)
}

func TestAFlagWinsOverAVariableAndAVariableOverTheFile(t *testing.T) {
	path := write(t, "stockd.yaml", "database:\n  max_open: 3\n  lock_wait: 3s\n  dsn: three.db\n")
	t.Setenv("STOCKD_DATABASE_LOCK_WAIT", "4s")
	t.Setenv("STOCKD_DATABASE_DSN", "four.db")
	c := load(t, path, "--database-dsn=five.db")
	if c.Database.MaxOpen != 3 || c.Database.LockWait != 4*time.Second || c.Database.DSN != "five.db" {
		t.Errorf("%+v, want 3 of the file, 4s of the variable, five.db of the flag", c.Database)
	}
	for key, source := range map[string]string{
		"database.max_open": path + ":2", "database.lock_wait": "STOCKD_DATABASE_LOCK_WAIT",
		"database.dsn": "--database-dsn", "database.driver": "default",
	} {
		should.Be(t, c.Source(key), source, key)
	}
}

// Every mistake names its key, and the line, the variable or the flag.
func TestMistakesAreNamedWithTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name, file string
		env        map[string]string
		args       []string
		want       []string
	}{
		{name: "an unknown key", file: "database:\n  max_opne: 3\n", want: []string{"stockd.yaml:2", "database.max_opne", "database.max_open?"}},
		{name: "an unknown section", file: "\n\ndatabse:\n  dsn: x\n", want: []string{"stockd.yaml:4", "databse.dsn"}},
		{name: "a value where a section is", file: "database: x\n", want: []string{"stockd.yaml:1", "database is not a key"}},
		{name: "keys below a key", file: "replica: {a: b}\n", want: []string{"stockd.yaml:1", "replica must be one value"}},
		{name: "one of a list that is no choice", args: []string{"--lab-enabled=true", "--lab-without=pause,fear"}, want: []string{"--lab-without", "reaper or one-server or pause or pool", `"fear"`}},
		{name: "a range with a value that switches off", args: []string{"--limit-user-rate=-1"}, want: []string{"--limit-user-rate: limit.user_rate must be 0, or 0.001 to 1000000, not -1"}},
		{name: "a tag for a value", file: "database:\n  password: !secret\n", want: []string{"stockd.yaml:2", "database.password", "in quotes"}},
		{name: "a tag before a value", file: "database:\n  password: !secret x\n", want: []string{"stockd.yaml:2", "database.password", "in quotes"}},
		{name: "an anchor for a value", file: "database:\n  password: &secret\n", want: []string{"stockd.yaml:2", "database.password", "in quotes"}},
		{name: "a number by force", file: "replica: !!int 7\n", want: []string{"stockd.yaml:1", "replica", "in quotes"}},
		{name: "a comment for a secret", file: "database:\n  password: #secret\n", want: []string{"stockd.yaml:2", "database.password", "in quotes"}},
		{name: "a comment behind a secret", file: "database:\n  password: x #secret\n  driver: sqlite\n", want: []string{"stockd.yaml:2", "database.password", "in quotes"}},
		{name: "a list", file: "replica: [a]\n", want: []string{"stockd.yaml:1", "replica"}},
		{name: "no YAML", file: "database: {\n", want: []string{"stockd.yaml"}},
		{name: "YAML that is a list", file: "- a\n", want: []string{"stockd.yaml:1"}},
		{name: "two documents", file: "log:\n  level: warn\n---\nadmin:\n  required: true\n", want: []string{"stockd.yaml:3", "one document"}},
		{name: "a key twice", file: "log:\n  level: info\nlog:\n  level: warn\n", want: []string{"stockd.yaml"}},
		{name: "an address without a port", args: []string{"--redis-addresses=localhost"}, want: []string{"--redis-addresses", "redis.addresses", "127.0.0.1:8080"}},
		{name: "two masters", args: []string{"--redlock-addresses=a:1,b:1"}, want: []string{"--redlock-addresses", "odd number", "not 2"}},
		{name: "several addresses of nothing that has several", args: []string{"--redis-addresses=a:1,b:1"}, want: []string{"redis.addresses", "redis.cluster", "redis.master"}},
		{name: "a database of a cluster", args: []string{"--redis-cluster=true", "--redis-db=1"}, want: []string{"--redis-db", "must be 0, not 1"}},
		{
			name: "Sentinels and a cluster", env: map[string]string{"STOCKD_REDIS_MASTER": "shop"}, args: []string{"--redis-cluster=true"},
			want: []string{"STOCKD_REDIS_MASTER: redis.master and redis.cluster are both set (--redis-cluster)"},
		},
		{name: "a user of Sentinels that there are not", args: []string{"--redis-sentinel-username=shop"}, want: []string{"--redis-sentinel-username", "redis.master is not set"}},
		{
			name: "a password of Sentinels that there are not", env: map[string]string{"STOCKD_REDIS_SENTINEL_PASSWORD": "x"},
			want: []string{"STOCKD_REDIS_SENTINEL_PASSWORD", "redis.sentinel_password", "redis.master is not set"},
		},
		{name: "an endpoint without a scheme", args: []string{"--etcd-endpoints=127.0.0.1:2379"}, want: []string{"--etcd-endpoints", "http://127.0.0.1:2379"}},
		{name: "a digest without a password", args: []string{"--zookeeper-auth=stockd"}, want: []string{"--zookeeper-auth", "user:password"}},
		{name: "a hung Redis that would look busy", args: []string{"--redis-addresses=a:1", "--redis-timeout=6s"}, want: []string{"--redis-timeout", "below lock.wait (5s, from default), not 6s"}},
		{name: "a bad duration", file: "lock:\n  wait: 5 sec\n", want: []string{"stockd.yaml:2", "lock.wait", "5s or 250ms", `"5 sec"`}},
		{name: "a bad number", file: "database:\n  max_open: many\n", want: []string{"stockd.yaml:2", "database.max_open", "whole number"}},
		{name: "a number out of range", file: "database:\n  max_open: 0\n", want: []string{"stockd.yaml:2", "database.max_open", "1 to 10000"}},
		{name: "a bad flag of a file", file: "database:\n  migrate: maybe\n", want: []string{"stockd.yaml:2", "database.migrate", "true or false"}},
		{name: "a bad choice", file: "database:\n  driver: postgres\n", want: []string{"stockd.yaml:2", "database.driver", "sqlite or mysql"}},
		{name: "a bad address", file: "http:\n  listen: here\n", want: []string{"stockd.yaml:2", "http.listen", "127.0.0.1:8080"}},
		{name: "a DSN that is none", file: "database:\n  driver: mysql\n  dsn: secret@nowhere\n", want: []string{"stockd.yaml:3", "database.dsn"}},
		{name: "what is no text", env: map[string]string{"STOCKD_REPLICA": "\xff"}, want: []string{"STOCKD_REPLICA", "replica", "UTF-8"}},
		{name: "a name that no row of the ledger has room for", args: []string{"--replica=" + strings.Repeat("r", 129)}, want: []string{"--replica: replica must be up to 128 characters, not 129"}},
		{name: "a file that is not there", file: "admin:\n  token_file: /nonexistent\n", want: []string{"stockd.yaml:2", "admin.token_file"}},
		{name: "an unreachable wait", file: "lock:\n  wait: 20s\n", want: []string{"stockd.yaml:2", "lock.wait must be below deduct.timeout (10s, from default), not 20s"}},
		{name: "a purchase of no time", file: "deduct:\n  timeout: -5s\n", want: []string{"stockd.yaml:2: deduct.timeout must be at least 1s, not -5s"}},
		{
			name: "an unreachable wait by a variable", file: "deduct:\n  timeout: 4s\n", env: map[string]string{"STOCKD_LOCK_WAIT": "4s"},
			want: []string{"STOCKD_LOCK_WAIT", "lock.wait", "stockd.yaml:2"},
		},
		{name: "a hold beyond the longest", args: []string{"--reserve-ttl=2h"}, want: []string{"--reserve-ttl: reserve.ttl must be up to reserve.longest, which is 1h0m0s, not 2h0m0s"}},
		{name: "a lab that is not on", args: []string{"--lab-history=h.jsonl", "--lab-without=reaper"}, env: map[string]string{"STOCKD_LAB_CLOCK_OFFSET": "1s"}, want: []string{"--lab-history", "--lab-without", "STOCKD_LAB_CLOCK_OFFSET", "lab.enabled"}},
		{name: "a proxy by its name", args: []string{"--http-trusted-proxies=10.0.0.0/8, balancer"}, want: []string{"--http-trusted-proxies", "http.trusted_proxies", `"balancer"`}},
		{name: "a rate that is no number", args: []string{"--limit-address-rate=NaN"}, want: []string{"--limit-address-rate", "0.001 to 1000000"}},
		{name: "a rate in words", args: []string{"--limit-address-rate=many"}, want: []string{"--limit-address-rate", "a number", `"many"`}},
		{name: "a token that is missing", file: "admin:\n  required: true\n", want: []string{"stockd.yaml:2", "admin.token", "admin.token_file"}},
		{name: "a buyer from nowhere", file: "buyer:\n  from: cookie\n", want: []string{"stockd.yaml:2", "buyer.from", "request or header or token"}},
		{name: "a header that no peer may send", file: "buyer:\n  from: header\n", want: []string{"stockd.yaml:2", "buyer.from", "http.trusted_proxies"}},
		{name: "a header that is none", args: []string{"--buyer-from=header", "--http-trusted-proxies=::1", "--buyer-header=my buyer"}, want: []string{"--buyer-header", "buyer.header", `"my buyer"`}},
		{name: "tokens without keys", file: "buyer:\n  from: token\n", want: []string{"stockd.yaml:2", "buyer.from", "buyer.jwks_file", "buyer.secret_file"}},
		{name: "keys without tokens", args: []string{"--buyer-secret=" + strings.Repeat("x", 32)}, want: []string{"buyer.from", "is request"}},
		{
			name: "two kinds of keys", env: map[string]string{"STOCKD_BUYER_SECRET": strings.Repeat("x", 32)}, args: []string{"--buyer-from=token", "--buyer-jwks-file=keys"},
			want: []string{"--buyer-jwks-file: buyer.jwks_file and buyer.secret are both set (STOCKD_BUYER_SECRET)"},
		},
		{name: "a bad variable", env: map[string]string{"STOCKD_LOCK_WAIT": "soon"}, want: []string{"STOCKD_LOCK_WAIT", "lock.wait"}},
		{name: "an unknown variable", env: map[string]string{"STOCKD_LOCK_WIAT": "5s"}, want: []string{"STOCKD_LOCK_WIAT", "STOCKD_LOCK_WAIT?"}},
		{name: "a variable that looks like one of Kubernetes", env: map[string]string{"STOCKD_PORT_NUMBER": "80"}, want: []string{"STOCKD_PORT_NUMBER: is not a variable"}},
		{name: "a port that is none of Kubernetes", env: map[string]string{"STOCKD_HTTP_PORT": "8080"}, want: []string{"STOCKD_HTTP_PORT: is not a variable"}},
		{name: "an empty variable", env: map[string]string{"STOCKD_DATABASE_DSN": ""}, want: []string{"STOCKD_DATABASE_DSN", "database.dsn"}},
		{
			name: "everything at once", file: "lock:\n  wait: x\n", env: map[string]string{"STOCKD_HTTP_DRAIN": "y"}, args: []string{"--log-level=z", "--database-max-open=w"},
			want: []string{"lock.wait", "STOCKD_HTTP_DRAIN", "--database-max-open"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			path := ""
			if c.file != "" {
				path = write(t, "stockd.yaml", c.file)
			}
			_, err := config.Load(path, flags(t, c.args...))
			if err == nil {
				t.Fatal("no error")
			}
			should.Contain(t, err.Error(), c.want...)
		})
	}
}

// A comment is one where a blank follows #, or where the value is no secret.
func TestCommentsAreNoMistake(t *testing.T) {
	c := load(t, write(t, "stockd.yaml", "# a\nreplica: a #b\nredis:\n  addresses: #cache:6379\ndatabase:\n  password: # none\n#etcd:\nadmin:\n  token: \"0123456789#abcdef\" # b\n  #c\n"))
	if c.Replica != "a" || len(c.Redis.Addresses) > 0 || c.Database.Password.Reveal() != "" || c.Admin.Token.Reveal() != "0123456789#abcdef" {
		t.Errorf("it is read as %+v", c.Config)
	}
}

func TestAFileThatIsNotThereIsAnError(t *testing.T) {
	if _, err := config.Load("/nonexistent/stockd.yaml", nil); err == nil || !strings.Contains(err.Error(), "/nonexistent/stockd.yaml") {
		t.Errorf("error is %v, want one that names the file", err)
	}
}

func TestVariablesOfKubernetesAreNotOurs(t *testing.T) {
	t.Setenv(config.PathEnv, "stockd.yaml") // which is no key
	for name, value := range map[string]string{
		"STOCKD_SERVICE_HOST": "10.0.0.1", "STOCKD_SERVICE_PORT": "8080", "STOCKD_SERVICE_PORT_HTTP": "8080",
		"STOCKD_PORT": "tcp://10.0.0.1:8080", "STOCKD_PORT_8080_TCP": "tcp://10.0.0.1:8080", "STOCKD_PORT_8080_TCP_ADDR": "10.0.0.1",
		"STOCKD_ADMIN_SERVICE_HOST": "fd00::1", "STOCKD_ADMIN_SERVICE_PORT": "8081", "STOCKD_ADMIN_SERVICE_PORT_ADMIN": "8081", "STOCKD_ADMIN_PORT": "tcp://[fd00::1]:8081",
		"STOCKD_ADMIN_PORT_8081_TCP": "tcp://[fd00::1]:8081", "STOCKD_ADMIN_PORT_8081_TCP_PROTO": "tcp", "STOCKD_ADMIN_PORT_8081_TCP_PORT": "8081", "STOCKD_ADMIN_PORT_8081_TCP_ADDR": "fd00::1",
		"STOCKD_HTTP_V2_PORT": "udp://10.0.0.1:53", "STOCKD_HTTP_V2_PORT_53_UDP_PROTO": "udp", "STOCKD_DATABASE_PORT_1_SCTP": "sctp://10.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	load(t, "")
}

// What stockd config prints can be read back, and means the same.
func TestThePrintedConfigurationCanBeRead(t *testing.T) {
	c := load(t, "", "--replica=shop: 1 # the first", "--lock-wait=1500ms", "--database-dsn=/tmp/a b.db",
		"--redis-addresses=one:6379, two:6379", "--redis-cluster=true", "--limit-user-rate=0.5")
	var printed bytes.Buffer
	must.Do(t, c.Print(&printed))
	again := load(t, write(t, "printed.yaml", printed.String()))
	if !reflect.DeepEqual(again.Config, c.Config) {
		t.Errorf("printed\n%s\nread back as %+v, want %+v", printed.String(), again.Config, c.Config)
	}
}

func TestAFlagShowsItsDefaultWhereThereIsOne(t *testing.T) {
	for name, want := range map[string]string{"database-driver": "(default sqlite)", "redis-master": ""} {
		if usage := flags(t).Lookup(name).Usage; !strings.HasSuffix(usage, want) || strings.Contains(usage, "default") != (want != "") {
			t.Errorf("--%s is described as %q, want the end %q", name, usage, want)
		}
	}
}

// closedPipe is a writer whose reader has gone.
type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestAConfigurationThatCannotBePrintedIsAnError(t *testing.T) {
	should.Fail(t, load(t, "").Print(closedPipe{}), os.ErrClosed, "printed")
	should.Fail(t, config.Example(closedPipe{}), os.ErrClosed, "the example is written")
}

// The file in configs documents every key with its default: it is made from
// the same declarations. To make it anew: stockd config --example.
func TestTheDocumentedFileIsUpToDate(t *testing.T) {
	const path = "../../configs/stockd.yaml"
	var example bytes.Buffer
	must.Do(t, config.Example(&example))
	content := must.Get(os.ReadFile(path))(t)
	if !bytes.Equal(content, example.Bytes()) {
		t.Errorf("%s is not what stockd config --example prints", path)
	}
	if documented, defaults := load(t, path), load(t, ""); !reflect.DeepEqual(documented.Config, defaults.Config) {
		t.Errorf("the file means %+v, the defaults are %+v", documented.Config, defaults.Config)
	}
}
