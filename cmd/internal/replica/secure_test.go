package replica

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/backend/check"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func TestMain(m *testing.M) {
	cmdtest.Main(m, func([]string, io.Writer, io.Writer) int { return 0 })
}

// secured is a backend that requires TLS and credentials.
type secured struct {
	backend    string // as errors name it
	section    string // of the configuration
	env        []string
	strategies []string
	wrong      []mistake
}

// mistake is a wrong setting, and what the error says about it.
type mistake struct {
	what string
	set  []string
	says string
}

// tlsMistakes are those that can be made of every backend's TLS.
func tlsMistakes(section, strangers string, more ...string) []mistake {
	prefix := "STOCKD_" + strings.ToUpper(section) + "_TLS_"
	return []mistake{
		{"without TLS", append([]string{prefix + "ENABLED=false", prefix + "CA_FILE=", prefix + "CERT_FILE=", prefix + "KEY_FILE="}, more...), ""},
		{"with another authority", []string{prefix + "CA_FILE=" + strangers}, "certificate"},
		{"with another name", []string{prefix + "SERVER_NAME=elsewhere.example"}, "elsewhere.example"},
	}
}

// uncertified is a client without a certificate. In TLS 1.3 the server rejects it after the client's
// handshake: the error is the server's reason, or only that the connection was closed.
func uncertified(section string) mistake {
	prefix := "STOCKD_" + strings.ToUpper(section) + "_TLS_"
	return mistake{"without a certificate of ours", []string{prefix + "CERT_FILE=", prefix + "KEY_FILE="}, ""}
}

// Each backend is reached with what it requires; without, the replica names the backend, and never
// reports that the item is sold out.
func TestBackendsThatAskForTLSAndPasswords(t *testing.T) {
	k := labtest.StartSupervisor(t)
	authority, strangers := newAuthority(t, k), newAuthority(t, k).CAFile
	strict, lenient := newSecurity(t, authority, true), newSecurity(t, authority, false)
	wrong := &rejectedSecrets{keys: make(map[string]bool)}
	t.Cleanup(func() { wrong.areAll(t) })
	for name, start := range map[string]func(t *testing.T) secured{
		"mariadb": func(t *testing.T) secured { return securedDatabase(t, k, servers.MariaDB, strict, strangers) },
		"mysql":   func(t *testing.T) secured { return securedDatabase(t, k, servers.MySQL, strict, strangers) },
		"redis": func(t *testing.T) secured {
			s := labtest.Own(t, k, "redis", servers.StartSecureRedis, strict)
			return securedRedis(s.Conn().Env(), strangers,
				mistake{"as the default user", []string{"STOCKD_REDIS_USERNAME="}, "WRONGPASS"}, uncertified("redis"))
		},
		"cluster": func(t *testing.T) secured {
			s := labtest.Own(t, k, "redis", servers.StartRedisCluster, servers.RedisClusterOptions{Masters: 3, Security: lenient})
			return securedRedis(s.Conn().Env(), strangers)
		},
		"sentinels": func(t *testing.T) secured {
			s := labtest.Own(t, k, "redis", servers.StartSentinels, lenient)
			return securedRedis(s.Conn().Env(), strangers,
				mistake{"without a login at the Sentinels", []string{"STOCKD_REDIS_SENTINEL_USERNAME=", "STOCKD_REDIS_SENTINEL_PASSWORD="}, "NOAUTH"},
				mistake{"as the default user of the Sentinels", []string{"STOCKD_REDIS_SENTINEL_USERNAME="}, "WRONGPASS"},
				mistake{"with a wrong password of the Sentinels", []string{"STOCKD_REDIS_SENTINEL_PASSWORD=a-guess-at-it"}, "WRONGPASS"},
				mistake{"with the master's password for the Sentinels", []string{"STOCKD_REDIS_SENTINEL_PASSWORD=" + s.Master.Password}, "WRONGPASS"})
		},
		"redlock": func(t *testing.T) secured {
			s := labtest.Own(t, k, "redis", servers.StartRedlockWith, servers.RedlockOptions{Security: lenient})
			return secured{"redlock", "redlock", s.Conn().Env(), []string{"redlock"}, append(tlsMistakes("redlock", strangers),
				mistake{"with a wrong password", []string{"STOCKD_REDLOCK_PASSWORD=a-guess-at-it"}, "WRONGPASS"})}
		},
		"zookeeper": func(t *testing.T) secured { return securedZooKeeper(t, k, strict, strangers) },
		"etcd": func(t *testing.T) secured {
			s := labtest.Own(t, k, "etcd", servers.StartSecureEtcd, strict)
			return secured{"etcd", "etcd", s.Conn().Env(), []string{"etcd"}, append(
				tlsMistakes("etcd", strangers, "STOCKD_ETCD_ENDPOINTS="+strings.Replace(s.Endpoint, "https:", "http:", 1)),
				uncertified("etcd"),
				mistake{"with a wrong password", []string{"STOCKD_ETCD_PASSWORD=a-guess-at-it"}, "authentication failed"})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			right := startInnards(t, append([]string{"STOCKD_LOCK_WAIT=20s", "STOCKD_DEDUCT_TIMEOUT=30s"}, s.env...))
			s.connects(t, right)
			s.isChecked(t)
			for i, name := range s.strategies {
				right.sells(t, name, int64(i+1))
			}
			for _, m := range s.wrong {
				t.Run(m.what, func(t *testing.T) {
					t.Parallel() // most of them wait
					s.rejects(t, m)
					wrong.add(t, m.set)
				})
			}
		})
	}
}

// isChecked fails where stockd check finds a problem.
func (s secured) isChecked(t *testing.T) {
	t.Helper()
	if s.section == "database" {
		return // it has no tables yet
	}
	found := must.Get(Check(t.Context(), configuration(t, append(impatiently(t), s.env...)), 1))(t)
	for _, f := range found {
		if f.State == check.Problem && f.What != "database schema" { // of the file that it is given
			t.Errorf("%+v", f)
		}
	}
}

// rejectedSecrets are the keys whose secrets a backend has rejected.
type rejectedSecrets struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (r *rejectedSecrets) add(t *testing.T, env []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range new(config.Config).Secrets() {
		variable := config.EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) + "="
		r.keys[key] = r.keys[key] || slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, variable) })
	}
}

// areAll fails where the secret of a backend was never wrong: its errors are not known to hide it. Without all
// servers there is nothing to say.
func (r *rejectedSecrets) areAll(t *testing.T) {
	t.Helper()
	if skipped := !r.keys["database.password"] || !r.keys["redis.password"] || !r.keys["zookeeper.auth"] || !r.keys["etcd.password"]; skipped || t.Failed() {
		return
	}
	for key := range new(config.Config).Secrets() {
		if section, _, _ := strings.Cut(key, "."); section != "admin" && section != "buyer" && section != "queue" && !r.keys[key] {
			t.Errorf("no backend has rejected a wrong %s", key)
		}
	}
}

// A database over TLS never falls back to a plain connection.
func securedDatabase(t *testing.T, k *servers.Supervisor, kind string, s *servers.Security, strangers string) secured {
	t.Helper()
	cmdtest.NeedDatabase(t, kind)
	d := must.Get(servers.StartDatabase(t.Context(), k, servers.Choice{Mode: servers.Local, Database: kind, Security: s}))(t)
	return secured{"mysql", "database", d.Env(), []string{"sql-conditional", "sql-named-lock"}, append(
		tlsMistakes("database", strangers),
		uncertified("database"),
		mistake{"with a wrong password", []string{"STOCKD_DATABASE_PASSWORD=a-guess-at-it"}, "Access denied"})}
}

func securedRedis(env []string, strangers string, more ...mistake) secured {
	return secured{"redis", "redis", env, []string{"redis-reentrant", "redsync", "redis-stock"}, append(append(
		tlsMistakes("redis", strangers),
		mistake{"with a wrong password", []string{"STOCKD_REDIS_PASSWORD=a-guess-at-it"}, "WRONGPASS"}), more...)}
}

func securedZooKeeper(t *testing.T, k *servers.Supervisor, s *servers.Security, strangers string) secured {
	t.Helper()
	z := labtest.Own(t, k, "zookeeper", servers.StartSecureZooKeeper, s)
	// The nodes belong to the certificate and to the password: only a client with neither is
	// rejected.
	other := must.Get(s.Authority.Issue("stranger"))(t)
	stranger := func(auth string) []string {
		return []string{"STOCKD_ZOOKEEPER_AUTH=" + auth, "STOCKD_ZOOKEEPER_TLS_CERT_FILE=" + other.CertFile, "STOCKD_ZOOKEEPER_TLS_KEY_FILE=" + other.KeyFile}
	}
	return secured{"zookeeper", "zookeeper", append(z.Conn().Env(), "STOCKD_ZOOKEEPER_AUTH=stockd:secret"), []string{"zk-sequential", "zk-ephemeral"}, append(
		tlsMistakes("zookeeper", strangers),
		uncertified("zookeeper"),
		mistake{"with a wrong password", stranger("stockd:a-guess-at-it"), "not authenticated"},
		mistake{"without a password", stranger(""), "not authenticated"})}
}

func newAuthority(t *testing.T, k *servers.Supervisor) *servers.Authority {
	t.Helper()
	return must.Get(servers.NewAuthority(k.Folder()))(t)
}

func newSecurity(t *testing.T, a *servers.Authority, clientCerts bool) *servers.Security {
	t.Helper()
	return must.Get(servers.NewSecurity(a, clientCerts))(t)
}

// configuration is what a replica of these variables would run with.
func configuration(t *testing.T, env []string) config.Config {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	for _, entry := range env {
		name, value, _ := strings.Cut(strings.TrimPrefix(entry, "STOCKD_"), "=")
		must.Do(t, flags.Set(strings.ReplaceAll(strings.ToLower(name), "_", "-"), value))
	}
	loaded := must.Get(config.Load("", flags))(t)
	return loaded.Config
}

// innards is what a replica is made of, as serve puts it together.
type innards struct {
	store     *repo.Store
	catalogue *service.Catalogue
	locks     lock.Deps
}

// impatiently makes a replica wait no longer than a test.
func impatiently(t *testing.T) []string {
	t.Helper()
	return []string{
		"STOCKD_DATABASE_DSN=" + filepath.Join(t.TempDir(), "stockd.db"), "STOCKD_LOCK_WAIT=3s", "STOCKD_LOCK_TTL=5s",
		"STOCKD_DATABASE_LOCK_WAIT=3s", "STOCKD_DEDUCT_TIMEOUT=5s",
	}
}

func startInnards(t *testing.T, env []string) innards {
	t.Helper()
	c := configuration(t, append(impatiently(t), env...))
	store := must.Get(OpenStore(t.Context(), c))(t)
	t.Cleanup(func() { closed(t, store) })
	log := slog.New(slog.DiscardHandler)
	must.Do(t, bringUpToDate(t.Context(), c, store, log))
	locks := must.Get(lockDeps(c, observation{}))(t)
	t.Cleanup(func() { closed(t, locks) })
	deps := strategy.Deps{
		Store: store, LockWait: c.Lock.Wait, Lock: locks, Group: strategy.Group{Batch: 1, Units: 1, Queue: 1},
		Retry: strategy.Retry{Tries: 1}, Buckets: c.Bucket.Count, UnitRows: unitRows, RedisStock: redisStockOptions(c, log, nil), Log: log,
	}
	catalogue := service.NewCatalogue(t.Context(), strategy.Registry(), deps, c.Deduct.Timeout)
	t.Cleanup(func() { closed(t, catalogue) })
	return innards{store, catalogue, locks}
}

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	must.Do(t, c.Close())
}

// buy sells one unit of a new item.
func (p innards) buy(t *testing.T, name string, goods int64) (stock.Outcome, error) {
	t.Helper()
	must.Do(t, p.store.CreateGoods(t.Context(), goods, 10, rand.Text()))
	shop := service.NewShop(p.catalogue, nil, service.Admission{Choose: true})
	return shop.Buy(t.Context(), service.Request{
		GoodsID: goods, Asked: stock.Choice{Strategy: name}, Purchase: stock.Purchase{RequestID: rand.Text(), Quantity: 1},
	})
}

func (p innards) sells(t *testing.T, name string, goods int64) {
	t.Helper()
	outcome, err := p.buy(t, name, goods)
	if err != nil || outcome.Rejected != nil || outcome.Order.Remaining != 9 {
		t.Errorf("%s answers %+v, %v", name, outcome, err)
	}
}

// connects waits for the first connection, as a replica does before it is ready: a Java that has just
// been started takes seconds for its first handshakes.
func (s secured) connects(t *testing.T, p innards) {
	t.Helper()
	if s.section == "database" {
		return // opening the store has connected
	}
	labtest.Await(t, "a connection to "+s.backend, 30*time.Second, func() bool {
		return p.locks.Ping(t.Context(), backend.Name(s.backend)) == nil
	})
}

// rejects makes a mistake, and checks the error.
func (s secured) rejects(t *testing.T, m mistake) {
	t.Helper()
	env := append(append([]string{"STOCKD_LOCK_WAIT=3s", "STOCKD_REDIS_TIMEOUT=2900ms"}, s.env...), m.set...)
	c := configuration(t, append(impatiently(t), env...))
	if s.section == "database" {
		store, err := OpenStore(t.Context(), c)
		if err == nil {
			closed(t, store)
		}
		s.isNamed(t, c, err, m.says)
		return
	}
	p := startInnards(t, env)
	// A busy machine takes seconds for the handshakes that precede a rejection.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s.isNamed(t, c, p.locks.Ping(ctx, backend.Name(s.backend)), m.says)
	list, err := p.catalogue.Backends(t.Context())
	should.Do(t, err)
	for _, b := range list {
		if b.Name == s.backend && b.Status == service.Up {
			t.Errorf("/readyz shows %+v", b)
		}
	}
	_, err = p.buy(t, s.strategies[len(s.strategies)-1], 1)
	s.isNamed(t, c, err, "")
}

// isNamed looks for the name of the backend in an error, and for no secret.
func (s secured) isNamed(t *testing.T, c config.Config, err error, says string) {
	t.Helper()
	failed, ok := errors.AsType[*stock.BackendError](err)
	if !ok || failed.Backend != s.backend {
		t.Fatalf("the error is %v, want one of %s", err, s.backend)
	}
	should.Contain(t, err.Error(), says)
	for _, set := range []config.Config{c, configuration(t, append(impatiently(t), s.env...))} { // wrong, and right
		for key, secret := range set.Secrets() {
			_, password, _ := strings.Cut(secret.Reveal(), ":") // of user:password
			for _, text := range []string{secret.Reveal(), password} {
				if len(text) > 4 && strings.Contains(fmt.Sprintf("%v %+v", err, failed), text) {
					t.Errorf("the error shows %s: %v", key, err)
				}
			}
		}
	}
}
