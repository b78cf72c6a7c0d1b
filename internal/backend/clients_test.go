package backend_test

import (
	"context"
	crypto "crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// configured are clients of every backend, at addresses where no server is: none of them is waited for.
func configured(t *testing.T) *backend.Clients {
	t.Helper()
	const nowhere = "127.0.0.1:1"
	c := &backend.Clients{
		Redis:     backend.NewRedis(backend.RedisOptions{Addresses: []string{nowhere}, Timeout: answerWithin, PoolSize: 1}),
		Redlock:   []redis.UniversalClient{backend.NewRedis(backend.RedisOptions{Addresses: []string{nowhere}, Timeout: answerWithin, PoolSize: 1})},
		ZooKeeper: backend.NewZooKeeper(backend.ZooKeeperOptions{Servers: []string{nowhere}, DialTimeout: 10 * time.Millisecond}),
	}
	var err error
	if c.Etcd, err = backend.NewEtcd(backend.EtcdOptions{Endpoints: []string{nowhere}, DialTimeout: answerWithin}); err != nil {
		t.Fatal(err)
	}
	c.DB, c.Dialect, err = backend.OpenPool(backend.SQLOptions{Driver: string(backend.MySQL), DSN: "root@tcp(" + nowhere + ")/stock", ConnectTimeout: answerWithin})
	must.Do(t, err)
	return c
}

func TestEachBackendIsConfiguredByItsOwnClient(t *testing.T) {
	whole := configured(t)
	t.Cleanup(func() { _ = whole.Close() }) // closed by a test of its own
	every := append(all(), backend.Database)
	should.Do(t, whole.HasAll(every))
	for of, c := range map[backend.Name]*backend.Clients{
		backend.Redis: {Redis: whole.Redis}, backend.Redlock: {Redlock: whole.Redlock}, backend.ZooKeeper: {ZooKeeper: whole.ZooKeeper},
		backend.Etcd: {Etcd: whole.Etcd}, backend.Database: {DB: whole.DB, Dialect: backend.SQLite}, "": nil,
	} {
		for _, b := range append(every, "nothing") {
			if err := c.Has(b); (err == nil) != (b == of) || err != nil && !errors.Is(err, backend.ErrNotConfigured) {
				t.Errorf("with a client of %q, %s is configured: %v", of, b, err)
			} else if err != nil {
				assertNames(t, err, b)
			}
			if err := c.HasAll([]backend.Name{of, b}); of != "" && (err == nil) != (b == of) {
				t.Errorf("with a client of %q, it and %s are configured: %v", of, b, err)
			}
		}
	}
	file := &backend.Clients{DB: whole.DB, Dialect: backend.SQLite}
	if err := file.Has(backend.MySQL); err == nil || !strings.Contains(err.Error(), "sqlite has neither") {
		t.Errorf("the locks of MySQL in a file: %v, want why they are not to be had", err)
	}
}

func TestKeysBeginWithThePrefixOfTheInstallation(t *testing.T) {
	var none *backend.Clients
	for want, c := range map[string]*backend.Clients{"stockd": none, "shop": {Prefix: "shop"}} {
		should.Be(t, c.KeyPrefix(), want, "keys begin")
	}
	should.Be(t, new(backend.Clients).KeyPrefix(), "stockd", "without a prefix keys begin")
}

// Close closes each client, and returns the failure of any.
func TestNoConnectionOutlivesItsClients(t *testing.T) {
	c := configured(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_ = c.Ping(ctx, backend.ZooKeeper) // begins its session
	must.Do(t, c.Close())
	for b, closed := range map[backend.Name]error{
		backend.Redis: redis.ErrClosed, backend.Redlock: redis.ErrClosed, backend.ZooKeeper: zk.ErrClosing, backend.MySQL: nil,
	} {
		if err := c.Ping(ctx, b); err == nil || closed == nil && !strings.Contains(err.Error(), "closed") || !errors.Is(err, closed) && closed != nil {
			t.Errorf("%s is used after Close: %v", b, err)
		}
	}
	if c.Etcd.Ctx().Err() == nil {
		t.Error("etcd is used after Close")
	}
	should.Fail(t, c.Close(), redis.ErrClosed)
}

// Half of the nodes are no majority.
func TestMoreThanHalfOfTheNodesMustAnswer(t *testing.T) {
	up := labtest.RedisClient(lab.Redis(t))
	defer hangUp(t, up)
	port := must.Get(servers.FreePort())(t)
	down := backend.NewRedis(backend.RedisOptions{Addresses: []string{servers.Loopback(port)}, Timeout: answerWithin, PoolSize: 5})
	defer hangUp(t, down)
	for nodes, answers := range map[string]bool{"u": true, "d": false, "ud": false, "uud": true, "udd": false, "uudd": false, "duuud": true} {
		c := new(backend.Clients)
		for _, node := range nodes {
			c.Redlock = append(c.Redlock, map[rune]redis.UniversalClient{'u': up, 'd': down}[node])
		}
		err := c.Ping(t.Context(), backend.Redlock)
		if (err == nil) != answers {
			t.Errorf("of the nodes %s a majority answers: %v (%v)", nodes, err == nil, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "refused") || !errors.Is(err, backend.ErrNotConnected)) {
			t.Errorf("%v does not say why the others do not answer", err)
		}
	}
}

type key struct{}

// A round trip of a wait goes on for a little after it, and no longer.
func TestARoundTripOutlastsItsWaitByALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := context.WithValue(t.Context(), key{}, "value")
		for name, c := range map[string]struct {
			until time.Duration
			ends  time.Duration
		}{"a wait": {time.Second, time.Second + 250*time.Millisecond}, "a wait that is over": {-time.Minute, 250 * time.Millisecond}} {
			ctx, cancel := context.WithDeadline(parent, time.Now().Add(c.until))
			start := time.Now()
			own, free := backend.Uncut(ctx)
			cancel()
			if own.Err() != nil || own.Value(key{}) != "value" {
				t.Errorf("%s: the round trip ends with its request: %v", name, own.Err())
			}
			<-own.Done()
			should.Be(t, time.Since(start), c.ends, "the round trip ends", name)
			free()
		}
		ctx, cancel := context.WithCancel(parent)
		own, free := backend.Uncut(ctx)
		defer free()
		cancel()
		if _, limited := own.Deadline(); limited || own.Err() != nil {
			t.Error("without a deadline, a round trip of a request that was cancelled ends")
		}
		ctx, cancel = context.WithTimeout(parent, time.Hour)
		defer cancel()
		own, free = backend.Uncut(ctx)
		if free(); own.Err() == nil {
			t.Error("a round trip that is over keeps its timer")
		}
	})
}

// A pool of locks has two connections at least: the token of one that holds the first is
// issued on the second.
func TestAPoolOfLocksHasAConnectionForTokens(t *testing.T) {
	for most, want := range map[int]int{0: 2, 1: 2, 2: 2, 5: 5} {
		pool, dialect, err := backend.OpenPool(backend.SQLOptions{Driver: backend.SQLite, DSN: t.TempDir() + "/stock.db", MaxOpen: most})
		must.Do(t, err)
		if n := pool.Stats().MaxOpenConnections; n != want || dialect != backend.SQLite {
			t.Errorf("with %d connections a pool of %s has %d, want %d", most, dialect, n, want)
		}
		closePool(t, pool)
	}
}

func TestADatabaseThatIsNotKnownIsNotOpened(t *testing.T) {
	for _, o := range []backend.SQLOptions{
		{Driver: "postgres", DSN: "x"}, {Driver: backend.SQLite}, {Driver: string(backend.MySQL), DSN: "no DSN"}, {Driver: backend.SQLite, DSN: t.TempDir() + "/no/folder"},
	} {
		if _, _, err := backend.OpenPool(o); err == nil || !strings.Contains(err.Error(), o.Driver) {
			t.Errorf("%+v: %v, want an error that names the driver", o, err)
		}
	}
}

func closePool(t testing.TB, pool *sql.DB) {
	t.Helper()
	must.Do(t, pool.Close())
}

// What the server has been asked it may answer before the goodbye: until then the call is under
// way, and an answer that came later would be written into what the call has returned.
func TestZKACloseWaitsForTheAnswersUnderWay(t *testing.T) {
	way := labtest.NewProxy(t, lab.ZooKeeper(t).Address)
	client := backend.NewZooKeeper(backend.ZooKeeperOptions{Servers: []string{way.Address}})
	t.Cleanup(client.Close)
	link := must.Get(client.Connected(t.Context()))(t)
	path := "/" + crypto.Text()
	held := way.Arm(servers.Rule{Sent: path, Do: servers.Hold})
	defer held.Pass()
	made := make(chan error, 1)
	go func() {
		made <- backend.ZKDo(t.Context(), link, func(conn *zk.Conn) error {
			_, err := conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
			return err
		})
	}()
	labtest.AwaitReached(t, held)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		client.Close()
	}()
	<-link.Ctx.Done()
	select {
	case err := <-made:
		t.Fatalf("the close ended a call under way: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	held.Pass()
	must.Do(t, <-made)
	<-closed
}

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	for version, since := range map[string]bool{
		"6.0.16": false, "6.2": true, "6.2.0": true, "6.9": true, "6.10.1": true, "7.0.15": true, "10.11.14-MariaDB": true, "5": false, "": false,
	} {
		should.Be(t, backend.IsSince(version, "6.2"), since, "is since 6.2:", version)
	}
}

// foreign closes its literal where the server takes the last byte of a letter and the backslash after it for one
// letter of its own, as gbk and Shift JIS do.
const foreign = `你'), (2, 0x6d696e65)-- `

// What a DSN says of text is utf8mb4, or rejected by its name: a server that reads the bytes of a literal in another way
// than the driver writes them executes what a buyer says.
func TestADSNDoesNotAlterWhatTextMeans(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		admin, _ := labtest.Connect(t, d)
		defer closePool(t, admin)
		must.Get(admin.ExecContext(t.Context(), `CREATE TABLE texts (id INT PRIMARY KEY, who VARCHAR(99) CHARACTER SET utf8mb4 NOT NULL)`))(t)
		for parameters, rejected := range map[string]string{
			"charset=gbk": "charset", "charset=big5": "charset", "charset=sjis": "charset", "charset=gb18030,utf8mb4": "charset", "charset=utf8": "charset",
			"collation=gbk_chinese_ci": "collation", "collation=latin1_bin&charset=utf8mb4": "collation",
			"charset=utf8mb4": "", "charset=utf8mb4,utf8&parseTime=false&loc=Local": "", "collation=utf8mb4_unicode_ci": "",
			"character_set_client=gbk": "", "sql_mode=NO_BACKSLASH_ESCAPES": "", "sql_mode=%27ANSI_QUOTES,PIPES_AS_CONCAT%27": "",
			"multiStatements=true&clientFoundRows=false&columnsWithAlias=true&maxAllowedPacket=100&timeTruncate=1h": "",
			"autocommit=0": "", "completion_type=2": "", "timestamp=1": "timestamp", "insert_id=7": "insert_id", "no_such_setting=1": "no_such_setting",
		} {
			s, err := backend.OpenSQL(backend.SQLOptions{
				Driver: d.Driver, DSN: d.DSN + "?" + parameters, Password: d.Password, MaxOpen: 1, ConnectTimeout: 5 * time.Second,
			})
			if rejected != "" {
				if err == nil || !strings.Contains(err.Error(), rejected) {
					t.Errorf("%s: %v, want it rejected by the name of %s", parameters, err, rejected)
				}
				continue
			}
			must.Do(t, err)
			if _, err = s.ExecContext(t.Context(), `INSERT INTO texts (id, who) VALUES (?, ?)`, 1, foreign); err != nil {
				t.Errorf("%s: %v", parameters, err)
			}
			closePool(t, s.DB)
			var rows int
			var who string
			if err := admin.QueryRowContext(t.Context(), `SELECT COUNT(*), MIN(who) FROM texts`).Scan(&rows, &who); err != nil || rows != 1 || who != foreign {
				t.Errorf("%s: %d rows and %q are there (%v), want 1 and %q", parameters, rows, who, err, foreign)
			}
			_, err = admin.ExecContext(t.Context(), `DELETE FROM texts`)
			must.Do(t, err)
		}
	})
}
