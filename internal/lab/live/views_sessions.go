package live

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
)

// nodesOf looks at the nodes below the locks of an item.
func nodesOf(ctx context.Context, server *servers.ZooKeeper, client *backend.ZooKeeperClient, item int64) (v View, err error) {
	watchers, notes, err := watched(ctx, server)
	if err != nil {
		return v, fmt.Errorf("ZooKeeper does not answer: %w", err)
	}
	link, err := client.Connected(ctx)
	if err != nil {
		return v, err
	}
	table, err := backend.ZKCall(ctx, link, func(conn *zk.Conn) (Table, error) { return nodes(conn, item, watchers) }, nil)
	return View{Tables: []Table{table}, Notes: notes}, err
}

// watched asks a ZooKeeper which sessions watch which nodes. A note says that it does not tell.
func watched(ctx context.Context, server *servers.ZooKeeper) (watchers map[string][]string, notes []string, err error) {
	text, err := server.Ask(ctx, "wchp")
	if strings.Contains(text, "whitelist") {
		notes = []string{"wchp"}
	}
	return watchersOf(text), notes, err
}

// watchersOf reads the answer to wchp: a node, and below it the sessions that watch it.
func watchersOf(text string) map[string][]string {
	sessions := make(map[string][]string)
	node := ""
	for line := range strings.Lines(text) {
		switch session := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "/"):
			node = session
		case node != "" && session != "":
			sessions[node] = append(sessions[node], session)
		}
	}
	return sessions
}

// nodes are those of an item below the folder of each kind of lock.
func nodes(conn *zk.Conn, item int64, watchers map[string][]string) (Table, error) {
	table := Table{Title: "nodes", Head: []string{"node", "session", "watched by", "czxid"}, Rows: [][]string{}}
	kinds, _, err := conn.Children("/stockd")
	if errors.Is(err, zk.ErrNoNode) {
		return table, nil
	}
	if err != nil {
		return table, err
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		folder := "/stockd/" + kind + "/" + strings.ReplaceAll(lockName(item), "/", "%2F")
		if err := add(conn, &table, folder, watchers); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return table, err
		}
	}
	return table, nil
}

// add adds a node and what is below it.
func add(conn *zk.Conn, table *Table, path string, watchers map[string][]string) error {
	children, stat, err := conn.Children(path)
	if err != nil || len(table.Rows) >= maxRows {
		return err
	}
	session := ""
	if stat.EphemeralOwner != 0 {
		session = fmt.Sprintf("%#x", stat.EphemeralOwner)
	}
	table.Rows = append(table.Rows, []string{path, session, strings.Join(watchers[path], ", "), strconv.FormatInt(stat.Czxid, 10)})
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(a[max(0, len(a)-10):], b[max(0, len(b)-10):]) })
	for _, child := range children {
		if err := add(conn, table, path+"/"+child, watchers); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// lookAtEtcd looks at the keys of the locks of an item.
func lookAtEtcd(ctx context.Context, client *clientv3.Client, item int64) (v View, err error) {
	answer, err := client.Get(ctx, "stockd/etcd/"+url.PathEscape(lockName(item))+"/", clientv3.WithPrefix(), clientv3.WithLimit(maxRows),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return v, err
	}
	table := Table{Title: "keys", Head: []string{"in line", "key", "create_revision", "lease", "ttl_s"}, Rows: [][]string{}}
	left := make(map[int64]string)
	for _, kv := range answer.Kvs {
		if _, known := left[kv.Lease]; !known && kv.Lease != 0 {
			life, err := client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			if err != nil {
				return v, err
			}
			left[kv.Lease] = fmt.Sprintf("%d of %d", life.TTL, life.GrantedTTL)
		}
		lease := ""
		if kv.Lease != 0 {
			lease = fmt.Sprintf("%x", kv.Lease)
		}
		table.Rows = append(table.Rows, []string{strconv.Itoa(len(table.Rows) + 1), string(kv.Key), strconv.FormatInt(kv.CreateRevision, 10), lease, left[kv.Lease]})
	}
	return View{Tables: []Table{table}, Notes: []string{"etcd"}}, nil
}
