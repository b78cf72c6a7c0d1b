package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/admintoken"
)

// check looks at every value and at those that must fit together.
func (l *Loaded) check() error {
	return errors.Join(
		l.http(),
		l.buyer(),
		l.limit(),
		l.address("admin.listen", l.Admin.Listen),
		l.token(),
		l.adminTLS(),
		l.oneOf("database.driver", l.Database.Driver, "sqlite", "mysql"),
		l.dsn(),
		l.databaseTLS(),
		between(l, "database.max_open", l.Database.MaxOpen, 1, 10_000),
		atLeast(l, "database.lock_wait", l.Database.LockWait, time.Second),
		atLeast(l, "database.connect_timeout", l.Database.ConnectTimeout, 10*time.Millisecond),
		atLeast(l, "lock.wait", l.Lock.Wait, time.Millisecond),
		l.reachable("lock.wait", l.Lock.Wait),
		l.oneOf("deduct.choose", l.Deduct.Choose, chooseAuto, chooseOn, chooseOff),
		between(l, "deduct.max_quantity", l.Deduct.MaxQuantity, 1, 1_000_000),
		l.reachable("database.lock_wait", l.Database.LockWait),
		between(l, "optimistic.tries", l.Optimistic.Tries, 1, 10_000),
		atLeast(l, "optimistic.step", l.Optimistic.Step, 0),
		atLeast(l, "optimistic.max", l.Optimistic.Max, l.Optimistic.Step),
		l.group(),
		between(l, "bucket.count", l.Bucket.Count, 1, 1024),
		l.locks(),
		l.trace(),
		l.audit(),
		l.oneOf("log.level", l.Log.Level, "debug", "info", "warn", "error"),
		l.oneOf("log.format", l.Log.Format, "text", "json"),
		l.lab(),
	)
}

// lab refuses what would have no effect: whoever sets it believes that it has.
func (l *Loaded) lab() error {
	if l.Lab.Enabled {
		return nil
	}
	var errs []error
	for _, f := range fields(&l.Config) {
		if f.within("lab") && f.text() != f.def && f.key != "lab.enabled" {
			errs = append(errs, l.wrong(f.key, "is set to %s, and lab.enabled is not set", f.text()))
		}
	}
	return errors.Join(errs...)
}

// http looks at the listener for buyers.
func (l *Loaded) http() error {
	const shortest = 100 * time.Millisecond
	return errors.Join(
		l.address("http.listen", l.HTTP.Listen),
		l.proxies(),
		between(l, "http.max_body", l.HTTP.MaxBody, 1<<10, 1<<20),
		between(l, "http.max_deductions", l.HTTP.MaxDeductions, 1, 1_000_000),
		between(l, "http.max_connections", l.HTTP.MaxConnections, 0, 1_000_000),
		between(l, "http.connection_rate", l.HTTP.ConnectionRate, 0, 1_000_000),
		atLeast(l, "http.header_timeout", l.HTTP.HeaderTimeout, shortest),
		atLeast(l, "http.read_timeout", l.HTTP.ReadTimeout, shortest),
		atLeast(l, "http.write_timeout", l.HTTP.WriteTimeout, shortest),
		atLeast(l, "http.idle_timeout", l.HTTP.IdleTimeout, time.Second),
		atLeast(l, "http.drain_delay", l.HTTP.DrainDelay, 0),
		atLeast(l, "http.drain", l.HTTP.Drain, 0),
	)
}

// trace wants the address of a collector, and no more: whatever else a URL may hold
// would be ignored, or be a secret in plain sight.
func (l *Loaded) trace() error {
	share := between(l, "trace.sample", l.Trace.Sample, 0, 1)
	if l.Trace.Endpoint == "" {
		return share
	}
	u, err := url.Parse(l.Trace.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.Join(share, l.wrong("trace.endpoint", "must be http:// or https:// with host and port, and without a user, such as http://127.0.0.1:4318"))
	}
	return share
}

// audit wants time for the audits, and a pause between them.
func (l *Loaded) audit() error {
	if err := atLeast(l, "audit.timeout", l.Audit.Timeout, time.Second); err != nil || l.Audit.Every == 0 {
		return err
	}
	return atLeast(l, "audit.every", l.Audit.Every, time.Second)
}

// proxies wants addresses: a name could be anybody tomorrow.
func (l *Loaded) proxies() error {
	for _, text := range l.HTTP.TrustedProxies {
		_, notNetwork := netip.ParsePrefix(text)
		if _, err := netip.ParseAddr(text); err != nil && notNetwork != nil {
			return l.wrong("http.trusted_proxies", "must be addresses or networks such as 10.0.0.0/8, not %q", text)
		}
		if l.Admin.Required && everyAddress(text) {
			return l.wrong("http.trusted_proxies", "must be the balancer's addresses, not %s: every client could claim any address (admin.required: %s)",
				text, l.Source("admin.required"))
		}
	}
	return nil
}

func (l *Loaded) limit() error {
	const most = 1_000_000
	rate := func(key string, perSecond float64) error {
		if perSecond == 0 {
			return nil
		}
		return between(l, key, perSecond, 0.001, most)
	}
	return errors.Join(
		rate("limit.user_rate", l.Limit.UserRate),
		between(l, "limit.user_burst", l.Limit.UserBurst, 1, most),
		rate("limit.address_rate", l.Limit.AddressRate),
		between(l, "limit.address_burst", l.Limit.AddressBurst, 1, most),
	)
}

// group wants batches that one statement can hold, and a queue that can fill one.
func (l *Loaded) group() error {
	return errors.Join(
		between(l, "group.batch", l.Group.Batch, 1, 2000),
		between(l, "group.units", l.Group.Units, 1, 1_000_000_000),
		between(l, "group.queue", l.Group.Queue, l.Group.Batch, 1_000_000),
	)
}

// locks looks at what the locks need.
func (l *Loaded) locks() error {
	const shortest = 500 * time.Millisecond // below, a busy machine loses its locks
	return errors.Join(
		atLeast(l, "lock.ttl", l.Lock.TTL, shortest),
		atLeast(l, "lock.retry", l.Lock.Retry, time.Millisecond),
		between(l, "lock.connections", l.Lock.Connections, 2, 10_000),
		l.addresses("redis.addresses", l.Redis.Addresses, "redis.username and redis.password"),
		between(l, "redis.db", l.Redis.DB, 0, 15),
		l.redisTimeout(),
		between(l, "redis.max_open", l.Redis.MaxOpen, 1, 10_000),
		l.redisKind(),
		l.tls("redis", l.Redis.TLS),
		l.redisStock(),
		l.addresses("redlock.addresses", l.Redlock.Addresses, "redlock.username and redlock.password"),
		l.masters(),
		l.tls("redlock", l.Redlock.TLS),
		l.addresses("zookeeper.addresses", l.ZooKeeper.Addresses, "zookeeper.auth"),
		l.digest(),
		l.tls("zookeeper", l.ZooKeeper.TLS),
		l.endpoints(),
		l.tls("etcd", l.Etcd.TLS),
	)
}

// redisKind refuses what cannot be together.
func (l *Loaded) redisKind() error {
	r := l.Redis
	switch {
	case r.Cluster && r.Master != "":
		return l.wrong("redis.master", "and redis.cluster are both set (%s): the addresses are Sentinels' or a cluster's", l.Source("redis.cluster"))
	case r.Cluster && r.DB != 0:
		return l.wrong("redis.db", "must be 0, not %d: a cluster has no other", r.DB)
	case r.Master == "" && r.SentinelUsername != "":
		return l.wrong("redis.sentinel_username", "is set, and redis.master is not set: there are no Sentinels")
	case r.Master == "" && r.SentinelPassword != "":
		return l.wrong("redis.sentinel_password", "is set, and redis.master is not set: there are no Sentinels")
	case len(r.Addresses) > 1 && !r.Cluster && r.Master == "":
		return l.wrong("redis.addresses", "are several: set redis.cluster, or redis.master for Sentinels; independent masters are redlock.addresses")
	default:
		return nil
	}
}

// redisStock looks at how redis-stock sells.
func (l *Loaded) redisStock() error {
	r := l.RedisStock
	if r.Prefix == "" || strings.ContainsAny(r.Prefix, "{} \n") {
		return l.wrong("redis_stock.prefix", "must be a word without braces, not %q", r.Prefix)
	}
	if r.Linger > time.Second {
		return l.wrong("redis_stock.linger", "must be at most 1s, not %s", r.Linger)
	}
	return errors.Join(
		between(l, "redis_stock.partitions", r.Partitions, 1, 256),
		between(l, "redis_stock.batch", r.Batch, 1, 2000),
		atLeast(l, "redis_stock.linger", r.Linger, 0),
		atLeast(l, "redis_stock.claim_after", r.ClaimAfter, 100*time.Millisecond),
		atLeast(l, "redis_stock.remember", r.Remember, time.Second),
		atLeast(l, "redis_stock.reconcile", r.Reconcile, 100*time.Millisecond),
	)
}

// masters wants a number of which more than half is never one half.
func (l *Loaded) masters() error {
	if n := len(l.Redlock.Addresses); n > 0 && (n < 3 || n%2 == 0) {
		return l.wrong("redlock.addresses", "must be an odd number of masters, at least 3, not %d", n)
	}
	return nil
}

func (l *Loaded) digest() error {
	if auth := l.ZooKeeper.Auth.Reveal(); auth != "" && !strings.Contains(auth, ":") {
		return l.wrong("zookeeper.auth", "must be user:password")
	}
	return nil
}

func (l *Loaded) endpoints() error {
	if err := l.withoutLogin("etcd.endpoints", l.Etcd.Endpoints, "etcd.username and etcd.password"); err != nil {
		return err
	}
	for _, e := range l.Etcd.Endpoints {
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Port() == "" || (u.Scheme != "http" && u.Scheme != "https"):
			return l.wrong("etcd.endpoints", "must be like http://127.0.0.1:2379, not %q", e)
		case u.Scheme == "http" && l.Etcd.TLS.Enabled:
			return l.wrong("etcd.endpoints", "must all begin with https:// where etcd.tls.enabled is set (%s), not %q",
				l.Source("etcd.tls.enabled"), e)
		}
	}
	return nil
}

// impliedTLS enables etcd's TLS where an endpoint asks for it.
func (l *Loaded) impliedTLS() {
	for _, e := range l.Etcd.Endpoints {
		if u, err := url.Parse(e); err == nil && u.Scheme == "https" && !l.Etcd.TLS.Enabled {
			l.Etcd.TLS.Enabled = true
			l.sources["etcd.tls.enabled"] = l.Source("etcd.endpoints")
		}
	}
}

func (l *Loaded) addresses(key string, list []string, login string) error {
	if err := l.withoutLogin(key, list, login); err != nil {
		return err
	}
	for _, a := range list {
		if err := l.address(key, a); err != nil {
			return err
		}
	}
	return nil
}

// withoutLogin refuses a user and a password where servers are named, as other
// programs' URLs have them. Every other error shows what is wrong: this one comes
// before it. A comma in the password has made two of it.
func (l *Loaded) withoutLogin(key string, list []string, login string) error {
	if strings.Contains(strings.Join(list, ","), "@") {
		return l.wrong(key, "must not hold a user or a password: those are %s", login)
	}
	return nil
}

// redisTimeout refuses a bound that lets a server that is mute pass for a lock
// that is busy.
func (l *Loaded) redisTimeout() error {
	configured := len(l.Redis.Addresses)+len(l.Redlock.Addresses) > 0
	if configured && l.Redis.Timeout >= l.Lock.Wait {
		return l.wrong("redis.timeout", "must be below lock.wait (%s, from %s), not %s",
			l.Lock.Wait, l.Source("lock.wait"), l.Redis.Timeout)
	}
	return atLeast(l, "redis.timeout", l.Redis.Timeout, 10*time.Millisecond)
}

func between[N int | float64](l *Loaded, key string, n, least, most N) error {
	if !(n >= least && n <= most) { //nolint:staticcheck // so that NaN, which is neither, is refused
		return l.wrong(key, "must be %v to %v, not %v", decimal(least), decimal(most), decimal(n))
	}
	return nil
}

// decimal writes a number as people do: %v would make 1e+06 of a million.
func decimal[N int | float64](n N) string { return strconv.FormatFloat(float64(n), 'f', -1, 64) }

func atLeast(l *Loaded, key string, d, least time.Duration) error {
	if d < least {
		return l.wrong(key, "must be at least %s, not %s", least, d)
	}
	return nil
}

// reachable refuses a wait limit that the end of the request always cuts off:
// "busy" could then never be answered.
func (l *Loaded) reachable(key string, wait time.Duration) error {
	if wait >= l.Deduct.Timeout {
		return l.wrong(key, "is %s and can never be reached: deduct.timeout ends a purchase after %s (%s)",
			wait, l.Deduct.Timeout, l.Source("deduct.timeout"))
	}
	return nil
}

func (l *Loaded) oneOf(key, text string, allowed ...string) error {
	if !slices.Contains(allowed, text) {
		return l.wrong(key, "must be %s, not %q", strings.Join(allowed, " or "), text)
	}
	return nil
}

func (l *Loaded) address(key, text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		var n int
		if n, err = strconv.Atoi(port); err == nil && (n < 0 || n > 65535) {
			err = errors.New("port out of range")
		}
	}
	if err != nil {
		return l.wrong(key, "must be an address such as 127.0.0.1:8080, not %q", text)
	}
	return nil
}

func (l *Loaded) token() error {
	tokens := l.Admin.Tokens()
	if l.Admin.Required && !tokens.Any() {
		return l.wrong("admin.required", "is set, and none of admin.token, admin.token_file and admin.tokens_file is")
	}
	if tokens.Token != "" {
		if err := admintoken.Usable(tokens.Token, tokens.Strict); err != nil {
			return l.wrong("admin.token", "%w", err)
		}
	}
	if _, err := admintoken.Open(tokens); err != nil {
		return l.wrong("admin.tokens_file", "cannot be used: %w", err)
	}
	return nil
}

func (l *Loaded) dsn() error {
	if l.Database.DSN == "" {
		return l.wrong("database.dsn", "must not be empty")
	}
	c, err := mysql.ParseDSN(l.Database.DSN)
	if l.Database.Driver != "mysql" {
		if err == nil && c.Passwd != "" { // it would be the name of a file, and be seen
			return l.wrong("database.dsn", "must be the path of a file and not MySQL's: database.driver is %s (%s)",
				l.Database.Driver, l.Source("database.driver"))
		}
		return nil
	}
	switch {
	case err != nil:
		// The driver's error may quote the DSN, and that may hold a password.
		return l.wrong("database.dsn", "must look like user@tcp(host:port)/database")
	case c.TLS != nil:
		return l.wrong("database.dsn", "must not say tls=%s: what it means is said by database.tls", c.TLSConfig)
	case c.AllowFallbackToPlaintext:
		return l.wrong("database.dsn", "must not say allowFallbackToPlaintext: database.tls says whether connections are encrypted")
	default:
		return nil
	}
}

// databaseTLS refuses what a file on the disk has no use for.
func (l *Loaded) databaseTLS() error {
	if l.Database.TLS.Enabled && l.Database.Driver != "mysql" {
		return l.wrong("database.tls.enabled", "is set, and database.driver is %s (%s), which has no connections to encrypt",
			l.Database.Driver, l.Source("database.driver"))
	}
	return l.tls("database", l.Database.TLS)
}

// maskDSN hides the password of a MySQL DSN.
func maskDSN(dsn string) string {
	c, err := mysql.ParseDSN(dsn)
	if err != nil || c.Passwd == "" {
		return dsn
	}
	c.Passwd = shown
	return fmt.Sprint(c.FormatDSN())
}
