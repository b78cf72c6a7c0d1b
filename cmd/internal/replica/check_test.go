package replica

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/backend/check"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/testlog"
)

// site is a server of each kind, as it should be, and what a shop is configured with.
type site struct {
	env       []string
	database  *servers.Database
	sql       *sql.DB
	redis     *servers.Redis
	redlock   *servers.Redlock
	zookeeper *servers.ZooKeeper
	etcd      *servers.Etcd
	authority *servers.Authority
}

// openSiteOf is a site whose servers are a database alone.
func openSiteOf(t *testing.T, k *servers.Supervisor, kind string) *site {
	t.Helper()
	cmdtest.NeedDatabase(t, kind)
	s := new(site)
	s.database = labtest.Own(t, k, kind, servers.StartDatabase, servers.Choice{Mode: servers.Local, Database: kind})
	s.sql, _ = labtest.Connect(t, s.database)
	t.Cleanup(func() { closed(t, s.sql) })
	labtest.Open(t, s.database, "check")
	s.addShop(t)
	s.env = slices.Concat(impatiently(t), s.database.Env(), []string{
		"STOCKD_HTTP_MAX_CONNECTIONS=100", "STOCKD_ADMIN_TOKEN=" + cmdtest.Token, "STOCKD_DATABASE_DSN=" + strings.Replace(s.database.DSN, "stockd@", "shop@", 1),
	})
	return s
}

func openSite(t *testing.T) *site {
	t.Helper()
	cmdtest.NeedLockServers(t)
	k := labtest.StartSupervisor(t)
	s := openSiteOf(t, k, servers.MariaDB)
	s.authority = newAuthority(t, k)
	s.redis = labtest.Own(t, k, "redis", labtest.Plain(servers.StartDurableRedis), nil)
	s.redlock = labtest.Own(t, k, "faketime", servers.StartRedlockWith, servers.RedlockOptions{Durable: true, Clocks: true})
	s.zookeeper = labtest.Own(t, k, "faketime", labtest.Plain(servers.StartZooKeeperWithClock), nil)
	s.etcd = labtest.Own(t, k, "etcd", servers.StartEtcd, servers.Local)
	s.env = slices.Concat(s.env, s.redis.Conn().Env(), s.redlock.Conn().Env(), s.zookeeper.Conn().Env(), s.etcd.Conn().Env())
	return s
}

// addShop makes the user of replicas, who has its rights on each table.
func (s *site) addShop(t *testing.T) {
	t.Helper()
	s.query(t, "CREATE USER shop@'127.0.0.1' IDENTIFIED BY '"+s.database.Password+"'")
	_, tables, err := servers.Rows(t.Context(), s.sql, "SHOW TABLES")
	must.Do(t, err)
	for _, row := range tables {
		s.query(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON stockd."+row[0]+" TO shop@'127.0.0.1'")
	}
}

// query changes the database.
func (s *site) query(t *testing.T, statements string) {
	t.Helper()
	for statement := range strings.SplitSeq(statements, ";") {
		must.Get(s.sql.ExecContext(context.WithoutCancel(t.Context()), statement))(t)
	}
}

// command changes a Redis.
func command(t *testing.T, r *servers.Redis, args ...any) {
	t.Helper()
	client := r.Open()
	defer closed(t, client)
	must.Do(t, client.Do(context.WithoutCancel(t.Context()), args...).Err())
}

// isClean fails where a check has left something.
func (s *site) isClean(t *testing.T) {
	t.Helper()
	client := s.redis.Open()
	defer closed(t, client)
	should.Equal(t, must.Get(client.Keys(t.Context(), "*").Result())(t), nil, "the keys in Redis")
	conn := s.dial(t)
	defer conn.Close()
	if there, _, err := conn.Exists("/stockd"); err != nil || there {
		t.Errorf("ZooKeeper has a node: %v (%v)", there, err)
	}
	etcd := must.Get(s.etcd.Open())(t)
	defer closed(t, etcd)
	keys := must.Get(etcd.Get(t.Context(), "", clientv3.WithPrefix()))(t)
	should.Be(t, len(keys.Kvs), 0, "etcd has", keys)
	var rows int
	if err := s.sql.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tb_goods_stock").Scan(&rows); err != nil || rows > 0 {
		t.Errorf("the database has %d rows (%v)", rows, err)
	}
}

// dial is a session with ZooKeeper.
func (s *site) dial(t *testing.T) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{s.zookeeper.Address}, 10*time.Second, zk.WithLogInfo(false))
	must.Do(t, err)
	return conn
}

func (s *site) check(t *testing.T, env ...string) []check.Finding {
	t.Helper()
	c := configuration(t, slices.Concat(s.env, env))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	found := must.Get(Check(ctx, c, 3))(t)
	text := must.Get(json.Marshal(found))(t)
	for key, secret := range c.Secrets() {
		if value := secret.Reveal(); value != "" && strings.Contains(string(text), value) {
			t.Errorf("%s is shown in %s", key, text)
		}
	}
	return found
}

// wrong is something that is not as it should be: what makes it so, until the test ends, and what says so.
type wrong struct {
	make func(t *testing.T, s *site) (env []string)
	// row is the finding, or the end of its name; what it finds and says to do contains says.
	row   string
	state check.State
	says  string
}

// isSaid reports whether a finding says what is wrong.
func (w wrong) isSaid(f check.Finding) bool {
	isRow := f.What == w.row || strings.HasPrefix(w.row, " ") && strings.HasSuffix(f.What, w.row) || strings.HasPrefix(f.What, w.row+"://")
	return isRow && f.State == w.state && strings.Contains(f.Found+f.Do, w.says)
}

// finds checks until a server of a busy machine is no longer too slow for its answer.
func (s *site) finds(t *testing.T, env []string, what string, ok func([]check.Finding) bool) {
	t.Helper()
	var found []check.Finding
	for range 5 {
		if found = s.check(t, env...); ok(found) {
			return
		}
	}
	t.Errorf("want %s, in %+v", what, found)
}

func setting(env ...string) func(*testing.T, *site) []string {
	return func(*testing.T, *site) []string { return env }
}

func statement(do, undo string, env ...string) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		t.Helper()
		s.query(t, do)
		t.Cleanup(func() { s.query(t, undo) })
		return env
	}
}

func redisConfig(key, value, before string) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		t.Helper()
		command(t, s.redis, "CONFIG", "SET", key, value)
		t.Cleanup(func() { command(t, s.redis, "CONFIG", "SET", key, before) })
		return nil
	}
}

func redisUser(rights string) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		t.Helper()
		args := []any{"ACL", "SETUSER", "limited", "reset", "on", ">" + s.redis.Password}
		for right := range strings.FieldsSeq(rights) {
			args = append(args, right)
		}
		command(t, s.redis, args...)
		return []string{"STOCKD_REDIS_USERNAME=limited"}
	}
}

func replicaOfAnother(t *testing.T, s *site) []string {
	t.Helper()
	host, port, _ := strings.Cut(s.redlock.Nodes[0].Address, ":")
	command(t, s.redis, "REPLICAOF", host, port)
	t.Cleanup(func() { command(t, s.redis, "REPLICAOF", "NO", "ONE") })
	return nil
}

// shift moves the clock of a master, or of ZooKeeper.
func shift(of func(*site) *servers.Clock, by time.Duration) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		t.Helper()
		must.Do(t, of(s).Set(by))
		t.Cleanup(func() { _ = of(s).Set(0) })
		return nil
	}
}

func masters(s *site) *servers.Clock { return s.redlock.Nodes[0].Clock }
func leaders(s *site) *servers.Clock { return s.zookeeper.Clock }

// owned has another user own the nodes.
func owned(t *testing.T, s *site) []string {
	t.Helper()
	conn := s.dial(t)
	must.Get(conn.Create("/stockd", nil, 0, zk.DigestACL(zk.PermAll, "other", "secret")))(t)
	t.Cleanup(func() {
		must.Do(t, conn.Delete("/stockd", -1))
		conn.Close()
	})
	return nil
}

// noSpace is the alarm of an etcd that is full.
func noSpace(t *testing.T, s *site) []string {
	t.Helper()
	client := must.Get(s.etcd.Open())(t)
	state := must.Get(client.Status(t.Context(), s.etcd.Endpoint))(t)
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		_, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(context.WithoutCancel(t.Context()),
			&etcdserverpb.AlarmRequest{Action: action, MemberID: state.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE})
		should.Do(t, err)
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	t.Cleanup(func() {
		alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
		closed(t, client)
	})
	return nil
}

func hangs(t *testing.T, s *site) []string {
	t.Helper()
	proxy := labtest.NewProxy(t, strings.TrimPrefix(s.etcd.Endpoint, "http://"))
	proxy.Hang(true)
	return []string{"STOCKD_ETCD_ENDPOINTS=http://" + proxy.Address}
}

func other(t *testing.T, s *site) []string {
	t.Helper()
	statement("CREATE DATABASE other; GRANT ALL ON other.* TO shop@'127.0.0.1'", "DROP DATABASE other")(t, s)
	return []string{"STOCKD_DATABASE_DSN=" + strings.Replace(strings.Replace(s.database.DSN, "stockd@", "shop@", 1), "/stockd", "/other", 1)}
}

// endsIn is a certificate of the admin API.
func endsIn(left time.Duration) func(*testing.T, *site) []string {
	return func(t *testing.T, s *site) []string {
		t.Helper()
		c := must.Get(s.authority.IssueUntil("admin", time.Now().Add(left)))(t)
		return []string{"STOCKD_ADMIN_TLS_CERT_FILE=" + c.CertFile, "STOCKD_ADMIN_TLS_KEY_FILE=" + c.KeyFile}
	}
}

// mistakes are things that are not as they should be, by what they are.
type mistakes map[string]wrong

func (m mistakes) areFound(t *testing.T, s *site) {
	t.Helper()
	for name, w := range m {
		t.Run(name, func(t *testing.T) {
			s.finds(t, w.make(t, s), fmt.Sprintf("%s: %s with %q", w.row, w.state, w.says), func(found []check.Finding) bool {
				return slices.ContainsFunc(found, w.isSaid)
			})
		})
	}
}

// isRight fails where something is wrong that is not.
func (s *site) isRight(t *testing.T) {
	t.Helper()
	s.finds(t, nil, "nothing wrong", func(found []check.Finding) bool {
		wrong := func(f check.Finding) bool { return f.State != check.OK }
		named := func(f check.Finding) bool { return f.What == "database named lock" } // every server has them
		return !slices.ContainsFunc(found, wrong) && slices.ContainsFunc(found, named)
	})
}

func databaseMistakes() mistakes {
	return mistakes{
		"too few connections":       {statement("SET GLOBAL max_connections = 50", "SET GLOBAL max_connections = 1000"), "database max_connections", check.Problem, "50"},
		"too few for the user":      {statement("ALTER USER shop@'127.0.0.1' WITH MAX_USER_CONNECTIONS 40", "ALTER USER shop@'127.0.0.1' WITH MAX_USER_CONNECTIONS 0"), "database max_user_connections", check.Problem, "40"},
		"too few statements":        {statement("SET GLOBAL max_prepared_stmt_count = 10", "SET GLOBAL max_prepared_stmt_count = 16382"), "database max_prepared_stmt_count", check.Warning, "10"},
		"no statement":              {statement("SET GLOBAL max_prepared_stmt_count = 0", "SET GLOBAL max_prepared_stmt_count = 16382"), "database prepared statement", check.Problem, "max_prepared_stmt_count"},
		"a log that is not synced":  {statement("SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1"), "database settings", check.Warning, `is "2"`},
		"a read-only database":      {statement("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"), "database write", check.Problem, "takes writes"},
		"a table without a right":   {statement("REVOKE DELETE ON stockd.lock_token FROM shop@'127.0.0.1'", "GRANT DELETE ON stockd.lock_token TO shop@'127.0.0.1'"), "database write", check.Problem, "lock_token"},
		"a database without tables": {other, "database schema", check.Problem, "migrate up"},
		"a wrong password":          {setting("STOCKD_DATABASE_PASSWORD=a-guess-at-it"), "database", check.Problem, "Access denied"},
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	s := openSite(t)
	s.isRight(t)
	s.isClean(t)
	databaseMistakes().areFound(t, s)
	mistakes{
		"a wrong password of Redis":    {setting("STOCKD_REDIS_PASSWORD=a-guess-at-it"), "redis", check.Problem, "rights"},
		"a Redis that evicts":          {redisConfig("maxmemory-policy", "allkeys-lru", "noeviction"), "redis maxmemory_policy", check.Problem, "allkeys-lru"},
		"too few clients":              {redisConfig("maxclients", "100", "10000"), "redis maxclients", check.Problem, "100"},
		"a Redis that keeps nothing":   {redisConfig("appendonly", "no", "yes"), "redis aof_enabled", check.Warning, "appendonly yes"},
		"a Redis that is full":         {redisConfig("maxmemory", "1", "0"), "redis script", check.Problem, "memory"},
		"a Redis without replicas":     {redisConfig("min-replicas-to-write", "1", "0"), "redis streams", check.Problem, "other servers"},
		"no channel":                   {redisUser("~stockd:* resetchannels +@all"), "redis SUBSCRIBE", check.Problem, "rights"},
		"no script":                    {redisUser("~stockd:* &stockd:* +@all -@scripting"), "redis script", check.Problem, "rights"},
		"no streams":                   {redisUser("~stockd:* &stockd:* +@all -@stream"), "redis streams", check.Problem, "rights"},
		"a replica of a Redis":         {replicaOfAnother, "redis role", check.Problem, "master"},
		"a clock that is ahead":        {shift(masters, 5*time.Second), " clock", check.Warning, "+"},
		"a leader that is behind":      {shift(leaders, -5*time.Second), "zookeeper clock", check.Warning, "-"},
		"clocks that differ":           {shift(masters, -5*time.Second), "all clocks", check.Warning, "apart"},
		"nodes of another user":        {owned, "zookeeper", check.Problem, "rights"},
		"an etcd without room":         {noSpace, "etcd lease and key", check.Problem, "room"},
		"an etcd that is full":         {noSpace, "etcd", check.Problem, "room"},
		"an alarm of etcd":             {noSpace, "etcd http", check.Problem, "NOSPACE"},
		"a server that hangs":          {hangs, "etcd", check.Problem, "hangs"},
		"a certificate that ends soon": {endsIn(time.Hour), "admin.tls.cert_file", check.Warning, "until "},
		"a certificate that has ended": {endsIn(-time.Minute), "admin.tls.cert_file", check.Problem, "until "},
		"too few open files":           {setting("STOCKD_HTTP_MAX_CONNECTIONS=1000000"), "open files", check.Warning, "nofile"},
		"no token":                     {setting("STOCKD_ADMIN_TOKEN="), "admin tokens", check.Warning, "none"},
		"no keys of buyers":            {setting("STOCKD_BUYER_FROM=token", "STOCKD_BUYER_JWKS_FILE=/none"), "buyers", check.Problem, "/none"},
		"a risk":                       {setting("STOCKD_HTTP_TRUSTED_PROXIES=0.0.0.0/0"), "http.trusted_proxies", check.Warning, "any address"},
	}.areFound(t, s)
	s.isClean(t)
}

func TestCheckNamesWhatIsWrongWithMySQL(t *testing.T) {
	s := openSiteOf(t, labtest.StartSupervisor(t), servers.MySQL)
	s.isRight(t)
	databaseMistakes().areFound(t, s)
}

// Certificates of the lab last for a day.
func TestCheckReadsWhatServersShow(t *testing.T) {
	cmdtest.NeedRedis(t)
	k := labtest.StartSupervisor(t)
	security := newSecurity(t, newAuthority(t, k), true)
	r := labtest.Own(t, k, "redis", servers.StartSecureRedis, security)
	for _, kind := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(kind, func(t *testing.T) {
			cmdtest.NeedDatabase(t, kind)
			d := must.Get(servers.StartDatabase(t.Context(), k, servers.Choice{Mode: servers.Local, Database: kind, Security: security}))(t)
			s := &site{env: slices.Concat(impatiently(t), d.Env(), r.Conn().Env())}
			found := s.check(t)
			for _, row := range []string{"database certificate", "redis certificate of " + r.Address, "database.tls.cert_file", "redis.tls.ca_file"} {
				i := slices.IndexFunc(found, func(f check.Finding) bool { return f.What == row })
				if i < 0 || found[i].State != check.Warning || !strings.HasPrefix(found[i].Found, "until ") {
					t.Errorf("want a warning about %s, in %+v", row, found)
				}
			}
		})
	}
}

// A replica makes the checks that only read: of this Redis, which evicts and takes no write, it reports the first.
func TestAReplicaWarnsOfWhatIsWrong(t *testing.T) {
	k := labtest.StartSupervisor(t)
	r := labtest.Own(t, k, "redis", labtest.Plain(servers.StartDurableRedis), nil)
	for key, value := range map[string]string{"maxmemory-policy": "allkeys-lru", "min-replicas-to-write": "1"} {
		command(t, r, "CONFIG", "SET", key, value)
	}
	env := append(r.Conn().Env(), "STOCKD_ADMIN_TOKEN="+cmdtest.Token)
	p := startInnards(t, env)
	var log testlog.Lines
	checkAtStart(t.Context(), configuration(t, append(impatiently(t), env...)), p.locks.Clients, p.store, slog.New(slog.NewTextHandler(&log, nil)))
	text := log.String()
	should.Be(t, strings.Count(text, "\n"), 1, "the lines of the log", text)
	should.Contain(t, text, "WARN", "redis maxmemory_policy", "allkeys-lru")
}
