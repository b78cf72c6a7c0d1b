package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// StartGroup starts three members of MySQL's Group Replication, all of them primaries; with a network, on
// its hosts. They have the same state before this returns.
func StartGroup(ctx context.Context, k *Supervisor, network *Network) (*Nodes, error) {
	return startGroup(ctx, k, network,
		"--group-replication-single-primary-mode=OFF", "--group-replication-enforce-update-everywhere-checks=ON")
}

// StartPrimary is StartGroup with one primary, and two members that are ready to take its place.
func StartPrimary(ctx context.Context, k *Supervisor, network *Network) (*Nodes, error) {
	return startGroup(ctx, k, network, "--group-replication-single-primary-mode=ON")
}

func startGroup(ctx context.Context, k *Supervisor, network *Network, mode ...string) (*Nodes, error) {
	found := LocalDatabases()
	i := slices.IndexFunc(found, func(p Program) bool { return p.Kind == MySQL })
	if i < 0 {
		return nil, &MissingError{What: "Group Replication: " + ErrNotFound.Error(), How: "it takes Oracle's MySQL"}
	}
	p := found[i]
	p.clients = network.clients()
	all, err := groupMembers(network, mode)
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	return startNodes(ctx, network, all, "Group Replication", func(n node) (*Database, error) { return p.startMember(ctx, k, n, password) })
}

// groupMembers gives each member its ports.
func groupMembers(network *Network, mode []string) ([]node, error) {
	list, all := make([]node, members), make([]string, members)
	for i := range list {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		list[i] = node{network: network, number: i}
		if list[i].port, err = FreePort(); err != nil {
			return nil, err
		}
		all[i] = list[i].address(port)
	}
	for i := range list {
		list[i].arguments = append([]string{
			fmt.Sprintf("--server-id=%d", i+1), "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
			"--report-host=" + network.address(i), fmt.Sprintf("--report-port=%d", list[i].port),
			"--plugin-load-add=group_replication.so",
			"--group-replication-group-name=5ea1ca11-0000-4000-8000-000000000001",
			"--group-replication-start-on-boot=OFF",
			"--group-replication-local-address=" + all[i],
			"--group-replication-group-seeds=" + strings.Join(all, ","),
			"--group-replication-recovery-get-public-key=ON",
			// A member that is silent for five seconds is put out of the group at once.
			"--group-replication-member-expel-timeout=0",
		}, mode...)
	}
	return list, nil
}

// startMember starts a member. The first one makes the group, the others join it.
func (p Program) startMember(ctx context.Context, k *Supervisor, n node, password string) (*Database, error) {
	p.volatile = true
	d := n.database(password)
	makes := n.number == 0
	server, err := newServer(k, n.spec("group", p, func(folder string) []string { return []string{initFile(folder)} },
		func(ctx context.Context) error { return d.joined(ctx, makes) }))
	if err != nil {
		return nil, err
	}
	d.runner = server
	if err := p.initialize(ctx, server, password, nil); err != nil {
		return nil, err
	}
	// What each member makes by itself is no transaction of the group.
	file := filepath.Join(server.spec.Folder, "users.sql")
	if err := os.WriteFile(file, []byte("SET SESSION sql_log_bin = 0;\n"+p.users(password, nil)), 0o600); err != nil {
		return nil, err
	}
	if err := server.configure(n.port); err != nil {
		return nil, err
	}
	if err := server.Restart(ctx); err != nil {
		return nil, err
	}
	makes = false // from now on it joins the others
	return d, nil
}

const (
	// A server that is not in the group would be rejected by a pool of stockd.
	memberState = `SELECT COALESCE((SELECT member_state FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid), 'OFFLINE')`

	makeGroup = `SET GLOBAL group_replication_bootstrap_group = ?`
)

// joined starts replication where the member is not in the group, and fails until it has the state of the
// others.
func (d *Database) joined(ctx context.Context, makes bool) error {
	c, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		return err
	}
	c.Passwd = d.Password
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return err
	}
	pool := sql.OpenDB(connector)
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
