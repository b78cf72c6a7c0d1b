package replica

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/testlog"
)

// Every key reaches its part: no two of the values are equal.
func TestTheConfigurationReachesTheStrategies(t *testing.T) {
	c := config.Config{
		Replica: "r", Prefix: "shop", Log: config.Log{Level: "info"},
		Lock: config.Lock{Wait: 11 * time.Second, TTL: 12 * time.Second, Renew: true, Retry: 13 * time.Millisecond}, Deduct: config.Deduct{Timeout: 14 * time.Second},
		Group: config.Group{Queue: 20}, Bucket: config.Bucket{Count: 21}, GetSet: config.GetSet{Lock: "l"},
	}
	watch := observed(t, c)
	deps := strategyDeps(c, watch, nil, lock.Deps{TTL: time.Hour}, Options{})
	if deps.Observe == nil || deps.Observe("mutex") == nil {
		t.Error("the strategies have no observer")
	}
	deps.Observe = nil
	wantRedisStock := redisstock.Options{Prefix: "shop", ClaimAfter: 5 * time.Second, Remember: time.Minute, Log: watch.log}
	if want := (strategy.Deps{
		LockWait: 11 * time.Second, Lock: lock.Deps{TTL: time.Hour}, Retry: strategy.Retry{Tries: 50, Step: 5 * time.Millisecond, Max: time.Second},
		Group: strategy.Group{Batch: 256, Units: 100_000, Queue: 20}, Buckets: 21, UnitRows: 500, GetSetLock: "l", RedisStock: wantRedisStock, Log: watch.log,
	}); !reflect.DeepEqual(deps, want) {
		t.Errorf("the strategies are made of\n%+v, want\n%+v", deps, want)
	}
	for ttl, claim := range map[time.Duration]time.Duration{time.Millisecond: time.Second, 2 * time.Second: 2 * time.Second, time.Minute: 5 * time.Second} {
		c.Lock.TTL, c.Deduct.Timeout = ttl, time.Hour
		if got := redisStockOptions(c, nil, nil); got.ClaimAfter != claim || got.Remember != 2*time.Hour {
			t.Errorf("with a lock.ttl of %s redis-stock claims after %s, want %s, and remembers for %s, want two purchases", ttl, got.ClaimAfter, claim, got.Remember)
		}
	}
}

func TestTheConfigurationReachesTheRoutes(t *testing.T) {
	c := config.Config{
		Replica: "r", Log: config.Log{Level: "info"}, Deduct: config.Deduct{Timeout: 11 * time.Second, Choose: "true", PerUser: 13}, Audit: config.Audit{Timeout: 12 * time.Second},
		HTTP:  config.HTTP{Reveal: true, MaxDeductions: 14, TrustedProxies: []string{"::ffff:10.0.0.1"}},
		Limit: config.Limit{UserRate: 15, UserBurst: 16, AddressRate: 17, AddressBurst: 18}, Buyer: config.Buyer{Required: true},
		Reserve: config.Reserve{TTL: 19 * time.Second, Longest: 20 * time.Second, MaxHeld: 21, PublicConfirm: true},
		Admin:   config.Admin{Listen: "127.0.0.1:1", Hosts: []string{"Shop.example"}, Pprof: true},
	}
	watch := observed(t, c)
	ctx, stop := context.WithCancel(t.Context())
	o := handlerOptions(ctx, c, watch)
	stopping := o.Stopping()
	stop()
	if stopping || !o.Stopping() {
		t.Errorf("it is stopping before its context ends: %v, and after: %v", stopping, o.Stopping())
	}
	if o.Observer == nil || o.Metrics == nil {
		t.Errorf("the observer is %v, the metrics are %v", o.Observer, o.Metrics)
	}
	o.Stopping, o.Observer, o.Metrics = nil, nil, nil
	if want := (handler.Options{
		Replica: "r", Choose: true, Reveal: true, MaxBody: 16384, Log: watch.log, Timeout: 11 * time.Second, AuditTimeout: 12 * time.Second, MaxDeductions: 14,
		Limits:        handler.Limits{User: rate.Rate{PerSecond: 15, Burst: 16}, Address: rate.Rate{PerSecond: 17, Burst: 18}},
		BuyerRequired: true, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, TTL: 19 * time.Second, LongestTTL: 20 * time.Second, MaxHeld: 21, PerUser: 13, PublicConfirm: true,
		AdminHosts: []string{"127.0.0.1", "shop.example"}, Pprof: true,
	}); !reflect.DeepEqual(o, want) {
		t.Errorf("the routes are made of\n%+v, want\n%+v", o, want)
	}
}

func TestTheConfigurationReachesTheServers(t *testing.T) {
	c := config.Config{
		Replica: "r", Prefix: "shop", Log: config.Log{Level: "info"}, Deduct: config.Deduct{Timeout: 11 * time.Second},
		Lock: config.Lock{TTL: 12 * time.Second, Retry: 13 * time.Millisecond, Connections: 14},
		Database: config.Database{
			Driver: "mysql", DSN: "u@tcp(127.0.0.1:1)/d", Password: config.NewSecret("database's"), MaxOpen: 15, LockWait: 16 * time.Second,
		},
		Redis: config.Redis{
			Addresses: []string{"127.0.0.1:2"}, Username: "ru", Password: config.NewSecret("redis's"), SentinelUsername: "su", SentinelPassword: config.NewSecret("sentinels'"), DB: 3,
			Timeout: 18 * time.Second, MaxOpen: 19,
		},
		Redlock: config.Redlock{Addresses: []string{"127.0.0.1:4", "127.0.0.1:5", "127.0.0.1:6"}, Username: "lu", Password: config.NewSecret("redlock's")},
	}
	sql, err := sqlOptions(c)
	if want := (backend.SQLOptions{
		Driver: "mysql", DSN: "u@tcp(127.0.0.1:1)/d", Password: "database's", MaxOpen: 15, LockWait: 16 * time.Second, ConnectTimeout: 3 * time.Second,
		TxTimeout: 11 * time.Second, Silence: 16 * time.Second,
	}); err != nil || !reflect.DeepEqual(sql, want) {
		t.Errorf("the database is opened with\n%+v (%v), want\n%+v", sql, err, want)
	}
	c.Deduct.Timeout = time.Second
	if short, err := sqlOptions(c); err != nil || short.TxTimeout != 10*time.Second || short.Silence != 6*time.Second {
		t.Errorf("with short purchases a transaction may take %s, and a connection be silent for %s (%v)", short.TxTimeout, short.Silence, err)
	}
	deps := must.Get(lockDeps(c, observed(t, c)))(t)
	defer closed(t, deps)
	if deps.TTL != 12*time.Second || !deps.Unrenewed || deps.Retry != 13*time.Millisecond || deps.Issue == nil || deps.Prefix != "shop" || deps.Dialect != "mysql" {
		t.Errorf("the locks are made of %+v", deps)
	}
	should.Be(t, deps.DB.Stats().MaxOpenConnections, 14, "the locks have")
	if want := (backend.RedisOptions{
		Addresses: []string{"127.0.0.1:2"}, Username: "ru", Password: "redis's", SentinelUsername: "su", SentinelPassword: "sentinels'", DB: 3, Replica: "r",
		Timeout: 18 * time.Second, PoolSize: 19,
	}); !reflect.DeepEqual(deps.RedisOptions, want) {
		t.Errorf("Redis is opened with\n%+v, want\n%+v", deps.RedisOptions, want)
	}
	masters := make([]string, 0, len(deps.Redlock))
	for _, node := range deps.Redlock {
		master, ok := node.(*redis.Client)
		if !ok {
			t.Fatalf("a master of redlock is %T", node)
		}
		o := master.Options()
		if o.Username != "lu" || o.Password != "redlock's" || o.PoolSize != 19 || o.DialTimeout != 18*time.Second || o.ClientName != "stockd-r" {
			t.Errorf("a master of redlock is opened with %+v", o)
		}
		masters = append(masters, o.Addr)
	}
	if !slices.Equal(masters, c.Redlock.Addresses) || deps.ZooKeeper != nil || deps.Etcd != nil {
		t.Errorf("the masters of redlock are %v, and there are a ZooKeeper %v and an etcd %v", masters, deps.ZooKeeper, deps.Etcd)
	}
}

// A lock in SQL waits in the database for a slice at a time, and not for all that a purchase may.
func TestALockWaitsInTheDatabaseForASlice(t *testing.T) {
	c := config.Config{
		Database: config.Database{Driver: "sqlite", DSN: filepath.Join(t.TempDir(), "s.db"), LockWait: 7 * time.Second}, Lock: config.Lock{Connections: 2},
	}
	deps := must.Get(lockDeps(c, observed(t, c)))(t)
	defer closed(t, deps)
	var waits int64
	must.Do(t, deps.DB.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&waits))
	should.Be(t, waits, lockSlice.Milliseconds(), "it waits for, in ms")
}

// A session of ZooKeeper, in which its locks live, lasts as long as lock.ttl says.
func TestASessionLastsForTheTTLOfItsLocks(t *testing.T) {
	server := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer server.Close() //nolint:errcheck // the test is over
	c := config.Config{Lock: config.Lock{TTL: 11 * time.Second, Wait: 12 * time.Second}, ZooKeeper: config.ZooKeeper{Addresses: []string{server.Addr().String()}}}
	clients := must.Get(lockClients(c, backend.SQLOptions{Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "s.db")}))(t)
	defer clients.Close() //nolint:errcheck // the test is over
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	defer inBackground(ctx, func(ctx context.Context) { _ = clients.Ping(ctx, backend.ZooKeeper) })() // it has no answer
	conn := must.Get(server.Accept())(t)
	defer conn.Close() //nolint:errcheck // it has been read
	// The length, the version of the protocol, the last change seen, and the timeout in ms.
	var hello struct {
		Length, Version int32
		LastSeen        int64
		Timeout         int32
	}
	must.Do(t, binary.Read(conn, binary.BigEndian, &hello))
	should.Be(t, hello.Timeout, 11_000, "it asks for a session of, in ms")
}

// A client that is slow has the time that the configuration gives it, and no more.
func TestTheConfigurationReachesTheListeners(t *testing.T) {
	c := config.Config{
		HTTP:   config.HTTP{ReadTimeout: 3 * time.Second, IdleTimeout: 5 * time.Second},
		Deduct: config.Deduct{Timeout: 10 * time.Second},
	}
	s := newServer(c, slog.New(slog.DiscardHandler), http.NotFoundHandler())
	if s.ReadHeaderTimeout != 3*time.Second || s.ReadTimeout != 3*time.Second || s.WriteTimeout != 18*time.Second || s.IdleTimeout != 5*time.Second || s.MaxHeaderBytes != 16<<10 || s.Handler == nil || s.ErrorLog == nil {
		t.Errorf("the server is %+v", s)
	}
	if !s.DisableGeneralOptionsHandler {
		t.Error("OPTIONS * is answered by net/http, without a token")
	}
}

// observed is what watches a replica; its log is discarded.
func observed(t *testing.T, c config.Config) observation {
	t.Helper()
	o := must.Get(observe(t.Context(), c, io.Discard, nil))(t)
	t.Cleanup(o.bounded.Close)
	return o
}

func TestBuyersAreVerifiedAsConfigured(t *testing.T) {
	const secret = "a secret of thirty-two bytes, or more"
	keys := filepath.Join(t.TempDir(), "keys.json")
	content := must.Get(json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: []byte(secret), Algorithm: "HS256", Use: "sig"}}}))(t)
	must.Do(t, os.WriteFile(keys, content, 0o600))
	for name, c := range map[string]config.Config{
		"secret": {Buyer: config.Buyer{From: config.BuyerFromToken, Secret: config.NewSecret(secret), Audience: "shop", Header: "X-Buyer"}},
		"keys":   {Buyer: config.Buyer{From: config.BuyerFromToken, Secret: config.NewSecret("ignored"), JWKSFile: keys, Audience: "shop"}},
		"header": {Buyer: config.Buyer{From: config.BuyerFromHeader, Header: "X-Buyer", Secret: config.NewSecret(secret), JWKSFile: keys}, HTTP: config.HTTP{TrustedProxies: []string{"::ffff:10.0.0.1"}}},
	} {
		source, err := verifiedBuyers(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, aud := range []string{"shop", "elsewhere"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/deduct", http.NoBody)
			r.RemoteAddr = "10.0.0.1:1"
			r.Header.Set("Authorization", "Bearer "+signed(t, secret, aud))
			r.Header.Set("X-Buyer", "header's")
			buyer, err := source.From(r)
			want, rejected := "token's", aud != "shop"
			if name == "header" {
				want, rejected = "header's", false
			}
			if rejected != (err != nil) || !rejected && buyer.ID != want {
				t.Errorf("%s: for %s it is %q (%v), want %q", name, aud, buyer.ID, err, want)
			}
		}
	}
	if source, err := verifiedBuyers(t.Context(), config.Config{Buyer: config.Buyer{From: "request", Secret: config.NewSecret(secret)}}, nil); source != nil || err != nil {
		t.Errorf("where the request says, buyers are verified by %v (%v)", source, err)
	}
	for says, b := range map[string]config.Buyer{
		"buyer.secret:": {From: config.BuyerFromToken, Secret: config.NewSecret("short")}, "buyer.jwks_file " + keys + ".gone:": {From: config.BuyerFromToken, JWKSFile: keys + ".gone"},
	} {
		_, err := verifiedBuyers(t.Context(), config.Config{Buyer: b}, slog.New(slog.DiscardHandler))
		if _, usage := errors.AsType[UsageError](err); !usage || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want a mistake in the configuration that begins with %q", err, says)
		}
	}
}

// signed is a token of a buyer.
func signed(t *testing.T, secret, audience string) string {
	t.Helper()
	signer := must.Get(jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: []byte(secret)}, nil))(t)
	token := must.Get(jwt.Signed(signer).Claims(jwt.Claims{
		Subject: "token's", Audience: jwt.Audience{audience}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).Serialize())(t)
	return token
}

func TestAReplicaIsNamed(t *testing.T) {
	host := must.Get(os.Hostname())(t)
	for given, want := range map[string]string{"": host, "r": "r"} {
		if got, err := named(given); got != want || err != nil {
			t.Errorf("%q is named %q (%v), want %q", given, got, err, want)
		}
	}
}

// The log has the level and the format of the configuration; a line that repeats is bounded, but
// for debug, and every line is counted.
func TestTheLogIsAsConfigured(t *testing.T) {
	for level, want := range map[string]struct{ info, warnings int }{"debug": {1, 5}, "info": {1, 1}, "warn": {0, 1}} {
		for _, format := range []string{"text", "json"} {
			var out testlog.Lines
			o := must.Get(observe(t.Context(), config.Config{Log: config.Log{Level: level, Format: format}}, &out, nil))(t)
			o.log.InfoContext(t.Context(), "once")
			for range 5 {
				o.log.WarnContext(t.Context(), "again")
			}
			text := out.String()
			if info, warnings := strings.Count(text, "once"), strings.Count(text, "again"); info != want.info || warnings != want.warnings {
				t.Errorf("at %s there are %d lines and %d warnings, want %+v:\n%s", level, info, warnings, want, text)
			}
			should.Be(t, json.Valid([]byte(strings.SplitN(text, "\n", 2)[0])), format == "json", "as … it", format, text)
			should.Contain(t, scraped(t, o), `stockd_log_messages_total{level="warn"} 5`)
			o.bounded.Close()
		}
	}
}

func scraped(t *testing.T, o observation) string {
	t.Helper()
	w := httptest.NewRecorder()
	o.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

// What is configured and does not answer is logged at the start, by its name; what is not configured is not.
func TestABackendThatDoesNotAnswerIsLogged(t *testing.T) {
	c := config.Config{
		Database: config.Database{Driver: "sqlite", DSN: filepath.Join(t.TempDir(), "s.db")}, Lock: config.Lock{Connections: 2},
		Redis: config.Redis{Addresses: []string{"127.0.0.1:1"}, Timeout: 50 * time.Millisecond, MaxOpen: 1},
	}
	deps := must.Get(lockDeps(c, observed(t, c)))(t)
	defer closed(t, deps)
	var out testlog.Lines
	log := slog.New(slog.NewTextHandler(&out, nil))
	store := must.Get(OpenStore(t.Context(), c))(t)
	defer store.Close() //nolint:errcheck // nothing was written
	stop := pingAll(t.Context(), store, deps.Clients, log)
	labtest.Await(t, "a line", firstPing, func() bool { return out.Contains(`msg="backend does not answer" backend=redis error=`) })
	stop()
	should.Be(t, strings.Count(out.String(), "\n"), 1, "it logs", out.String())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pingAll(ctx, store, deps.Clients, log)()
	should.Be(t, strings.Count(out.String(), "\n"), 1, "a replica that stops logs", out.String())
}

// What the store tells of is counted in a replica, and not only where a test asks for it.
func TestTheStoreIsHeard(t *testing.T) {
	c := config.Config{Replica: "r", Log: config.Log{Level: "info"}}
	observed := must.Get(observe(t.Context(), c, io.Discard, nil))(t)
	observed.storeOptions(c).Retried("mutex")
	w := httptest.NewRecorder()
	observed.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	should.Contain(t, w.Body.String(), `stockd_transaction_retries_total{strategy="mutex"} 1`)
}
