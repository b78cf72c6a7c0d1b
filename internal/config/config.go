// Package config is the typed configuration of stockd. It is read from a file, from STOCKD_…
// variables and from flags, in rising precedence, and checked as a whole before anything is
// opened.
package config

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/admintoken"
)

// Config is everything that can be set: what differs between installations, and what an operator
// changes after a look at a graph. Protocol internals, pauses between retries, and what must not differ
// between replicas are constants where they are used.
//
// The tags of a field are its key, default, bounds (min, max, oneof, and off: the one value outside
// min and max that is allowed) and meaning; configs/stockd.yaml, the flags and the variables are
// made from them. Two rules add keys that are documented once: a Secret may stand in a file, and a
// section with a tag "like" has the keys of another one.
type Config struct {
	Replica    string     `key:"replica" doc:"name of this replica in answers and in the ledger, up to 128 characters; the host name where it is empty"`
	Prefix     string     `key:"prefix" default:"stockd" doc:"prefix of every key in Redis, ZooKeeper and etcd, of letters, digits and . _ -; the same on all replicas, and another one for another installation, or another database, on the same servers"`
	HTTP       HTTP       `key:"http" doc:"the public API"`
	Buyer      Buyer      `key:"buyer" doc:"how buyers are identified"`
	Limit      Limit      `key:"limit" doc:"rate limits; each replica counts by itself"`
	Admin      Admin      `key:"admin" doc:"the admin API: items, limits, full audits, switches of strategies, metrics"`
	Database   Database   `key:"database" doc:"where the stock and the ledger are"`
	Deduct     Deduct     `key:"deduct" doc:"how a purchase is served"`
	Reserve    Reserve    `key:"reserve" doc:"how long reservations are held, and who confirms them"`
	Queue      Queue      `key:"queue" doc:"the waiting room before items that a crowd wants, in Redis"`
	Strategies Strategies `key:"strategies" doc:"the strategies that this replica rejects"`
	Group      Group      `key:"group" doc:"the queues of group=true: one for each item in each replica"`
	Lock       Lock       `key:"lock" doc:"the locks of the strategies that use one"`
	Bucket     Bucket     `key:"bucket" doc:"the rows of sql-bucket"`
	GetSet     GetSet     `key:"redis_get_set" doc:"how redis-get-set-locked sells"`
	Redis      Redis      `key:"redis" doc:"the Redis of the locks and of the strategies that sell from Redis; without an address they are not available"`
	Redlock    Redlock    `key:"redlock" doc:"the independent masters of redlock; without addresses it is not available"`
	ZooKeeper  ZooKeeper  `key:"zookeeper" doc:"the ensemble of the locks; without an address they are not available"`
	Etcd       Etcd       `key:"etcd" doc:"the cluster of the lock; without an endpoint it is not available"`
	Trace      Trace      `key:"trace" doc:"the spans of requests, sent to an OpenTelemetry collector"`
	Audit      Audit      `key:"audit" doc:"the audit of all items, for the metrics"`
	Log        Log        `key:"log" doc:"what is logged, to standard error"`
	Lab        Lab        `key:"lab" doc:"failpoints for experiments; never in a shop"`
}

// MaxBody is the largest body of a request, in bytes: a basket of 32 lines has 2 kB. The balancer has the same
// bound, and answers for a replica that would reject it.
const MaxBody = 16 << 10

// HTTP is the public API.
type HTTP struct {
	Listen         string        `key:"listen" default:"127.0.0.1:8080" doc:"address and port; port 0 takes any free one"`
	TrustedProxies []string      `key:"trusted_proxies" doc:"addresses and networks such as 10.0.0.0/8 whose X-Forwarded-For is trusted, separated by commas; none where it is empty"`
	MaxDeductions  int           `key:"max_deductions" default:"8192" min:"1" max:"1000000" doc:"most concurrent purchases, of which one item has at most half; further ones get busy at once"`
	MaxConnections int           `key:"max_connections" default:"16384" min:"0" max:"1000000" doc:"most open connections of a listener; requests on further ones get busy; 0 means unlimited"`
	ConnectionRate int           `key:"connection_rate" default:"0" min:"0" max:"1000000" doc:"most new connections of a listener per second; requests on further ones get busy; 0 means unlimited"`
	ReadTimeout    time.Duration `key:"read_timeout" default:"5s" min:"100ms" doc:"how long a client may take to send a request"`
	IdleTimeout    time.Duration `key:"idle_timeout" default:"75s" min:"1s" doc:"how long a connection may be idle; longer than the balancer's"`
	DrainDelay     time.Duration `key:"drain_delay" default:"0s" min:"0s" doc:"how long a stopping replica goes on serving while /readyz already answers 503"`
	Drain          time.Duration `key:"drain" default:"15s" min:"0s" doc:"how long requests in flight may take when the replica stops, before they are cancelled"`
	Reveal         bool          `key:"reveal" default:"true" doc:"show the public the exact stock, the audit, and which replica sold with which token and times; the admin API always shows them"`
}

// Proxies are http.trusted_proxies. Those that are wrong are left out: a configuration was checked.
func (h HTTP) Proxies() (list []netip.Prefix) {
	for _, text := range h.TrustedProxies {
		if prefix, ok := proxy(text); ok {
			list = append(list, prefix)
		}
	}
	return list
}

// proxy reads an address or a network. One of IPv4 within IPv6 is unmapped, as peers are.
func proxy(text string) (prefix netip.Prefix, ok bool) {
	prefix, err := netip.ParsePrefix(text)
	if addr, notAddr := netip.ParseAddr(text); notAddr == nil && addr.Zone() == "" { // peers are compared without their zones
		prefix, err = addr.Prefix(addr.BitLen())
	}
	if prefix.Addr().Is4In6() {
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96) // invalid where it is wider than IPv4
	}
	return prefix.Masked(), err == nil && prefix.IsValid()
}

// Buyer is how buyers are identified.
type Buyer struct {
	From     string `key:"from" default:"request" oneof:"request header token" doc:"request trusts the field user_id, header a header of http.trusted_proxies, token a signed JWT in Authorization: Bearer, whose sub is the buyer"`
	Required bool   `key:"required" default:"false" doc:"reject every purchase without a buyer; with limit.user_rate, or for an item with a limit per buyer, they are rejected anyway"`
	Header   string `key:"header" default:"X-Stockd-Buyer" doc:"the header, where buyer.from is header; the proxies must set it, or remove what their clients sent"`
	Secret   Secret `key:"secret" doc:"secret of tokens by HS256, at least 32 bytes"`
	JWKSFile string `key:"jwks_file" doc:"file with the keys of tokens, as a JWKS: EdDSA (Ed25519) and HS256; read again within about a second after it has changed"`
	Audience string `key:"audience" doc:"what aud of a token must have; any where it is empty"`
}

// Limit are the rate limits of this replica.
type Limit struct {
	UserRate     float64 `key:"user_rate" default:"0" min:"0.001" max:"1000000" off:"0" doc:"purchases a second of one buyer; 0 means unlimited; with a limit purchases must name their buyer"`
	UserBurst    int     `key:"user_burst" default:"5" min:"1" max:"1000000" doc:"purchases that a buyer may make at once"`
	AddressRate  float64 `key:"address_rate" default:"0" min:"0.001" max:"1000000" off:"0" doc:"requests a second of one address, or of one /64 of IPv6; 0 means unlimited; behind a balancer set http.trusted_proxies"`
	AddressBurst int     `key:"address_burst" default:"20" min:"1" max:"1000000" doc:"requests that an address may make at once"`
}

// Queue is the waiting room.
type Queue struct {
	Items     []string      `key:"items" doc:"ids of the items that are sold to admitted buyers alone, separated by commas, or all; none where it is empty"`
	Rate      float64       `key:"rate" default:"50" min:"0.01" max:"100000" doc:"most buyers that an item admits a second"`
	Share     float64       `key:"share" default:"1" min:"0.01" max:"1000" doc:"most buyers that are admitted at the same time for each unit that is left; more than 1 where many do not buy"`
	Admission time.Duration `key:"admission" default:"5m" min:"1s" doc:"how long an admitted buyer may take to buy"`
	Away      time.Duration `key:"away" default:"2m" min:"10s" doc:"how long a buyer may ask for nothing until it has left; who waits for long asks four times in it, so that more keeps a larger crowd off the replicas"`
	Secret    Secret        `key:"secret" doc:"secret that signs tickets, at least 32 bytes, the same on all replicas"`
}

// allItems has every item have a waiting room.
const allItems = "all"

// All reports that every item has a waiting room.
func (q Queue) All() bool { return slices.Contains(q.Items, allItems) }

// IDs are the items that are named. Those that are wrong are left out: a configuration was checked.
func (q Queue) IDs() (ids []int64) {
	for _, text := range q.Items {
		if id, err := strconv.ParseInt(text, 10, 64); err == nil && id > 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// Strategies are those that this replica rejects.
type Strategies struct {
	OnlySafe bool     `key:"only_safe" default:"false" doc:"reject every strategy that may oversell: each that is not exclusive across replicas, and, without a fence, each lock whose holder is not notified of a loss"`
	Deny     []string `key:"deny" doc:"names of strategies to reject, separated by commas"`
}

// Admin is the admin API.
type Admin struct {
	Listen     string    `key:"listen" default:"127.0.0.1:8081" doc:"address and port; opened only where a token is set"`
	Hosts      []string  `key:"hosts" doc:"host names of the admin API, separated by commas, besides IP addresses, localhost and the host of admin.listen; other names get 421; * allows all"`
	TLS        ServerTLS `key:"tls" doc:"TLS of this listener; without a certificate it is plain HTTP"`
	Token      Secret    `key:"token" doc:"bearer token of the admin, at least 16 characters; the log calls it owner"`
	TokensFile string    `key:"tokens_file" doc:"file of further tokens, a name and a token a line; read again when it changes"`
	Required   bool      `key:"required" default:"false" doc:"refuse to start without a token, with a weak one, or with one of the examples of the documents"`
	Pprof      bool      `key:"pprof" default:"false" doc:"serve /debug/pprof/: profiles, which slow the replica down while they are taken"`
}

// Database is where the stock and the ledger are.
type Database struct {
	Driver   string        `key:"driver" default:"sqlite" oneof:"sqlite mysql" doc:"sqlite, or mysql for MySQL, MariaDB and compatible databases"`
	DSN      string        `key:"dsn" default:"stockd.db" doc:"path of the SQLite file, or user@tcp(host:port)/database"`
	Password Secret        `key:"password" doc:"password of the MySQL user; better here than in the DSN"`
	TLS      TLS           `key:"tls" doc:"encryption of the connections to MySQL"`
	MaxOpen  int           `key:"max_open" default:"16" min:"1" max:"10000" doc:"most connections of this replica"`
	LockWait time.Duration `key:"lock_wait" default:"5s" min:"1s" doc:"longest wait for a row lock; MySQL counts whole seconds"`
	Migrate  bool          `key:"migrate" default:"true" doc:"migrate the schema at the start"`
}

// Deduct is how a purchase is served.
type Deduct struct {
	Strategy    string        `key:"strategy" default:"sql-conditional" doc:"the strategy where neither the request nor the item names one"`
	Group       bool          `key:"group" default:"false" doc:"commit all waiting requests for an item in one transaction, where neither the request nor the item decides"`
	Fence       bool          `key:"fence" default:"false" doc:"check the token of the lock in the store, where neither the request nor the item decides and the strategy can be fenced"`
	Choose      string        `key:"choose" default:"auto" oneof:"auto true false" doc:"whether public requests may name a strategy, group or fence other than the item's: auto, true or false; auto is true where http.listen is on the loopback"`
	MaxQuantity int           `key:"max_quantity" default:"1000000" min:"1" max:"1000000" doc:"most units of one purchase of an item without a maximum of its own"`
	PerUser     int           `key:"per_user" default:"0" min:"0" max:"1000000000" doc:"most units that one buyer may have of an item that is created without a limit per buyer; 0 means unlimited. Items that exist keep theirs"`
	Timeout     time.Duration `key:"timeout" default:"10s" min:"1s" doc:"longest time for one purchase; longer than lock.wait and database.lock_wait. MySQL closes a connection that is idle for 5s longer"`
}

// Reserve is how reservations are held.
type Reserve struct {
	TTL           time.Duration `key:"ttl" default:"15m" min:"1s" doc:"how long units are held where the request does not say; up to reserve.longest"`
	Longest       time.Duration `key:"longest" default:"1h" min:"1s" doc:"how long units are held at most, extensions included"`
	MaxHeld       int           `key:"max_held" default:"0" min:"0" max:"1000000000" doc:"most units, and so most reservations, that one buyer may hold at the same time, of all items together; 0 means unlimited; with a limit what holds units must name its buyer. An order of several items holds its units until it is sold"`
	PublicConfirm bool          `key:"public_confirm" default:"true" doc:"let the public API confirm reservations; false where what a client says of its payment is not to be trusted: the admin API always confirms them"`
}

// Group bounds the queues of grouped purchases.
type Group struct {
	Queue int `key:"queue" default:"4096" min:"256" max:"1000000" doc:"most waiting purchases of one item; further ones get busy"`
}

// Lock configures all locks.
type Lock struct {
	Wait        time.Duration `key:"wait" default:"5s" min:"1ms" doc:"longest wait for a lock, before the answer is busy"`
	TTL         time.Duration `key:"ttl" default:"30s" min:"500ms" doc:"how long a lock outlives a holder that stops renewing it; etcd counts whole seconds"`
	Renew       bool          `key:"renew" default:"true" doc:"renew leases while their holders live; false: an explicit lease, which ends lock.ttl after the grant. Of redis-reentrant, redis-fair, redsync, redlock, sql-insert-lock and sql-version-lock; others are never renewed, or live in a session"`
	Retry       time.Duration `key:"retry" default:"50ms" min:"1ms" doc:"longest pause between two attempts of polling locks; a request that waits alone begins with 1ms"`
	Connections int           `key:"connections" default:"8" min:"2" max:"10000" doc:"connections of the locks in SQL"`
}

// Redis is the Redis of the locks and of the strategies that sell from Redis.
type Redis struct {
	Addresses        []string      `key:"addresses" doc:"host:port; several, separated by commas, for a cluster or Sentinels"`
	Username         string        `key:"username" doc:"user of an access control list"`
	Password         Secret        `key:"password" doc:"its password, or the server's"`
	SentinelUsername string        `key:"sentinel_username" doc:"user of the Sentinels' own access control list"`
	SentinelPassword Secret        `key:"sentinel_password" doc:"password of the Sentinels themselves"`
	TLS              TLS           `key:"tls" like:"database" doc:"encryption of the connections to Redis, and to the Sentinels"`
	DB               int           `key:"db" default:"0" min:"0" max:"15" doc:"number of the database; a cluster has only 0"`
	Master           string        `key:"master" doc:"name of the master at the Sentinels of redis.addresses"`
	Cluster          bool          `key:"cluster" default:"false" doc:"the addresses are those of a cluster"`
	Timeout          time.Duration `key:"timeout" default:"1s" min:"10ms" doc:"longest time for a connection and for an answer; below lock.wait"`
	MaxOpen          int           `key:"max_open" default:"32" min:"1" max:"10000" doc:"most connections to a server"`
}

// Redlock is the masters of redlock.
type Redlock struct {
	Addresses []string `key:"addresses" doc:"host:port of each master, separated by commas; an odd number, at least 3"`
	Username  string   `key:"username" doc:"user of an access control list, the same on all"`
	Password  Secret   `key:"password" doc:"password, the same on all"`
	TLS       TLS      `key:"tls" like:"database" doc:"encryption of the connections to the masters"`
}

// ZooKeeper is the ensemble of the locks.
type ZooKeeper struct {
	Addresses []string `key:"addresses" doc:"host:port of each server, separated by commas"`
	Auth      Secret   `key:"auth" doc:"user:password of the digest scheme; only this user may then read and change the nodes of stockd"`
	TLS       TLS      `key:"tls" like:"database" doc:"encryption of the connections to the ensemble, whose addresses are then those of its secureClientPort"`
}

// Etcd is the cluster of the lock.
type Etcd struct {
	Endpoints []string `key:"endpoints" doc:"http://host:port or https://host:port of each member, separated by commas; https:// enables etcd.tls"`
	Username  string   `key:"username" doc:"user, where the cluster requires one"`
	Password  Secret   `key:"password" doc:"password of the user"`
	TLS       TLS      `key:"tls" like:"database" doc:"encryption of the connections to the cluster"`
}

// Bucket is how sql-bucket splits a stock.
type Bucket struct {
	Count int `key:"count" default:"16" min:"1" max:"1024" doc:"rows over which the stock of an item is split; it may change during a sale"`
}

// GetSet is how redis-get-set-locked sells.
type GetSet struct {
	Lock string `key:"lock" default:"redis-reentrant" doc:"the lock around GET, compare and SET: the name of one, as GET /strategies has it; with strategies.only_safe one that notifies its holder of a loss"`
}

// Trace configures tracing.
type Trace struct {
	Endpoint    string  `key:"endpoint" doc:"URL of a collector that accepts OTLP over HTTP, such as http://127.0.0.1:4318; empty disables tracing"`
	Sample      float64 `key:"sample" default:"0.1" min:"0" max:"1" doc:"share of the requests that are traced"`
	TrustParent bool    `key:"trust_parent" default:"false" doc:"honor the sampling decision of the caller's traceparent; not for untrusted clients"`
}

// Audit is the audit of all items.
type Audit struct {
	Every   time.Duration `key:"every" default:"30s" min:"1s" off:"0s" doc:"pause between two audits of all items; 0 disables them"`
	Timeout time.Duration `key:"timeout" default:"1m" min:"1s" doc:"longest time for an audit of all items, and for a full audit of one"`
}

// Log is what is logged.
type Log struct {
	Level  string `key:"level" default:"info" oneof:"debug info warn error" doc:"debug, info, warn or error"`
	Format string `key:"format" default:"text" oneof:"text json" doc:"text or json"`
}

// Lab configures experiments.
type Lab struct {
	Enabled     bool          `key:"enabled" default:"false" doc:"let the admin API hold, pause and kill this replica between its read and its write; without it nothing below may be set"`
	History     string        `key:"history" doc:"file to which the leases of this replica are appended, as JSON lines; none where it is empty"`
	ClockOffset time.Duration `key:"clock_offset" default:"0s" doc:"how far the clock of redis-getset is ahead in this replica; below zero it is behind"`
	Without     []string      `key:"without" oneof:"reaper one-server pause pool" doc:"safeguards that this replica does without, separated by commas: reaper frees the names of sql-insert-lock whose holders crashed; one-server rejects sql-row-lock and sql-named-lock where several database servers take writes; pause has the losers of sql-optimistic wait; pool is the 500 rows of sql-unit, which has 8 instead"`
}

// The sources of buyer.from.
const (
	BuyerFromHeader = "header"
	BuyerFromToken  = "token"
)

// The values of deduct.choose.
const (
	chooseAuto = "auto"
	chooseOn   = "true"
)

// MayChoose reports whether public requests may name a strategy, group or fence other than their
// item's. With auto they may only where http.listen is on the loopback, which no foreign client
// reaches.
func (c Config) MayChoose() bool {
	if c.Deduct.Choose != chooseAuto {
		return c.Deduct.Choose == chooseOn
	}
	return onLoopback(c.HTTP.Listen)
}

// Tokens are the sources of the tokens of the admin API.
func (a Admin) Tokens() admintoken.Options {
	return admintoken.Options{Token: a.Token.Reveal(), TokenFile: a.Token.File, TokensFile: a.TokensFile, Strict: a.Required}
}

// HostNames are the names that the admin API answers to, in lower case.
func (a Admin) HostNames() []string {
	names := make([]string, 0, 1+len(a.Hosts))
	if host, _, err := net.SplitHostPort(a.Listen); err == nil && host != "" {
		names = append(names, strings.ToLower(host))
	}
	for _, name := range a.Hosts {
		names = append(names, strings.ToLower(strings.TrimSuffix(name, ".")))
	}
	return names
}
