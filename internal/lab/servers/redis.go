package servers

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/pause"
)

// RedisUser is stockd's user of a Redis that has a default user with all rights beside. It has the same password,
// and under any prefix the rights that the documents give it.
const RedisUser = clientName

// Redis is one that runs, and how to reach it. It keeps nothing on disk, unless it
// was started by StartDurableRedis: after a restart it is empty.
type Redis struct {
	Info
	Address, Password string
	// Username is of the password, or empty for the default user.
	Username string
	// Clock is its clock, or nil where that is this machine's.
	Clock *Clock
	runner

	server   *Server // nil where it is embedded
	security *Security
	onDisk   int64 // how much of its file was there, as AwaitOnDisk saw it last
}

// StartRedis starts a Redis with a random password.
func StartRedis(ctx context.Context, k *Supervisor, mode Mode) (*Redis, error) {
	return startRedis(ctx, k, mode, rand.Text())
}

// StartDurableRedis starts a Redis that writes each command to its disk before it
// answers, and has it again after a restart.
func StartDurableRedis(ctx context.Context, k *Supervisor) (*Redis, error) {
	return localRedis(ctx, k, redisSetup{password: rand.Text(), config: keepsAll})
}

// StartSecureRedis starts a Redis that takes TLS only, and of users only one.
func StartSecureRedis(ctx context.Context, k *Supervisor, s *Security) (*Redis, error) {
	return localRedis(ctx, k, redisSetup{username: clientName, password: rand.Text(), config: keepsNothing, security: s})
}

// What a Redis keeps on its disk.
const (
	keepsNothing = "appendonly no\n"
	keepsAll     = "appendonly yes\nappendfsync always\n"
	keepsSeconds = "appendonly yes\nappendfsync everysec\n"
)

func startRedis(ctx context.Context, k *Supervisor, mode Mode, password string) (*Redis, error) {
	if _, err := Find("redis-server"); mode == Embedded || mode == Auto && err != nil {
		return embeddedRedis(ctx, password)
	}
	return localRedis(ctx, k, redisSetup{password: password, config: keepsNothing})
}

// redisSetup says how a local Redis is to be.
type redisSetup struct {
	username string // of the only user, or empty for the one that needs no name
	password string
	config   string // lines of redis.conf
	clock    bool   // it has a clock of its own
	security *Security
	sentinel bool // it is a Sentinel, and keeps its configuration itself
}

func localRedis(ctx context.Context, k *Supervisor, setup redisSetup) (*Redis, error) {
	program, err := Find("redis-server")
	if err != nil {
		return nil, &MissingError{What: err.Error(), How: "apt-get install redis-server brings it"}
	}
	r := &Redis{Info: Info{Started: Local}, Username: setup.username, Password: setup.password, security: setup.security}
	r.server, err = newServer(k, Spec{
		Name: "redis-server", Program: program, Ready: r.readVersion,
		Configure: func(folder string, port int) (args, env []string, err error) {
			r.Address = Loopback(port)
			if setup.clock {
				if r.Clock, err = newClock(folder); err != nil {
					return nil, nil, err
				}
				env = r.Clock.env()
			}
			// In a file, because any user can read the arguments of a process.
			file := filepath.Join(folder, "redis.conf")
			if args = []string{file}; setup.sentinel {
				args = append(args, "--sentinel")
			}
			return args, env, os.WriteFile(file, []byte(setup.file(folder, port)), 0o600)
		},
	})
	if err != nil {
		return nil, err
	}
	r.runner = r.server
	err = r.server.start(ctx)
	if _, missing := errors.AsType[*MissingError](err); err != nil && setup.clock && !missing && ctx.Err() == nil {
		return nil, withoutClock(program, err)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// withoutClock is the error of a server that does not run with libfaketime, as Redis
// 8.0 does not: it counts as missing.
func withoutClock(program string, err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return &MissingError{
		What: fmt.Sprintf("a Redis whose clock can be moved: %s does not run with libfaketime (%s)", program, first),
		How:  "Redis 7.0 does",
	}
}

func (s redisSetup) file(folder string, port int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "bind 127.0.0.1\ndir \"%s\"\n", folder)
	if s.username == "" {
		fmt.Fprintf(&b, "requirepass %s\nuser %s on >%s %s\n", s.password, RedisUser, s.password, s.rights("*"))
	} else {
		fmt.Fprintf(&b, "user default off\nuser %s on >%s %s\n", s.username, s.password, s.rights(clientName))
	}
	if !s.sentinel {
		b.WriteString("save \"\"\n")
	}
	b.WriteString(s.security.redis(port))
	b.WriteString(s.config)
	return b.String()
}

// rights are those of a user: what the documents say, but for a Sentinel, whose users are its own.
func (s redisSetup) rights(prefix string) string {
	if s.sentinel {
		return "~* &* +@all"
	}
	return backend.RedisRights(prefix)
}

// redis is where a Redis listens, and how.
func (s *Security) redis(port int) string {
	if s == nil {
		return fmt.Sprintf("port %d\n", port)
	}
	asks := map[bool]string{true: "yes", false: "no"}[s.ClientCerts]
	return fmt.Sprintf("port 0\ntls-port %d\ntls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\ntls-auth-clients %s\ntls-replication yes\n",
		port, s.own.CertFile, s.own.KeyFile, s.Authority.CAFile, asks)
}

// readVersion asks the server what it is. Another one of ours, of the same password,
// may have been given the same free port, and have been the quicker.
func (r *Redis) readVersion(ctx context.Context, pid int) error {
	// A client would log that no process listens yet.
	if err := listening(ctx, r.Address); err != nil {
		return err
	}
	client, err := r.Client()
	if err != nil {
		return err
	}
	said, err := client.Info(ctx, "server").Result()
	loaded := client.Ping(ctx).Err() // the description is there before the data is
	if err := errors.Join(err, loaded, client.Close()); err != nil {
		return err
	}
	if own := fmt.Sprintf("process_id:%d\r\n", pid); !strings.Contains(said, own) {
		return fmt.Errorf("the server at %s is another one, not process %d", r.Address, pid)
	}
	for line := range strings.Lines(said) {
		if version, found := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); found {
			r.Name, r.Version = "Redis", version
		}
	}
	return nil
}

// Open makes a client that sends each command once, of a Redis without TLS.
func (r *Redis) Open() *redis.Client { return r.open(nil) }

// Client makes a client that sends each command once.
func (r *Redis) Client() (*redis.Client, error) {
	encryption, err := r.security.ClientConfig()
	if err != nil {
		return nil, err
	}
	return r.open(encryption), nil
}

func (r *Redis) open(encryption *tls.Config) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: r.Address, Username: r.Username, Password: r.Password, TLSConfig: encryption, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: connectTimeout, ContextTimeoutEnabled: true, DisableIdentity: true, Protocol: 2,
	})
}

// Conn is how the Redis is reached.
func (r *Redis) Conn() Conn {
	return Conn{Redis: backend.RedisOptions{Addresses: []string{r.Address}, Username: RedisUser, Password: r.Password}, security: r.security}
}

const miniredisModule = "github.com/alicebob/miniredis/v2"

func embeddedRedis(ctx context.Context, password string) (*Redis, error) {
	r := &Redis{Info: Info{Name: "miniredis", Version: Linked(miniredisModule), Started: Embedded}, Password: password}
	r.runner = &embedded{Redis: r}
	return r, onFreePort(func(port int) error {
		r.Address = Loopback(port)
		return r.Restart(ctx)
	})
}

// embedded is a Redis that is a part of this process.
type embedded struct {
	*Redis

	mini *miniredis.Miniredis // nil where it does not run
}

// Restart starts it without data.
func (e *embedded) Restart(ctx context.Context) error {
	if err := e.Kill(ctx); err != nil {
		return err
	}
	m := miniredis.NewMiniRedis()
	m.RequireAuth(e.Password)
	m.RequireUserAuth(RedisUser, e.Password)
	m.ClockTTL(true) // or its keys would outlive any lease
	if err := m.StartAddr(e.Address); err != nil {
		return fmt.Errorf("start miniredis: %w", err)
	}
	m.Server().SetPreHook(identity())
	e.mini = m
	return nil
}

// Kill closes the connections, which is as near to a kill as a part of a process
// can come.
func (e *embedded) Kill(context.Context) error {
	if e.mini != nil {
		e.mini.Close()
		e.mini = nil
	}
	return nil
}

// Close ends it.
func (e *embedded) Close(ctx context.Context) error { return e.Kill(ctx) }

// Pause fails: a part of a process cannot be paused.
func (e *embedded) Pause(context.Context) error {
	return fmt.Errorf("pause %s: it runs in this process", e.Name)
}

// Resume fails as Pause does.
func (e *embedded) Resume(context.Context) error {
	return fmt.Errorf("resume %s: it runs in this process", e.Name)
}

// identity answers for miniredis what redis-stock asks of a Redis: its version, and the
// name of the history of its data, which begins anew with each start.
func identity() miniserver.Hook {
	id := make([]byte, 20)
	_, _ = rand.Read(id) // it never fails
	answers := map[string]string{
		"server":      "# Server\r\nredis_version:7.0.0\r\n",
		"replication": fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:%x\r\n", id),
	}
	return func(c *miniserver.Peer, command string, args ...string) bool {
		if command != "INFO" || len(args) != 1 || answers[args[0]] == "" {
			return false
		}
		c.WriteBulk(answers[args[0]])
		return true
	}
}

// Linked is the version of a module in this program, or empty where the
// program does not know.
func Linked(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return ""
}

// Clock is what one server takes for the time. It is made by libfaketime, which
// stands between the server and the system.
type Clock struct {
	library, file string
}

// newClock is a clock that is right.
func newClock(folder string) (*Clock, error) {
	library, err := FindFaketime()
	if err != nil {
		return nil, err
	}
	c := &Clock{library: library, file: filepath.Join(folder, "clock")}
	return c, c.Set(0)
}

// FindFaketime looks for the library, in its form for programs with several
// threads, where systems put it.
func FindFaketime() (string, error) {
	for _, pattern := range []string{"/usr/lib/*/faketime", "/usr/lib*/faketime", "/usr/local/lib*/faketime", "/usr/local/lib/*/faketime"} {
		found, err := filepath.Glob(filepath.Join(pattern, "libfaketimeMT.so.1"))
		if err == nil && len(found) > 0 {
			return found[0], nil
		}
	}
	return "", &MissingError{What: fmt.Sprintf("libfaketime: %v", ErrNotFound), How: "apt-get install faketime brings it"}
}

// Set has the clock be so much ahead of the right time from now on, or behind it
// where ahead is negative; 0 is right again.
func (c *Clock) Set(ahead time.Duration) error {
	return c.write(fmt.Sprintf("%+.3f\n", ahead.Seconds()))
}

// Run has the clock run so many times as fast as the right one. It is then ahead by what it
// would have gained since its server started.
func (c *Clock) Run(rate float64) error { return c.write(fmt.Sprintf("+0 x%g\n", rate)) }

func (c *Clock) write(setting string) error {
	// The server reads the file at any moment: it must never find half of it.
	next := c.file + ".next"
	if err := os.WriteFile(next, []byte(setting), 0o600); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	if err := os.Rename(next, c.file); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// env is what the server has to be started with. What measures how long something
// takes is a clock that no one sets, and stays right.
//
// Redis's allocator asks for the time before libfaketime is ready to tell it, and
// neither gets on. With the C library named before it, its allocator is the one in
// use, which asks for nothing.
func (c *Clock) env() []string {
	return []string{
		"LD_PRELOAD=" + c.library + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
}

// onDiskWithin is longer than Redis leaves a write in memory.
const onDiskWithin = 5 * time.Second

// AwaitOnDisk writes a key of its own at the beginning of a second, and returns when the file of
// the Redis is on its disk as a whole, and no sync runs: while one does, Redis answers before
// it writes. Where it syncs once a second, the next sync is then most of a second away.
func (r *Redis) AwaitOnDisk(ctx context.Context) error {
	file, err := r.appended()
	if err != nil {
		return err
	}
	if err := pause.For(ctx, time.Until(time.Now().Truncate(time.Second).Add(time.Second))); err != nil {
		return err
	}
	return r.use(func(client *redis.Client) error {
		if err := client.Set(ctx, "stockd:lab:neighbor", "", 0).Err(); err != nil {
			return fmt.Errorf("write a key: %w", err)
		}
		for began := time.Now(); time.Since(began) < onDiskWithin; {
			rests, err := restingAOF(ctx, client)
			if err != nil {
				return err
			}
			size, synced, err := syncedSize(file)
			if err != nil {
				return err
			}
			if rests && synced {
				r.onDisk = size
				return nil
			}
			if err := pause.For(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		return &MissingError{
			What: fmt.Sprintf("a disk that a file is written to: within %s %s was not", onDiskWithin, file),
			How:  "TMPDIR names a folder on another file system",
		}
	})
}

// restingAOF tells whether Redis has written all that it has answered, and has no sync that
// is to come or runs.
func restingAOF(ctx context.Context, client *redis.Client) (bool, error) {
	said, err := client.Info(ctx, "persistence").Result()
	if err != nil {
		return false, fmt.Errorf("ask for syncs: %w", err)
	}
	return strings.Contains(said, "aof_pending_bio_fsync:0\r\n") && strings.Contains(said, "aof_buffer_length:0\r\n"), nil
}

// CutPower ends the Redis as a power cut does: what the kernel has not written to the disk
// is lost. It returns how many bytes that are.
//
// A kill alone loses nothing that Redis has written: the kernel has it, and says whether some of
// it is in memory only. Where it is, the file is cut to what was on the disk at AwaitOnDisk.
func (r *Redis) CutPower(ctx context.Context) (lost int64, err error) {
	if err := r.Kill(ctx); err != nil {
		return 0, err
	}
	file, err := r.appended()
	if err != nil {
		return 0, err
	}
	size, synced, err := syncedSize(file)
	if err != nil || synced {
		return 0, err
	}
	return size - r.onDisk, os.Truncate(file, r.onDisk)
}

// appended is the file that the Redis appends its commands to.
func (r *Redis) appended() (string, error) {
	for _, pattern := range []string{"appendonlydir/*.incr.aof", "appendonly.aof"} { // since 7.0, and before
		found, err := filepath.Glob(filepath.Join(r.server.spec.Folder, pattern))
		if err != nil {
			return "", err
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return "", errors.New("the Redis has no file that it appends to")
}

// syncedSize is how long a file is, and whether it was on its disk as a whole. It is only
// appended to: what follows later does not change what was there.
func syncedSize(path string) (size int64, synced bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err != nil {
		return 0, false, err
	}
	unwritten, err := unwrittenPages(file)
	return info.Size(), unwritten == 0, err
}
