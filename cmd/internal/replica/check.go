package replica

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/backend/check"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
)

// Check connects to everything that is configured, as one of so many replicas does, tries what they do, and
// returns what it found until ctx ends. It takes back what it wrote.
func Check(ctx context.Context, c config.Config, replicas int) ([]check.Finding, error) {
	database, err := sqlOptions(c)
	if err != nil {
		return nil, err
	}
	clients, err := lockClients(c, database)
	if err != nil {
		return nil, err
	}
	defer clients.Close()                                             //nolint:errcheck // everything is said
	k := &checks{Config: c, clients: clients, replicas: replicas + 1} // one more during a rolling restart
	if database.TLS != nil {
		k.shown = check.Group{check.Shown("database certificate", database.TLS)}
	}
	if k.pool, err = backend.OpenSQL(database); err != nil {
		return nil, err
	}
	defer k.pool.Close() //nolint:errcheck // the same
	here := check.Group{{What: "admin tokens", Run: k.adminTokens}, {What: "buyers", Run: k.buyers}}
	found := check.Run(ctx, slices.Concat([]check.Group{here}, k.certificates(), k.servers()))
	found = append(found, k.clocks.Spread())
	if limit, needed, ok := openFiles(c); ok {
		f := check.Judge(limit >= needed, check.Warning, strconv.FormatUint(limit, 10), fmt.Sprintf("at least %d", needed), "raise ulimit -n, LimitNOFILE or nofile, or lower http.max_connections")
		f.What = "open files"
		found = append(found, f)
	}
	for _, w := range c.Warnings() {
		found = append(found, check.Finding{What: w.Key, State: check.Warning, Found: w.Problem, Do: "see docs/production.md"})
	}
	return found, nil
}

// checkAtStart makes the checks that only read, and logs what is not as it should be.
func checkAtStart(ctx context.Context, c config.Config, clients *backend.Clients, store *repo.Store, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, firstPing)
	defer cancel()
	k := &checks{Config: c, clients: clients, store: store, replicas: 1}
	groups := append(k.certificates(), k.servers()...)
	for i := range groups {
		groups[i] = groups[i].Reading()
	}
	for _, f := range check.Run(ctx, groups) {
		if f.State != check.OK && clients.Has(backend.Name(f.What)) != nil && context.Cause(ctx) == nil { // the first ping says it of a backend
			log.WarnContext(ctx, "not as it should be", "what", f.What, "found", f.Found, "wanted", f.Wanted, "do", f.Do)
		}
	}
}

// checks are those of a configuration.
type checks struct {
	config.Config
	clients  *backend.Clients
	pool     *backend.SQL // of the store, while that is nil
	store    *repo.Store
	shown    check.Group // about the certificate of the database
	replicas int         // that share the servers
	clocks   check.Clocks
}

func (k *checks) certificates() (groups []check.Group) {
	for key, file := range k.Certificates() {
		groups = append(groups, check.Group{check.CertificateFile(key, file, strings.HasSuffix(key, "ca_file"))})
	}
	return groups
}

func (k *checks) adminTokens(context.Context) check.Finding {
	const wanted = "one for each admin"
	tokens, err := admintoken.Open(k.Admin.Tokens())
	if err != nil {
		return check.Tried(err, "", wanted, "see docs/admin.md")
	}
	names := strings.Join(tokens.Names(), ", ")
	return check.Judge(names != "", check.Warning, cmp.Or(names, "none"), wanted, "set admin.token_file: without a token no item can be created")
}

func (k *checks) buyers(ctx context.Context) check.Finding {
	_, err := verifiedBuyers(ctx, k.Config, slog.New(slog.DiscardHandler))
	return check.Tried(err, "buyer.from is "+k.Buyer.From, "keys of tokens that can be read", "see docs/buyers.md")
}

func (k *checks) servers() []check.Group {
	groups := []check.Group{k.databaseChecks()}
	add := func(name string, t config.TLS, addresses []string, g check.Group) {
		encryption, err := t.ClientConfig()
		for _, address := range addresses {
			if address = strings.TrimPrefix(address, "https://"); err == nil && encryption != nil { // the connections have the error, too
				g = append(g, check.ServerCertificate(name+" certificate of "+address, address, encryption))
			}
		}
		groups = append(groups, g)
	}
	if k.clients.Redis != nil {
		add("redis", k.Redis.TLS, k.Redis.Addresses, check.Redis(check.RedisOptions{
			Name: "redis", Client: k.clients.Redis, Prefix: k.Prefix, Streams: true, Clocks: &k.clocks,
			Connections: k.replicas * (k.Redis.MaxOpen + redisstock.Defaults().Partitions + redisBeside),
		}))
	}
	for i, node := range k.clients.Redlock {
		address := k.Redlock.Addresses[i : i+1]
		add("redlock", k.Redlock.TLS, address, check.Redis(check.RedisOptions{
			Name: "redlock " + address[0], Client: node, Prefix: k.Prefix, Connections: k.replicas * k.Redis.MaxOpen, Clocks: &k.clocks,
		}))
	}
	if k.clients.ZooKeeper != nil {
		add("zookeeper", k.ZooKeeper.TLS, k.ZooKeeper.Addresses, check.ZooKeeper(k.clients, &k.clocks))
	}
	if k.clients.Etcd != nil {
		add("etcd", k.Etcd.TLS, k.Etcd.Endpoints, check.Etcd(k.clients, k.Lock.TTL))
	}
	return groups
}

// redisBeside is how many connections of a replica to Redis are outside its pools.
const redisBeside = 3

func (k *checks) databaseChecks() check.Group {
	g := append(check.Group{{What: "database", Connects: true, Run: k.connect}}, k.shown...)
	if k.clients.Has(backend.MySQL) == nil {
		g = append(g, check.Check{What: "database settings", Run: k.settings})
		g = append(g, check.SQL(k.clients.DB, k.replicas*databaseConnections(k.Config), &k.clocks)...)
	}
	return append(g,
		check.Check{What: "database schema", Connects: true, Run: k.schema},
		check.Check{What: "database write", Tries: true, Run: k.write},
	)
}

// settings are those of the server with which it sells, and may lose sales; others are rejected by each connection.
func (k *checks) settings(ctx context.Context) check.Finding {
	states, err := k.store.Settings(ctx)
	if err != nil {
		return check.Tried(err, "", "", "see the server's log")
	}
	var wrong []string
	for _, s := range states {
		if !s.OK {
			wrong = append(wrong, s.String())
		}
	}
	return check.Judge(len(wrong) == 0, check.Warning, cmp.Or(strings.Join(wrong, "; "), "as wanted"), fmt.Sprintf("%d settings", len(states)), "set it on the server")
}

func (k *checks) write(ctx context.Context) check.Finding {
	return check.Tried(k.store.TryWrites(ctx), "done and rolled back", "SELECT, INSERT, UPDATE, DELETE on every table", "see the server's log")
}

func (k *checks) connect(ctx context.Context) check.Finding {
	const wanted = "SQLite, MySQL 8.0, MariaDB 10.6, or later"
	if k.store == nil {
		store, err := repo.New(ctx, k.pool, repo.Options{Replica: k.Replica})
		if err != nil {
			return check.Tried(err, "", wanted, "see whether it runs, and database.dsn and tls")
		}
		k.store = store
	}
	return check.Tried(nil, strings.TrimSpace(k.store.Version()+" "+k.store.Cluster()), wanted, "")
}

func (k *checks) schema(ctx context.Context) check.Finding {
	const wanted = "no pending migration"
	lacks, err := pending(ctx, k.store)
	apart := ""
	if err == nil {
		apart, err = k.store.UniqueOnAShard(ctx)
	}
	if err != nil {
		return check.Tried(err, "", wanted, "see the server's log")
	}
	if apart != "" {
		return check.Judge(false, check.Problem, apart+" has none", "a look-up over all shards", "apply deploy/vitess/shop.vschema.json")
	}
	return check.Judge(lacks == "", check.Problem, cmp.Or(lacks, "none"), wanted, "stockd migrate up; a replica does it where database.migrate is set")
}

// databaseConnections is how many connections to the database a replica may have: those of sales, of locks, and the one that
// locks the schema.
func databaseConnections(c config.Config) int { return c.Database.MaxOpen + c.Lock.Connections + 1 }

// otherFiles is more than the log, the sessions of ZooKeeper and etcd, and what is read again have open.
const otherFiles = 64

// withinFiles are the limits of a listener, and how many rejected connections it answers at a time, within the limit on
// open files: a connection that is beyond it would wait for an answer until another one closes.
func withinFiles(c config.Config) (limits config.HTTP, answered int) {
	limits, answered = c.HTTP, maxAnswered
	limit, ok := fileLimit()
	if !ok {
		return limits, answered
	}
	all := int(min(limit, math.MaxInt32))
	// Where what else is open leaves little, the listeners have half: not all of it is open at once.
	each := max(all-filesBesides(c), all/2) / listeners(c)
	answered = min(answered, max(each-cmp.Or(c.HTTP.MaxConnections, each), each/4))
	if limits.MaxConnections == 0 || limits.MaxConnections > each-answered {
		limits.MaxConnections = max(each-answered, 1)
	}
	return limits, answered
}

func listeners(c config.Config) int {
	if c.Admin.Tokens().Any() {
		return 2
	}
	return 1
}

// filesBesides are how many it may have open beside the connections of its listeners.
func filesBesides(c config.Config) int {
	servers := len(c.Redis.Addresses) + len(c.Redlock.Addresses)
	return databaseConnections(c) + servers*c.Redis.MaxOpen + otherFiles
}

// openFiles are how many files this process may have open, and how many a replica with this configuration needs: one for
// each connection of a listener, served or rejected, and of a pool. Not ok: the limit is not known.
func openFiles(c config.Config) (limit, needed uint64, ok bool) {
	n := listeners(c)*(c.HTTP.MaxConnections+maxAnswered) + filesBesides(c)
	limit, ok = fileLimit()
	return limit, uint64(max(n, 0)), ok
}
