package trial

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/lab/servers"
)

// site is the servers, which questions break.
type site struct {
	*servers.Backends
	supervisor *servers.Supervisor
	admin      *sql.DB
}

// mysql is the database of a site of its own, beside the MariaDB of the others.
const mysql = "mysql"

// open starts the servers that the libraries need, and returns the site of each by the server's name.
func open(ctx context.Context, k *servers.Supervisor, libraries []Library) (sites map[string]*site, infos map[string]servers.Info, err error) {
	choice := servers.Choice{Mode: servers.Local, Database: servers.MariaDB, Volatile: true, Only: []string{}}
	for _, l := range libraries {
		choice.Only = append(choice.Only, l.Server)
	}
	s, err := start(ctx, k, choice)
	if err != nil {
		return nil, nil, err
	}
	sites, infos = make(map[string]*site), s.Infos()
	for name := range infos {
		sites[name] = s
	}
	if slices.Contains(choice.Only, mysql) {
		choice.Database, choice.Only = servers.MySQL, []string{}
		beside, err := start(ctx, k, choice)
		if _, missing := errors.AsType[*servers.MissingError](err); missing {
			s.Missing[mysql] = "needs MySQL"
			return sites, infos, nil
		}
		if err != nil {
			return nil, nil, errors.Join(err, s.Close(ctx))
		}
		sites[mysql], infos[mysql] = beside, beside.Database.Info
	}
	return sites, infos, nil
}

func start(ctx context.Context, k *servers.Supervisor, choice servers.Choice) (*site, error) {
	all, err := servers.StartBackends(ctx, k, choice, func(string) {})
	if err != nil {
		return nil, err
	}
	s := &site{Backends: all, supervisor: k}
	store, err := all.Database.Open(ctx, "trial", 1) // numbers and rows of stockd's own locks
	if err != nil {
		return nil, err
	}
	_, err = store.MigrateUp(ctx)
	if err := errors.Join(err, store.Close()); err != nil {
		return nil, err
	}
	if s.admin, _, err = all.Database.Pool(1, lease); err != nil {
		return nil, err
	}
	_, err = s.admin.ExecContext(ctx, "CREATE TABLE trial_lock (name VARCHAR(64) PRIMARY KEY)")
	if err == nil { // a thousand wait on a connection each
		_, err = s.admin.ExecContext(ctx, "SET GLOBAL max_connections = 3000")
	}
	return s, err
}

// Connect leads straight to the servers of a backend, where names stay taken for a lease.
func Connect(b *servers.Backends, server string, lease time.Duration) Conn {
	return Conn{b.Conn(server).AsAdmin(), lease, *b.Database}
}

// forget takes every hold away, as an administrator does, or a server that has lost it.
func (s *site) forget(ctx context.Context, server string) (err error) {
	switch server {
	case "redis":
		return flush(ctx, s.Redis)
	case "redlock":
		return flush(ctx, s.Redlock.Nodes...)
	case "zookeeper":
		conn, err := servers.OpenZooKeeper(lease, s.ZooKeeper.Address)
		if err != nil {
			return err
		}
		defer conn.Close()
		return deleteHolds(conn, "")
	case "etcd":
		return revokeAll(ctx, s.Etcd)
	default:
		_, ids, err := servers.Rows(ctx, s.admin, "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'stockd' AND ID <> CONNECTION_ID()")
		for _, row := range ids {
			_, _ = s.admin.ExecContext(ctx, "KILL "+row[0]) // it may have ended by itself
		}
		return err
	}
}

func flush(ctx context.Context, all ...*servers.Redis) (err error) {
	for _, one := range all {
		client := one.Open()
		err = errors.Join(err, client.FlushAll(ctx).Err(), client.Close())
	}
	return err
}

// deleteHolds deletes the nodes of sessions below a path.
func deleteHolds(conn *zk.Conn, path string) error {
	children, _, err := conn.Children(path + "/"[min(1, len(path)):])
	for _, child := range children {
		at := path + "/" + child
		if _, stat, missing := conn.Get(at); missing == nil && stat.EphemeralOwner != 0 {
			err = errors.Join(err, conn.Delete(at, -1))
		} else if missing == nil && at != "/zookeeper" {
			err = errors.Join(err, deleteHolds(conn, at))
		}
	}
	return err
}

func revokeAll(ctx context.Context, e *servers.Etcd) error {
	client, err := e.Open()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what it was for has been answered
	all, err := client.Leases(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, one := range all.Leases {
		_, _ = client.Revoke(ctx, one.ID) // it may have ended by itself
	}
	return nil
}
