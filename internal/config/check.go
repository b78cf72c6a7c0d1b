package config

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/admintoken"
)

// check checks the bounds of every value, and values that must fit together.
//
//  1. Every mistake is named with its key, its place and what is allowed, all of them at once.
//     No error shows a secret.
//  2. redis.timeout is below lock.wait, and lock.wait and database.lock_wait are below
//     deduct.timeout.
//  3. http.trusted_proxies are addresses or networks. With admin.required they do not trust
//     every client, and there is a token.
//  4. What has no effect is rejected: a key of a section that is not enabled, or an unknown one.
func (l *Loaded) check() error {
	var errs []error
	for _, f := range fields(&l.Config) {
		if err := f.check(); err != nil {
			errs = append(errs, l.wrong(f.key, "%w", err))
		}
	}
	name := utf8.RuneCountInString(l.Replica)
	errs = append(errs,
		l.require(name <= longestReplica, "replica", "must be up to %d characters, not %d", longestReplica, name),
		l.address("http.listen", l.HTTP.Listen),
		l.proxies(),
		l.buyer(),
		l.address("admin.listen", l.Admin.Listen),
		l.hosts(),
		l.token(),
		l.adminTLS(),
		l.dsn(),
		// A database that is a file has no connections to encrypt.
		l.require(!l.Database.TLS.Enabled || l.Database.Driver == "mysql", "database.tls.enabled",
			"is set, and database.driver is %s (%s), which has no connections to encrypt", l.Database.Driver, l.Source("database.driver")),
		l.tls("database", l.Database.TLS),
		l.reachable("lock.wait", l.Lock.Wait),
		l.reachable("database.lock_wait", l.Database.LockWait),
		// What a request asks for by default is allowed.
		l.require(l.Reserve.TTL <= l.Reserve.Longest, "reserve.ttl", "must be up to reserve.longest, which is %s, not %s", l.Reserve.Longest, l.Reserve.TTL),
		l.queue(),
		l.servers(),
		l.trace(),
		l.withoutEffect("lab", l.Lab.Enabled),
	)
	return errors.Join(errs...)
}

// require rejects the value of a key unless it is right.
func (l *Loaded) require(right bool, key, format string, args ...any) error {
	if right {
		return nil
	}
	return l.wrong(key, format, args...)
}

// longestReplica is what the ledger's column has room for. A longer name would fail every row: orders
// that are accepted elsewhere and pending would stay so.
const longestReplica = 128

func (l *Loaded) queue() error {
	q := l.Queue
	switch named := len(q.IDs()); {
	case len(q.Items) == 0:
		return nil
	case named < len(q.Items) && (named > 0 || !q.All()):
		return l.wrong("queue.items", "must be ids of items, separated by commas, or all, not %s", quoted(strings.Join(q.Items, ",")))
	case len(l.Redis.Addresses) == 0:
		return l.wrong("queue.items", "is set, and redis.addresses is empty: the line is in Redis")
	case len(q.Secret.Reveal()) < minSecret:
		return l.wrong("queue.secret", "must have at least %d bytes, not %d", minSecret, len(q.Secret.Reveal()))
	}
	return nil
}

// withoutEffect rejects what is set in a section that is not enabled: it would have no effect.
func (l *Loaded) withoutEffect(section string, enabled bool) error {
	if enabled {
		return nil
	}
	var errs []error
	for _, f := range fields(&l.Config) {
		if f.within(section) && f.text() != f.def && f.key != section+".enabled" {
			errs = append(errs, l.wrong(f.key, "is set to %s, and %s.enabled is not set", quoted(f.text()), section))
		}
	}
	return errors.Join(errs...)
}

// trace requires the address of a collector and nothing else: other parts of a URL would be
// ignored, or show a secret.
func (l *Loaded) trace() error {
	u, err := url.Parse(l.Trace.Endpoint)
	isAddress := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
	return l.require(isAddress || l.Trace.Endpoint == "", "trace.endpoint",
		"must be http:// or https:// with host and port, and without a user, such as http://127.0.0.1:4318")
}

// proxies requires addresses: a name may resolve to another host later.
func (l *Loaded) proxies() error {
	for _, text := range l.HTTP.TrustedProxies {
		prefix, ok := proxy(text)
		if !ok {
			return l.wrong("http.trusted_proxies", "must be addresses or networks such as 10.0.0.0/8, not %s", quoted(text))
		}
		if l.Admin.Required && prefix.Bits() == 0 {
			return l.wrong("http.trusted_proxies", "must be the balancer's addresses, not %s: every client could claim any address (admin.required: %s)",
				text, l.Source("admin.required"))
		}
	}
	return nil
}

func (l *Loaded) servers() error {
	masters, auth := len(l.Redlock.Addresses), l.ZooKeeper.Auth.Reveal()
	return errors.Join(
		l.addresses("redis.addresses", l.Redis.Addresses, "redis.username and redis.password"),
		// Otherwise a hung Redis looks like lock contention.
		l.require(l.Redis.Timeout < l.Lock.Wait || len(l.Redis.Addresses)+masters == 0, "redis.timeout", "must be below lock.wait (%s, from %s), not %s",
			l.Lock.Wait, l.Source("lock.wait"), l.Redis.Timeout),
		l.redisKind(),
		l.tls("redis", l.Redis.TLS),
		// It is one part of a path, Redis reads no pattern in it, and no braces choose the slot of a cluster.
		l.require(isName(l.Prefix), "prefix", "must be letters, digits and . _ -, not %s", quoted(l.Prefix)),
		l.addresses("redlock.addresses", l.Redlock.Addresses, "redlock.username and redlock.password"),
		// Of an odd number there is always a majority.
		l.require(masters == 0 || masters >= 3 && masters%2 == 1, "redlock.addresses", "must be an odd number of masters, at least 3, not %d", masters),
		l.tls("redlock", l.Redlock.TLS),
		l.addresses("zookeeper.addresses", l.ZooKeeper.Addresses, "zookeeper.auth"),
		l.require(auth == "" || strings.Contains(auth, ":"), "zookeeper.auth", "must be user:password"),
		l.tls("zookeeper", l.ZooKeeper.TLS),
		l.endpoints(),
		l.tls("etcd", l.Etcd.TLS),
	)
}

// redisKind rejects contradictions between a cluster, Sentinels and a single server.
func (l *Loaded) redisKind() error {
	r := l.Redis
	switch {
	case r.Cluster && r.Master != "":
		return l.wrong("redis.master", "and redis.cluster are both set (%s): the addresses are Sentinels' or a cluster's", l.Source("redis.cluster"))
	case r.Cluster && r.DB != 0:
		return l.wrong("redis.db", "must be 0, not %d: a cluster has no other", r.DB)
	case r.Master == "" && r.SentinelUsername != "":
		return l.wrong("redis.sentinel_username", "is set, and redis.master is not set: there are no Sentinels")
	case r.Master == "" && r.SentinelPassword.Reveal() != "":
		return l.wrong("redis.sentinel_password", "is set, and redis.master is not set: there are no Sentinels")
	case len(r.Addresses) > 1 && !r.Cluster && r.Master == "":
		return l.wrong("redis.addresses", "are several: set redis.cluster, or redis.master for Sentinels; independent masters are redlock.addresses")
	default:
		return nil
	}
}

// isName reports whether a text is of letters, digits and . _ -, and not of dots alone.
func isName(text string) bool {
	return strings.Trim(text, ".") != "" && !strings.ContainsFunc(text, outsidePrefix)
}

func outsidePrefix(r rune) bool {
	letter, digit := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z', r >= '0' && r <= '9'
	return !letter && !digit && !strings.ContainsRune("._-", r)
}

func (l *Loaded) endpoints() error {
	if err := l.withoutLogin("etcd.endpoints", l.Etcd.Endpoints, "etcd.username and etcd.password"); err != nil {
		return err
	}
	for i, e := range l.Etcd.Endpoints {
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Port() == "" || (u.Scheme != "http" && u.Scheme != "https") || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "":
			return l.wrong("etcd.endpoints", "must be like http://127.0.0.1:2379, separated by commas; number %d of %d is not", i+1, len(l.Etcd.Endpoints))
		case u.Scheme == "http" && l.Etcd.TLS.Enabled:
			return l.wrong("etcd.endpoints", "must all begin with https:// where etcd.tls.enabled is set (%s), not %q",
				l.Source("etcd.tls.enabled"), "http://"+u.Host)
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
	for i, a := range list {
		if !isAddress(a) { // it may be a part of a password with a comma
			return l.wrong(key, "must be addresses such as 127.0.0.1:8080, separated by commas; number %d of %d is not one", i+1, len(list))
		}
	}
	return nil
}

// withoutLogin rejects a user and a password in addresses, as URLs of other programs have them.
// It runs before the checks whose errors quote the value. A comma in a password has split it.
func (l *Loaded) withoutLogin(key string, list []string, login string) error {
	if strings.Contains(strings.Join(list, ","), "@") {
		return l.wrong(key, "must not hold a user or a password: those are %s", login)
	}
	return nil
}

// reachable rejects a wait limit that deduct.timeout always ends first: "busy" would never be
// answered.
func (l *Loaded) reachable(key string, wait time.Duration) error {
	return l.require(wait < l.Deduct.Timeout, key, "must be below deduct.timeout (%s, from %s), not %s", l.Deduct.Timeout, l.Source("deduct.timeout"), wait)
}

func (l *Loaded) address(key, text string) error {
	return l.require(isAddress(text), key, "must be an address such as 127.0.0.1:8080, not %s", quoted(text))
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// hosts rejects URLs and ports, which no Host header is compared with.
func (l *Loaded) hosts() error {
	for i, name := range l.Admin.Hosts {
		if _, err := netip.ParseAddr(name); err != nil && name != "*" && !isName(name) {
			return l.wrong("admin.hosts", "must be names such as shop.internal, without a scheme or a port, separated by commas; number %d of %d is not", i+1, len(l.Admin.Hosts))
		}
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
	if l.Database.Driver != "mysql" {
		if regexp.MustCompile(`(?i)://|:.*@|pass(word)?=|pwd=`).MatchString(l.Database.DSN) { // it would become a file name, and be visible
			return l.wrong("database.dsn", "must be the path of a file, not a DSN or a URL: database.driver is %s (%s)",
				l.Database.Driver, l.Source("database.driver"))
		}
		return nil
	}
	c, err := mysql.ParseDSN(l.Database.DSN)
	switch {
	case err != nil || strings.Contains(c.User+c.Net, "://") || strings.HasPrefix(c.Passwd, "//"):
		// The driver's error may quote the DSN, and that may hold a password.
		return l.wrong("database.dsn", "must look like user@tcp(host:port)/database")
	case c.TLS != nil:
		return l.wrong("database.dsn", "must not contain tls=%s: database.tls configures encryption", c.TLSConfig)
	case c.Params["password"] != "" || c.Params["user"] != "":
		return l.wrong("database.dsn", "must not contain user= or password=: it is user@tcp(host:port)/database, and database.password")
	case c.AllowFallbackToPlaintext:
		return l.wrong("database.dsn", "must not contain allowFallbackToPlaintext: database.tls configures encryption")
	default:
		return nil
	}
}

// maskDSN hides the password of a MySQL DSN.
func maskDSN(dsn string) string {
	c, err := mysql.ParseDSN(dsn)
	if err != nil || c.Passwd == "" {
		return dsn
	}
	c.Passwd = shown
	return c.FormatDSN()
}

// minSecret is the least length of a secret that signs tokens, in bytes.
const minSecret = 32

// buyer rejects a source that cannot verify a buyer, and keys that would have no effect although
// their admin expects verified buyers.
func (l *Loaded) buyer() error {
	b := l.Buyer
	hasKeys := b.Secret.Reveal() != "" || b.JWKSFile != ""
	switch {
	case b.From == BuyerFromToken:
		return l.buyerKeys()
	case hasKeys || b.Audience != "":
		return l.wrong("buyer.from", "is %s, and keys of tokens or buyer.audience are set: they need token", b.From)
	case b.From == BuyerFromHeader && len(l.HTTP.TrustedProxies) == 0:
		return l.wrong("buyer.from", "is header, and http.trusted_proxies is empty: no peer would be trusted")
	case b.From == BuyerFromHeader && !isHeaderName(b.Header):
		return l.wrong("buyer.header", "must be the name of a header, such as X-Stockd-Buyer, not %s", quoted(b.Header))
	}
	return nil
}

// buyerKeys requires exactly one source of token keys.
func (l *Loaded) buyerKeys() error {
	b := l.Buyer
	switch {
	case b.Secret.Reveal() == "" && b.JWKSFile == "":
		return l.wrong("buyer.from", "is token, and none of buyer.jwks_file, buyer.secret and buyer.secret_file is set; buyer.from may also be header, or request where clients are trusted")
	case b.Secret.Reveal() != "" && b.JWKSFile != "":
		return l.wrong("buyer.jwks_file", "and buyer.secret are both set (%s)", l.Source("buyer.secret"))
	case b.Secret.Reveal() != "" && len(b.Secret.Reveal()) < minSecret:
		return l.wrong("buyer.secret", "must have at least %d bytes, not %d", minSecret, len(b.Secret.Reveal()))
	}
	return nil
}

// isHeaderName also rejects headers that have another meaning.
func isHeaderName(name string) bool {
	const special = "!#$%&'*+-.^_`|~"
	notToken := func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune(special, r)
	}
	switch http.CanonicalHeaderKey(name) {
	case "", "Host", "Authorization", "Connection", "Content-Type", "Content-Length", "Cookie", "Idempotency-Key", "X-Forwarded-For", "X-Request-Id":
		return false
	}
	return !strings.ContainsFunc(name, notToken)
}
