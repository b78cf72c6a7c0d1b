package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/deploy"
	"github.com/stockd/stockd/internal/repo"
)

// Vitess is a keyspace of items on shards, one that is not sharded, and a gate: the database. All of it
// is set up as deploy/vitess says.
type Vitess struct {
	*Database // what the gate is

	// Below has the databases of all shards: MySQL where there is one, or MariaDB.
	Below *Database
	// Tablets are those of the first shard, if it is replicated, its first primary first.
	Tablets []Tablet
	// All are its servers, the gate last.
	All []runner

	programs string
	account  *user.User // whom its programs run as; nil: as this process
	etcd     *Etcd
	dir      string
	admin    string // the address of its control
}

// VitessOptions say what is started.
type VitessOptions struct {
	// Shards have names such as "-80" and "80-".
	Shards []string
	// Replicated has three tablets for the first of them, each with a MySQL of its own. A commit waits until another one has it.
	Replicated bool
}

// Tablet is one of several of a shard, and its database.
type Tablet struct {
	Alias    string
	Database *Database
	server   *Server
}

// Kill ends both, as if their machine was gone.
func (t Tablet) Kill(ctx context.Context) error {
	return errors.Join(t.Database.Kill(ctx), t.server.Kill(ctx))
}

// findVitess finds the folder with the programs of Vitess.
func findVitess() (folder string, err error) {
	const variable = "STOCKD_VITESS"
	folder = os.Getenv(variable)
	if _, err := exec.LookPath(filepath.Join(folder, "vttablet")); folder == "" || err != nil {
		return "", &MissingError{What: "Vitess", How: "make vitess builds it; " + variable + " is the folder of its programs"}
	}
	return folder, nil
}

// globalShard has what is not sharded.
const globalShard = "shop_global/0"

// StartVitess starts a shop on shards.
func StartVitess(ctx context.Context, k *Supervisor, o VitessOptions) (_ *Vitess, err error) {
	v := new(Vitess)
	if v.programs, err = findVitess(); err != nil {
		return nil, err
	}
	defer closeAfter(ctx, v, &err)
	if err := v.prepare(k); err != nil {
		return nil, err
	}
	below := Choice{Mode: Local, Database: MariaDB, Volatile: true, Options: "--log-bin=binlog --server-id=1 --binlog-format=ROW"}
	if _, ok := localDatabase(MySQL); ok {
		below.Database, below.Options = MySQL, "--server-id=1 --gtid-mode=ON --enforce-gtid-consistency=ON"
	}
	v.Below, err = StartDatabase(ctx, k, below)
	if err != nil {
		return nil, err
	}
	v.All = append(v.All, v.Below)
	if err := v.startControl(ctx, k); err != nil {
		return nil, err
	}
	names := []string{globalShard}
	for _, shard := range o.Shards {
		names = append(names, "shop/"+shard)
	}
	if o.Replicated {
		names = slices.Delete(names, 1, 2)
	}
	for i, name := range names {
		if err := v.startShard(ctx, k, 100+i, name); err != nil {
			return nil, err
		}
	}
	if o.Replicated {
		if err := v.startReplicated(ctx, k, "shop/"+o.Shards[0]); err != nil {
			return nil, err
		}
	}
	if err := v.applySchema(ctx); err != nil {
		return nil, err
	}
	return v, v.startGate(ctx, k)
}

// prepare makes the folder of its programs. They refuse to run as root.
func (v *Vitess) prepare(k *Supervisor) (err error) {
	if v.dir, err = os.MkdirTemp(k.Folder(), "vitess-"); err != nil || os.Geteuid() != 0 {
		return err
	}
	if v.account, err = user.Lookup("nobody"); err != nil {
		return err
	}
	uid, err := strconv.Atoi(v.account.Uid)
	const passable = 0o711
	return errors.Join(err, os.Chmod(k.Folder(), passable), os.Chown(v.dir, uid, -1))
}

// launch starts a program on free ports: for HTTP, for gRPC, and those that it takes besides.
func (v *Vitess) launch(ctx context.Context, k *Supervisor, name string, ports []int, ready func(context.Context) error, args ...string) (*Server, error) {
	args = slices.Concat([]string{
		"--topo-implementation=etcd2", "--topo-global-root=/vitess/global",
		"--topo-global-server-address=" + strings.TrimPrefix(v.etcd.Endpoint, "http://"),
		fmt.Sprintf("--port=%d", ports[0]), fmt.Sprintf("--grpc-port=%d", ports[1]), "--bind-address=127.0.0.1", "--grpc-bind-address=127.0.0.1",
	}, args)
	program := filepath.Join(v.programs, name)
	if v.account != nil {
		args = slices.Concat([]string{"--reuid=" + v.account.Uid, "--regid=" + v.account.Gid, "--clear-groups", program}, args)
		var err error
		if program, err = Find("setpriv"); err != nil {
			return nil, err
		}
	}
	server, err := newServer(k, Spec{
		Name: name, Program: program, Env: append(os.Environ(), "VTDATAROOT="+v.dir, "HOME="+v.dir, "TMPDIR="+v.dir),
		Configure: func(string, int) ([]string, []string, error) { return args, nil, nil },
		Ready:     func(ctx context.Context, _ int) error { return ready(ctx) },
	})
	if err != nil {
		return nil, err
	}
	v.All = append(v.All, server)
	if err := server.configure(0); err != nil {
		return nil, err
	}
	server.command.Name = name // and not setpriv
	return server, server.Restart(ctx)
}

// startControl starts etcd, and vtctld with a cell.
func (v *Vitess) startControl(ctx context.Context, k *Supervisor) (err error) {
	if v.etcd, err = newEtcd(k, nil); err != nil {
		return err
	}
	v.All = append(v.All, v.etcd)
	if err := v.etcd.server.start(ctx); err != nil {
		return err
	}
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	v.admin = Loopback(ports[1])
	_, err = v.launch(ctx, k, "vtctld", ports, func(ctx context.Context) error { return listening(ctx, v.admin) },
		"--cell=test", "--service-map=grpc-vtctl,grpc-vtctld")
	if err != nil {
		return err
	}
	return v.Control(ctx, "AddCellInfo", "--root=/vitess/test", "--server-address="+strings.TrimPrefix(v.etcd.Endpoint, "http://"), "test")
}

// Control runs vtctldclient.
func (v *Vitess) Control(ctx context.Context, args ...string) error {
	said, err := exec.CommandContext(ctx, filepath.Join(v.programs, "vtctldclient"), append([]string{"--server=" + v.admin}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("vtctldclient %s: %w: %s", args[0], err, said)
	}
	return nil
}

// AddShards starts shards of the items, which have no tables until Reshard makes them.
func (v *Vitess) AddShards(ctx context.Context, k *Supervisor, shards ...string) error {
	for i, shard := range shards {
		name := "shop/" + shard
		err := v.Below.exec(ctx, "CREATE DATABASE "+databaseOf(name))
		if err == nil {
			err = v.startPrimary(ctx, k, 300+i, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// startShard makes the tables of a shard, and starts it.
func (v *Vitess) startShard(ctx context.Context, k *Supervisor, number int, name string) error {
	if err := makeTables(ctx, v.Below, name); err != nil {
		return err
	}
	return v.startPrimary(ctx, k, number, name)
}

// startPrimary starts the tablet that is the primary of a shard, and the only one.
func (v *Vitess) startPrimary(ctx context.Context, k *Supervisor, number int, name string) error {
	t, err := v.startTablet(ctx, k, number, name, v.Below)
	if err != nil {
		return err
	}
	return v.Control(ctx, "TabletExternallyReparented", t.Alias)
}

// startReplicated starts the tablets of a shard. Vitess has them replicate when it makes the first one the primary.
func (v *Vitess) startReplicated(ctx context.Context, k *Supervisor, name string) error {
	nodes, err := startReplicable(ctx, k)
	if err != nil {
		return err
	}
	for _, d := range nodes.Nodes {
		v.All = append(v.All, d)
	}
	if err := makeTables(ctx, nodes.Nodes[0], name); err != nil {
		return err
	}
	for i, d := range nodes.Nodes {
		// A row that a replica writes of itself keeps it from replicating.
		if err := d.exec(ctx, "SET GLOBAL super_read_only = ON"); err != nil {
			return err
		}
		t, err := v.startTablet(ctx, k, 200+i, name, d)
		if err != nil {
			return err
		}
		v.Tablets = append(v.Tablets, t)
	}
	// The other shards of the keyspace have their primaries already, which wait for no replica.
	if err := v.Control(ctx, "SetKeyspaceDurabilityPolicy", "--durability-policy=semi_sync", "shop"); err != nil {
		return err
	}
	return v.Control(ctx, "PlannedReparentShard", name, "--new-primary="+v.Tablets[0].Alias)
}

// startTablet starts one on a server that has, or will have, the database of its shard.
func (v *Vitess) startTablet(ctx context.Context, k *Supervisor, number int, name string, on *Database) (t Tablet, err error) {
	keyspace, shard, _ := strings.Cut(name, "/")
	c, err := mysql.ParseDSN(on.DSN)
	if err != nil {
		return t, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return t, err
	}
	host, port, _ := strings.Cut(c.Addr, ":")
	t.Alias, t.Database = fmt.Sprintf("test-%d", number), on
	args := []string{
		"--tablet-path=" + t.Alias, "--tablet-hostname=127.0.0.1", "--init-keyspace=" + keyspace, "--init-shard=" + shard,
		"--init-tablet-type=replica", "--init-db-name-override=" + databaseOf(name), "--unmanaged", "--db-host=" + host, "--db-port=" + port,
		"--db-ssl-mode=disabled", "--service-map=grpc-queryservice,grpc-tabletmanager",
		"--db-charset=utf8mb4_general_ci", "--queryserver-config-transaction-cap=500", "--health-check-interval=1s",
	}
	for _, who := range []string{"app", "allprivs", "appdebug", "dba", "repl", "filtered"} {
		args = append(args, "--db-"+who+"-user="+c.User, "--db-"+who+"-password="+on.Password)
	}
	t.server, err = v.launch(ctx, k, "vttablet", ports, func(ctx context.Context) error { return listening(ctx, Loopback(ports[1])) }, args...)
	return t, err
}

// databaseOf is the name of the database of a shard.
func databaseOf(name string) string {
	return strings.NewReplacer("/", "_", "-", "_").Replace("vt_" + name)
}

// makeTables makes the tables of a shard: those of the migrations, and those of its keyspace.
func makeTables(ctx context.Context, on *Database, name string) error {
	if err := on.exec(ctx, "CREATE DATABASE "+databaseOf(name)); err != nil {
		return err
	}
	d, err := on.With(func(c *mysql.Config) { c.DBName = databaseOf(name) })
	if err != nil {
		return err
	}
	store, err := d.Open(ctx, "lab", 1)
	if err != nil {
		return err
	}
	_, err = store.MigrateUp(ctx)
	if err = errors.Join(err, store.Close()); err != nil {
		return err
	}
	keyspace, _, _ := strings.Cut(name, "/")
	content, err := deploy.Vitess.ReadFile("vitess/" + keyspace + ".sql")
	if err != nil {
		return err
	}
	return d.exec(ctx, strings.Split(string(content), ";\n")...)
}

// exec runs statements, of which some may be empty.
func (d *Database) exec(ctx context.Context, statements ...string) error {
	pool, err := d.Raw()
	if err != nil {
		return err
	}
	for _, statement := range statements {
		if strings.TrimSpace(statement) != "" && err == nil {
			_, err = pool.ExecContext(ctx, statement)
		}
	}
	return errors.Join(err, pool.Close())
}

// applySchema says which table is where.
func (v *Vitess) applySchema(ctx context.Context) error {
	for _, command := range [][]string{
		{"ApplyVSchema", "--vschema-file=" + filepath.Join(v.dir, "shop_global.vschema.json"), "shop_global"},
		{"ApplyVSchema", "--vschema-file=" + filepath.Join(v.dir, "shop.vschema.json"), "shop"},
		{"ApplyRoutingRules", "--rules-file=" + filepath.Join(v.dir, "routing-rules.json")},
	} {
		_, path, _ := strings.Cut(command[1], "=")
		content, err := deploy.Vitess.ReadFile("vitess/" + filepath.Base(path))
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(path, content, 0o600), v.Control(ctx, command...)); err != nil {
			return err
		}
	}
	return nil
}

func (v *Vitess) startGate(ctx context.Context, k *Supervisor) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", Loopback(ports[2]), "shop"
	v.Database = &Database{Info: Info{Name: "Vitess", Started: Local}, Driver: repo.MySQL, DSN: c.FormatDSN()}
	gate, err := v.launch(ctx, k, "vtgate", ports, func(ctx context.Context) error { return v.readVersion(ctx) },
		"--cell=test", "--cells-to-watch=test", "--tablet-types-to-wait=PRIMARY", "--healthcheck-timeout=10s", "--query-timeout=10000", fmt.Sprintf("--mysql-server-port=%d", ports[2]),
		"--mysql-server-bind-address=127.0.0.1", "--mysql-auth-server-impl=none", "--service-map=grpc-vtgateservice")
	v.runner = gate
	return err
}

// Close ends all of it, the gate first.
func (v *Vitess) Close(ctx context.Context) error {
	all := slices.Clone(v.All)
	slices.Reverse(all)
	return closeAll(ctx, all)
}
