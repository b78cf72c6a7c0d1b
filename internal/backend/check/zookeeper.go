package check

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
)

// ZooKeeper are the checks of an ensemble.
func ZooKeeper(clients *backend.Clients, clocks *Clocks) Group {
	const do = "see whether a majority runs, and zookeeper.addresses and tls"
	var clock Finding
	return Group{
		{What: "zookeeper", Connects: true, Run: func(ctx context.Context) Finding {
			return Tried(clients.Ping(ctx, backend.ZooKeeper), "answers", "a session", do)
		}},
		{What: "zookeeper node", Tries: true, Connects: true, Run: func(ctx context.Context) Finding {
			link, err := clients.ZooKeeper.Connected(ctx)
			if err == nil {
				err = backend.ZKDo(ctx, link, func(conn *zk.Conn) error {
					asked := time.Now()
					at, err := tryNode(conn, "/"+clients.KeyPrefix(), link.Session.ACL())
					if err == nil {
						clock = clocks.compare("zookeeper", at, asked, time.Now())
					}
					return err
				})
			}
			return Tried(err, "done", "an ephemeral, numbered node in a container, which are as old as 3.5.3", do)
		}},
		{What: "zookeeper clock", Tries: true, Run: func(context.Context) Finding { return clock }},
	}
}

// tryNode makes a node as the locks do, deletes it, and returns when it was made by the clock of the leader. It makes no
// root, which the locks keep; an empty container that stays is deleted by the server.
func tryNode(conn *zk.Conn, root string, acl []zk.ACL) (at time.Time, err error) {
	name := "check-" + rand.Text()
	folder, err := conn.CreateContainer(root+"/"+name, nil, zk.FlagContainer, acl)
	if errors.Is(err, zk.ErrNoNode) {
		folder, err = conn.CreateContainer(root+"-"+name, nil, zk.FlagContainer, acl)
	}
	if err != nil {
		return at, err
	}
	defer conn.Delete(folder, -1) //nolint:errcheck // see above
	path, err := conn.Create(folder+"/", nil, zk.FlagEphemeralSequential, acl)
	if err != nil {
		return at, err
	}
	_, stat, err := conn.Exists(path)
	if err == nil {
		at = time.UnixMilli(stat.Ctime)
	}
	return at, errors.Join(err, conn.Delete(path, -1))
}
