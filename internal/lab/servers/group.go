package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	p, ok := localDatabase(MySQL)
	if !ok {
		return nil, &MissingError{What: "Group Replication: " + ErrNotFound.Error(), How: "it takes Oracle's MySQL"}
	}
	p.clients, p.volatile = network.clients(), true
	all, err := groupMembers(network, mode)
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	return startNodes(ctx, network, all, "Group Replication", func(n node) (*Database, error) {
		d := n.database(password)
		return n.start(ctx, k, p, "group", d, nodeKind{
			arguments: func(folder string, _ bool) []string { return []string{initFile(folder)} },
			ready:     d.joined,
			prepare:   func(s *Server) error { return p.prepareMember(ctx, s, password) },
		})
	})
}

// groupMembers gives each member its ports.
func groupMembers(network *Network, mode []string) ([]node, error) {
	list, all := make([]node, members), make([]string, members)
	ports, err := freePorts(2 * members)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i] = node{network: network, number: i, port: ports[2*i]}
		all[i] = list[i].address(ports[2*i+1])
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

// prepareMember makes the data of a member, whose users are no transaction of the group.
func (p Program) prepareMember(ctx context.Context, s *Server, password string) error {
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
