package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/repo"
)

// Nodes are a database on several servers, each of which takes writes. What it has committed survives
// as long as most of them run; one that was killed gets what it missed when it restarts.
type Nodes struct {
	Info
	Nodes []*Database
	// Network has each node on a host of its own; nil: they are on this one.
	Network *Network
}

// StartGalera starts three nodes of MariaDB with Galera, which have the same state before this returns. Apart, each is on a
// host of its own, which can be cut off from the others.
func StartGalera(ctx context.Context, k *Supervisor, apart bool) (*Nodes, error) {
	p, library, err := FindGalera()
	if err != nil {
		return nil, err
	}
	if p.user, err = reader(k); err != nil {
		return nil, err
	}
	return startNodes(ctx, k, apart, nodeKind{
		Program: p, name: "galera", by: "Galera", ports: 4,
		arguments: func(n node, group, folder string, makes bool) []string {
			args := n.ofGalera(library, group)
			if makes {
				return append(args, "--wsrep-new-cluster", initFile(folder))
			}
			return args
		},
		ready: (*Database).synced, prepare: Program.prepareNode,
	})
}

// startNodes starts one node after the other, each of which joins those before it.
func startNodes(ctx context.Context, k *Supervisor, apart bool, kind nodeKind) (_ *Nodes, err error) {
	g, password := new(Nodes), rand.Text()
	defer closeAfter(ctx, g, &err)
	if apart {
		if g.Network, err = StartNetwork(ctx, k, members); err != nil {
			return nil, err
		}
	}
	kind.clients, kind.volatile = g.Network.clients(), true
	ports, err := freePorts(kind.ports * members)
	if err != nil {
		return nil, err
	}
	all, group := make([]node, members), make([]string, members)
	for i := range all {
		all[i] = node{g.Network, i, ports[kind.ports*i:][:kind.ports]}
		group[i] = all[i].address(1)
	}
	for _, n := range all {
		d, err := n.start(ctx, k, kind, strings.Join(group, ","), password)
		if err != nil {
			return nil, err
		}
		g.Nodes = append(g.Nodes, d)
	}
	g.Info = g.Nodes[0].Info
	g.Name = fmt.Sprintf("%d × %s with %s", len(g.Nodes), g.Name, kind.by)
	return g, nil
}

// Close ends all nodes, and their network.
func (g *Nodes) Close(ctx context.Context) error {
	err := closeAll(ctx, g.Nodes)
	if g.Network != nil {
		err = errors.Join(err, g.Network.Close(ctx))
	}
	return err
}

// FindGalera finds MariaDB and the library that makes it a node.
func FindGalera() (p Program, library string, err error) {
	missing := &MissingError{What: "Galera: " + ErrNotFound.Error(), How: "apt-get install mariadb-server rsync brings it"}
	if _, err := Find("rsync"); err != nil { // by which a node gets the state of another one
		return p, "", missing
	}
	p, ok := localDatabase(MariaDB)
	for _, folder := range []string{"/usr/lib/galera", "/usr/lib64/galera", "/usr/lib/galera-4", "/usr/lib64/galera-4"} {
		path := filepath.Join(folder, "libgalera_smm.so")
		if _, err := os.Stat(path); err == nil && ok {
			return p, path, nil
		}
	}
	return Program{}, "", missing
}

// reader is whom the nodes run as; empty: as this process. The state of a node is sent by rsync, which
// gives up the rights of root and could not read it. So the nodes of root are those of the user that
// the server's package has made for it, who may pass the folder of the supervisor.
func reader(k *Supervisor) (name string, err error) {
	if os.Geteuid() != 0 {
		return "", nil
	}
	const owner = "mysql"
	if _, err := user.Lookup(owner); err != nil {
		return "", &MissingError{What: fmt.Sprintf("Galera as root: %v", err), How: "apt-get install mariadb-server makes that user"}
	}
	const passable = 0o711
	return owner, os.Chmod(k.Folder(), passable) // the folders in it stay closed
}

// node is where one of several servers is.
type node struct {
	network *Network
	number  int // from 0, which makes the cluster
	ports   []int
}

// address is that of one of its ports, of which the first is for clients, and the second for the group.
func (n node) address(port int) string {
	return net.JoinHostPort(n.network.address(n.number), strconv.Itoa(n.ports[port]))
}

// nodeKind is what differs between the kinds of nodes.
type nodeKind struct {
	Program

	name, by string // by what it replicates
	ports    int    // of each node
	// makes is true while the first one makes the cluster; group is the addresses of all.
	arguments func(n node, group, folder string, makes bool) []string
	ready     func(d *Database, ctx context.Context, makes bool) error
	prepare   func(p Program, ctx context.Context, s *Server, n node, password string) error // makes its data
}

// start starts a database there. The first node makes the cluster, the others, and itself from then on, join it.
func (n node) start(ctx context.Context, k *Supervisor, kind nodeKind, group, password string) (*Database, error) {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "stockd", "tcp", n.address(0), "stockd"
	d := &Database{Info: Info{Started: Local}, Driver: repo.MySQL, Password: password, DSN: c.FormatDSN()}
	makes := n.number == 0
	path, args := n.network.on(n.number, kind.Path, nil)
	server, err := newServer(k, Spec{
		Name: kind.name, Program: path,
		Configure: func(folder string, port int) ([]string, []string, error) {
			return slices.Concat(args, kind.Program.arguments(folder, port, nil), []string{"--bind-address=" + n.network.address(n.number)},
				kind.arguments(n, group, folder, makes)), nil, nil
		},
		Ready: func(ctx context.Context, _ int) error { return kind.ready(d, ctx, makes) },
	})
	if err != nil {
		return nil, err
	}
	d.runner = server
	if err := kind.prepare(kind.Program, ctx, server, n, password); err != nil {
		return nil, err
	}
	if err := server.configure(n.ports[0]); err != nil {
		return nil, err
	}
	if err := server.Restart(ctx); err != nil {
		return nil, err
	}
	makes = false
	return d, server.configure(n.ports[0])
}

// ofGalera are the arguments of a node, which has two more ports for the state of another one, in full and in part.
func (n node) ofGalera(library, group string) []string {
	return []string{
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON", "--wsrep-provider=" + library,
		"--wsrep-cluster-name=stockd", "--wsrep-cluster-address=gcomm://" + group,
		"--wsrep-node-name=node-" + strconv.Itoa(n.number+1), "--wsrep-node-address=" + n.address(1),
		"--wsrep-sst-method=rsync", "--wsrep-sst-receive-address=" + n.address(2),
		"--wsrep-provider-options=gmcast.listen_addr=tcp://" + n.address(1) + ";ist.recv_addr=" + n.address(3) + ";gcache.size=32M;" +
			// A node that is silent for so long is put out of the cluster. A second suspicion has time before the install
			// timeout, at which its nodes give the cluster up.
			"evs.suspect_timeout=PT3S;evs.install_timeout=PT12S",
	}
}

// prepareNode makes the data of the first node, and an empty folder for those of another one.
func (p Program) prepareNode(ctx context.Context, s *Server, n node, password string) error {
	folder := s.spec.Folder
	if err := p.own(folder); err != nil {
		return err
	}
	if n.number == 0 {
		err := p.initialize(ctx, s, password, nil)
		return errors.Join(err, p.own(filepath.Join(folder, "users.sql")))
	}
	data := filepath.Join(folder, "data")
	return errors.Join(os.Mkdir(data, 0o700), p.own(data))
}

// own gives a file to whom the program runs as.
func (p Program) own(path string) error {
	if p.user == "" {
		return nil
	}
	owner, err := user.Lookup(p.user)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return fmt.Errorf("user id of %s: %w", p.user, err)
	}
	return os.Chown(path, uid, -1)
}

// synced fails until the node has the state of the others, and takes statements.
func (d *Database) synced(ctx context.Context, _ bool) error {
	pool, _, err := d.Pool(1, time.Second)
	if err != nil {
		return err
	}
	defer pool.Close() //nolint:errcheck // nothing is lost with it
	var name, state string
	err = pool.QueryRowContext(ctx, `SHOW STATUS LIKE 'wsrep_local_state_comment'`).Scan(&name, &state)
	if err != nil {
		return err
	}
	if state != "Synced" {
		return fmt.Errorf("the node is %s", state)
	}
	return d.readVersion(ctx)
}

// findMySQL finds Oracle's MySQL, which MariaDB cannot stand in for.
func findMySQL(what string) (Program, error) {
	p, ok := localDatabase(MySQL)
	if !ok {
		return p, &MissingError{What: what + ": " + ErrNotFound.Error(), How: "it takes Oracle's MySQL"}
	}
	return p, nil
}

// StartGroup starts three members of MySQL's Group Replication, all of them primaries, which have the same state before this
// returns. Apart, each is on a host of its own.
func StartGroup(ctx context.Context, k *Supervisor, apart bool) (*Nodes, error) {
	return startGroup(ctx, k, apart,
		"--group-replication-single-primary-mode=OFF", "--group-replication-enforce-update-everywhere-checks=ON")
}

// StartPrimary is StartGroup with one primary, and two members that are ready to take its place.
func StartPrimary(ctx context.Context, k *Supervisor, apart bool) (*Nodes, error) {
	return startGroup(ctx, k, apart, "--group-replication-single-primary-mode=ON")
}

func startGroup(ctx context.Context, k *Supervisor, apart bool, mode ...string) (*Nodes, error) {
	p, err := findMySQL("Group Replication")
	if err != nil {
		return nil, err
	}
	return startNodes(ctx, k, apart, nodeKind{
		Program: p, name: "group", by: "Group Replication", ports: 2,
		arguments: func(n node, group, folder string, _ bool) []string {
			return slices.Concat(n.ofGroup(group), mode, []string{initFile(folder)})
		},
		ready: (*Database).joined, prepare: Program.prepareMember,
	})
}

// ofGroup are the arguments of a member.
func (n node) ofGroup(group string) []string {
	return []string{
		fmt.Sprintf("--server-id=%d", n.number+1), "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--report-host=" + n.network.address(n.number), fmt.Sprintf("--report-port=%d", n.ports[0]),
		"--plugin-load-add=group_replication.so",
		"--group-replication-group-name=5ea1ca11-0000-4000-8000-000000000001",
		"--group-replication-start-on-boot=OFF",
		"--group-replication-local-address=" + n.address(1),
		"--group-replication-group-seeds=" + group,
		"--group-replication-recovery-get-public-key=ON",
		// A member that is silent for five seconds is put out of the group at once.
		"--group-replication-member-expel-timeout=0",
	}
}

// prepareMember makes the data of a member, whose users are no transaction of the group.
func (p Program) prepareMember(ctx context.Context, s *Server, _ node, password string) error {
	if err := p.initialize(ctx, s, password, nil); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.spec.Folder, "users.sql"), []byte("SET SESSION sql_log_bin = 0;\n"+p.users(password, nil)), 0o600)
}

const (
	// A server that is not in the group would be rejected by a pool of stockd.
	memberState = `SELECT COALESCE((SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid), 'OFFLINE')`

	makeGroup = `SET GLOBAL group_replication_bootstrap_group = ?`
)

// joined starts replication where the member is not in the group, and fails until it has the state of the
// others.
func (d *Database) joined(ctx context.Context, makes bool) error {
	pool, err := d.Raw()
	if err != nil {
		return err
	}
	defer pool.Close() //nolint:errcheck // nothing is lost with it
	var state string
	if err := pool.QueryRowContext(ctx, memberState).Scan(&state); err != nil {
		return err
	}
	switch state {
	case "ONLINE":
		return d.readVersion(ctx)
	case "OFFLINE":
		if err := d.join(ctx, pool, makes); err != nil {
			return fmt.Errorf("join the group: %w", err)
		}
	}
	return fmt.Errorf("the member is %s", state)
}

func (d *Database) join(ctx context.Context, pool *sql.DB, makes bool) error {
	if _, err := pool.ExecContext(ctx, makeGroup, makes); err != nil {
		return err
	}
	// It has no parameters. Whether it is done is seen by the state, since it takes longer than one question.
	start := fmt.Sprintf(`START GROUP_REPLICATION USER = 'stockd', PASSWORD = '%s'`, d.Password)
	joining, cancel := context.WithTimeout(context.WithoutCancel(ctx), startWithin)
	defer cancel()
	_, err := pool.ExecContext(joining, start)
	return err
}

// startReplicable starts servers of which none replicates yet. As a primary, one waits with a commit until a replica has it.
func startReplicable(ctx context.Context, k *Supervisor) (*Nodes, error) {
	p, err := findMySQL("semi-sync replicas of Vitess")
	if err != nil {
		return nil, err
	}
	return startNodes(ctx, k, false, nodeKind{
		Program: p, name: "mysql", by: "replicas", ports: 2,
		arguments: func(n node, _, folder string, _ bool) []string {
			return []string{
				fmt.Sprintf("--server-id=%d", 10+n.number), "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--skip-replica-start",
				"--plugin-load-add=semisync_source.so", "--plugin-load-add=semisync_replica.so",
				"--loose-rpl-semi-sync-source-timeout=3600000", initFile(folder),
			}
		},
		ready:   func(d *Database, ctx context.Context, _ bool) error { return d.readVersion(ctx) },
		prepare: Program.prepareMember,
	})
}
