package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/repo"
)

// Backends are all servers that strategies may need.
type Backends struct {
	Database *Database
	// What follows is nil where it is missing.
	Redis     *Redis
	Redlock   *Redlock
	ZooKeeper *ZooKeeper
	Etcd      *Etcd
	// Missing says why a backend is not there, under the name that Infos would
	// have it.
	Missing map[string]string
}

// StartBackends starts them all at once. What this machine does not have is missing,
// except the database, which a run cannot do without. progress gets the servers that
// are still starting, in one call at a time.
func StartBackends(ctx context.Context, k *Supervisor, c Choice, progress func(words string)) (*Backends, error) {
	b := &Backends{Missing: make(map[string]string)}
	waiting := &waiting{progress: progress}
	list := b.list(k, c)
	wanted := make([]candidate, 0, len(list))
	for _, one := range list {
		switch {
		case one.mode == None:
			b.Missing[one.name] = "left out by --servers"
			continue
		case one.optional && c.Only != nil && !slices.Contains(c.Only, one.name):
			b.Missing[one.name] = "not started: this run does not need it"
			continue
		}
		wanted = append(wanted, one)
		waiting.names = append(waiting.names, one.name)
	}
	waiting.say()
	lacking := make([]*MissingError, len(wanted))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, one := range wanted {
		group.Go(func() error {
			err := one.start(groupCtx, one.mode)
			waiting.without(one.name)
			if one.optional && errors.As(err, &lacking[i]) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, b.Close(context.WithoutCancel(ctx)))
	}
	for i, one := range wanted {
		if lacking[i] != nil {
			b.Missing[one.name] = "needs " + one.title + ": " + strings.TrimPrefix(lacking[i].Error(), one.title+": ")
		}
	}
	return b, nil
}

type candidate struct {
	name, title string
	mode        Mode
	optional    bool // a run makes sense without it
	start       func(context.Context, Mode) error
}

func (b *Backends) list(k *Supervisor, c Choice) []candidate {
	redis := cmp.Or(c.Redis, c.Mode)
	return []candidate{
		{"database", "a database", c.Mode, false, func(ctx context.Context, _ Mode) (err error) {
			b.Database, err = StartDatabase(ctx, k, c)
			return err
		}},
		{"redis", "Redis", redis, true, into(&b.Redis, k, StartRedis)},
		{"redlock", "Redis", redis, true, into(&b.Redlock, k, StartRedlock)},
		{"zookeeper", "ZooKeeper", cmp.Or(c.ZooKeeper, c.Mode), true, into(&b.ZooKeeper, k, StartZooKeeper)},
		{"etcd", "etcd", cmp.Or(c.Etcd, c.Mode), true, into(&b.Etcd, k, StartEtcd)},
	}
}

// into starts a server, and keeps it where it is looked for.
func into[S any](at **S, k *Supervisor, start func(context.Context, *Supervisor, Mode) (*S, error)) func(context.Context, Mode) error {
	return func(ctx context.Context, mode Mode) (err error) {
		*at, err = start(ctx, k, mode)
		return err
	}
}

type waiting struct {
	progress func(words string)
	mu       sync.Mutex
	names    []string
}

func (w *waiting) say() { w.progress("starting " + strings.Join(w.names, ", ")) }

func (w *waiting) without(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
	if len(w.names) > 0 {
		w.say()
	}
}

type server interface {
	// Conn is how clients reach it.
	Conn() Conn
	Close(ctx context.Context) error
	info() Info
}

func (i Info) info() Info { return i }

// running are those that run, but for the database, which is not closed: its
// process and its files end with the supervisor.
func (b *Backends) running() map[string]server {
	all := make(map[string]server)
	if b.Redis != nil {
		all["redis"] = b.Redis
	}
	if b.Redlock != nil {
		all["redlock"] = b.Redlock
	}
	if b.ZooKeeper != nil {
		all["zookeeper"] = b.ZooKeeper
	}
	if b.Etcd != nil {
		all["etcd"] = b.Etcd
	}
	return all
}

// Member is one server of the backends, which can be killed, paused and cut off by itself.
type Member struct {
	Info
	runner

	Name string
	// Address is empty where none leads to it: a database in a file.
	Address string
}

// Members are all servers, the five of Redlock one by one.
func (b *Backends) Members() (list []Member, err error) {
	add := func(name string, info Info, run runner, address string) {
		list = append(list, Member{Info: info, runner: run, Name: name, Address: address})
	}
	address := ""
	if b.Database.Driver == repo.MySQL {
		c, err := mysql.ParseDSN(b.Database.DSN)
		if err != nil {
			return nil, fmt.Errorf("read the address of the database: %w", err)
		}
		address = c.Addr
	}
	add("database", b.Database.Info, b.Database, address)
	if b.Redis != nil {
		add("redis", b.Redis.Info, b.Redis, b.Redis.Address)
	}
	if b.Redlock != nil {
		for i, node := range b.Redlock.Nodes {
			add(fmt.Sprintf("redlock-%d", i+1), node.Info, node, node.Address)
		}
	}
	if b.ZooKeeper != nil {
		add("zookeeper", b.ZooKeeper.Info, b.ZooKeeper, b.ZooKeeper.Address)
	}
	if b.Etcd != nil {
		add("etcd", b.Etcd.Info, b.Etcd, strings.TrimPrefix(b.Etcd.Endpoint, "http://"))
	}
	return list, nil
}

// Env is the configuration of a replica of stockd that uses them.
func (b *Backends) Env() []string {
	env, running := b.Database.Env(), b.running()
	for _, name := range slices.Sorted(maps.Keys(running)) {
		env = append(env, running[name].Conn().Env()...)
	}
	return env
}

// Infos says what runs.
func (b *Backends) Infos() map[string]Info {
	infos := map[string]Info{"database": b.Database.Info}
	for name, one := range b.running() {
		infos[name] = one.info()
	}
	return infos
}

// Close ends them. Those that are processes of their own would end with the
// supervisor, too; those in this process would not.
func (b *Backends) Close(ctx context.Context) error {
	var err error
	for _, one := range b.running() {
		err = errors.Join(err, one.Close(ctx))
	}
	return err
}
