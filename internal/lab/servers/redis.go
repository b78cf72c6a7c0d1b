package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/keeper"
	"github.com/stockd/stockd/internal/lab/ports"
	"github.com/stockd/stockd/internal/pause"
)

// Redis is one that runs, and how to reach it. It keeps nothing on disk, unless it
// was started by StartDurableRedis: after a restart it is empty.
type Redis struct {
	Info
	Address, Password string
	// Clock is what it takes for the time, or nil where that is this machine's.
	Clock *Clock
	runner

	folder string // of its data; empty where it is embedded
}

// StartRedis starts a Redis of which nobody else knows the password.
func StartRedis(ctx context.Context, k *keeper.Keeper, mode Mode) (*Redis, error) {
	return startRedis(ctx, k, mode, rand.Text())
}

// StartDurableRedis starts a Redis that writes each command to its disk before it
// answers, and has it again after a restart.
func StartDurableRedis(ctx context.Context, k *keeper.Keeper) (*Redis, error) {
	return localRedis(ctx, k, redisSetup{password: rand.Text(), config: keepsAll})
}

// StartClockRedis starts a Redis with a clock of its own, which keeps nothing on
// disk.
func StartClockRedis(ctx context.Context, k *keeper.Keeper) (*Redis, error) {
	return localRedis(ctx, k, redisSetup{password: rand.Text(), config: keepsNothing, clock: true})
}

// What a Redis keeps on its disk.
const (
	keepsNothing = "appendonly no\n"
	keepsAll     = "appendonly yes\nappendfsync always\n"
)

// slots is how many a cluster divides its keys into.
const slots = 16384

// StartRedisCluster starts a cluster of one node, which has every slot.
func StartRedisCluster(ctx context.Context, k *keeper.Keeper) (*Redis, error) {
	r, err := localRedis(ctx, k, redisSetup{password: rand.Text(), config: keepsNothing + "cluster-enabled yes\n"})
	if err != nil {
		return nil, err
	}
	client := r.Open()
	defer client.Close() //nolint:errcheck // what it was for has been answered
	if err := client.ClusterAddSlotsRange(ctx, 0, slots-1).Err(); err != nil {
		return nil, fmt.Errorf("give the node its slots: %w", err)
	}
	for {
		state, err := client.ClusterInfo(ctx).Result()
		if err != nil || strings.Contains(state, "cluster_state:ok") {
			return r, err
		}
		if err := pause.For(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func startRedis(ctx context.Context, k *keeper.Keeper, mode Mode, password string) (*Redis, error) {
	if _, err := Find("redis-server"); mode == Embedded || mode == Auto && err != nil {
		return embeddedRedis(ctx, password)
	}
	return localRedis(ctx, k, redisSetup{password: password, config: keepsNothing})
}

// redisSetup says how a local Redis is to be.
type redisSetup struct {
	password string
	config   string // lines of redis.conf
	clock    bool   // it has a clock of its own
}

func localRedis(ctx context.Context, k *keeper.Keeper, setup redisSetup) (*Redis, error) {
	program, err := Find("redis-server")
	if err != nil {
		return nil, &MissingError{What: err.Error(), How: "apt-get install redis-server brings it"}
	}
	folder, err := os.MkdirTemp(k.Folder(), "redis-")
	if err != nil {
		return nil, err
	}
	r := &Redis{Info: Info{Started: Local}, Password: setup.password, folder: folder}
	env := os.Environ()
	if setup.clock {
		if r.Clock, err = newClock(folder); err != nil {
			return nil, err
		}
		env = append(env, r.Clock.env()...)
	}
	file := filepath.Join(folder, "redis.conf")
	r.runner = newChild(k, "redis-server", keeper.Command{
		Path: program, Args: []string{file}, Env: env, Log: filepath.Join(folder, "server.log"),
	}, r.readVersion)
	err = onFreePort(func(port int) error {
		r.Address = ports.Address(port)
		// In a file, because everyone can read the arguments of a process.
		if err := os.WriteFile(file, []byte(redisConfig(folder, port, setup.password)+setup.config), 0o600); err != nil {
			return err
		}
		return r.Restart(ctx)
	})
	if err != nil && setup.clock && ctx.Err() == nil {
		return nil, bearsNoClock(program, err)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// bearsNoClock tells of a server that does not run with libfaketime, as Redis 8.0
// does not: it is what is missing, and nothing is wrong.
func bearsNoClock(program string, err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return &MissingError{
		What: fmt.Sprintf("a Redis whose clock can be moved: %s does not run with libfaketime (%s)", program, first),
		How:  "Redis 7.0 does",
	}
}

// RestartEmpty kills the Redis and starts it without its data, whatever it kept.
func (r *Redis) RestartEmpty(ctx context.Context) error {
	if err := r.Kill(ctx); err != nil {
		return err
	}
	// The file of old versions, or the folder of new ones.
	kept, err := filepath.Glob(filepath.Join(r.folder, "appendonly*"))
	if err != nil {
		return err
	}
	for _, one := range kept {
		if err := os.RemoveAll(one); err != nil {
			return err
		}
	}
	return r.Restart(ctx)
}

// RestartAfter kills the Redis and starts it after a delay.
func (r *Redis) RestartAfter(ctx context.Context, delay time.Duration) error {
	if err := r.Kill(ctx); err != nil {
		return err
	}
	if err := pause.For(ctx, delay); err != nil {
		return err
	}
	return r.Restart(ctx)
}

func redisConfig(folder string, port int, password string) string {
	return fmt.Sprintf(`bind 127.0.0.1
port %d
requirepass %s
dir "%s"
save ""
`, port, password, folder)
}

// readVersion asks the server what it is.
func (r *Redis) readVersion(ctx context.Context) error {
	// A client would complain aloud that nobody listens yet.
	if err := listening(ctx, r.Address); err != nil {
		return err
	}
	client := r.Open()
	said, err := client.Info(ctx, "server").Result()
	if err := errors.Join(err, client.Close()); err != nil {
		return err
	}
	for line := range strings.Lines(said) {
		if version, found := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); found {
			r.Name, r.Version = "Redis", version
		}
	}
	return nil
}

// Open makes a client that sends each command once.
func (r *Redis) Open() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: r.Address, Password: r.Password, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: connectTimeout, ContextTimeoutEnabled: true, DisableIdentity: true, Protocol: 2,
	})
}

// Env is what a replica has to be told to use the Redis.
func (r *Redis) Env() []string {
	return []string{"STOCKD_REDIS_ADDRESSES=" + r.Address, "STOCKD_REDIS_PASSWORD=" + r.Password}
}

const miniredisModule = "github.com/alicebob/miniredis/v2"

func embeddedRedis(ctx context.Context, password string) (*Redis, error) {
	r := &Redis{Info: Info{Name: "miniredis", Version: linked(miniredisModule), Started: Embedded}, Password: password}
	r.runner = &embedded{name: "miniredis", start: r.startInside}
	err := onFreePort(func(port int) error {
		r.Address = ports.Address(port)
		return r.Restart(ctx)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Redis) startInside(context.Context) (stop func(), err error) {
	server := miniredis.NewMiniRedis()
	server.RequireAuth(r.Password)
	server.ClockTTL(true) // or its keys would outlive any lease
	if err := server.StartAddr(r.Address); err != nil {
		return nil, fmt.Errorf("start miniredis: %w", err)
	}
	return server.Close, nil
}

// linked is the version of a module in this program, or empty where the
// program does not know.
func linked(module string) string {
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
