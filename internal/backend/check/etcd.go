package check

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
)

// Etcd are the checks of a cluster whose leases last for ttl.
func Etcd(clients *backend.Clients, ttl time.Duration) Group {
	g := Group{{What: "etcd", Run: func(ctx context.Context) Finding {
		return etcdTried(clients.Ping(ctx, backend.Etcd), "an answer of a majority")
	}}}
	for _, endpoint := range clients.Etcd.Endpoints() {
		g = append(g, Check{What: "etcd " + endpoint, Run: func(ctx context.Context) Finding { return etcdMember(ctx, clients.Etcd, endpoint) }})
	}
	return append(g, Check{What: "etcd lease and key", Tries: true, Run: func(ctx context.Context) Finding {
		return etcdWrite(ctx, clients.Etcd, clients.KeyPrefix()+"/check-"+rand.Text(), ttl)
	}})
}

func etcdTried(err error, wanted string) Finding {
	return Tried(err, "done", wanted, "see whether a majority runs, and etcd.endpoints and tls")
}

const (
	// memberWithin bounds the answer of one member.
	memberWithin = 2 * time.Second
	// defaultQuota is that of etcd, which tells it from version 3.6 on.
	defaultQuota = 2 << 30
)

// etcdMember asks one member for its state, alarms included. The others may do without it.
func etcdMember(ctx context.Context, client *clientv3.Client, endpoint string) Finding {
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	state, err := client.Status(ctx, endpoint)
	if err != nil {
		f := etcdTried(err, "its state")
		f.State = Warning
		return f
	}
	size := func(n int64) string { return humanize.IBytes(uint64(n)) } //nolint:gosec // none is negative
	found, quota := fmt.Sprintf("etcd %s, %s", state.Version, size(state.DbSize)), cmp.Or(state.DbSizeQuota, defaultQuota)
	if len(state.Errors) > 0 {
		return Judge(false, Problem, strings.Join(append(state.Errors, found), ", "), "no alarm", "etcdctl alarm list; after NOSPACE compact, defragment, then etcdctl alarm disarm")
	}
	return Judge(state.DbSize < quota/5*4, Warning, found, "no alarm, and below 80% of "+size(quota), "set --auto-compaction-retention and defragment, or raise --quota-backend-bytes")
}

// etcdWrite makes a key on a lease in a transaction, as the lock does, and revokes the lease.
func etcdWrite(ctx context.Context, client *clientv3.Client, key string, ttl time.Duration) Finding {
	lease, err := client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err == nil {
		_, err = client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "", clientv3.WithLease(lease.ID)), clientv3.OpGet(key)).Commit()
		_, revoked := client.Revoke(context.WithoutCancel(ctx), lease.ID)
		err = errors.Join(err, revoked)
	}
	return etcdTried(err, fmt.Sprintf("a key on a lease of lock.ttl, %s", ttl))
}
