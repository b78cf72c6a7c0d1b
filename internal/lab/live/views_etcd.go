package live

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/servers"
)

// etcdLens looks at the keys of the locks of an item.
type etcdLens struct {
	server *servers.Etcd
	client *clientv3.Client
}

func (e *etcdLens) close() error {
	if e.client == nil {
		return nil
	}
	return e.client.Close()
}

func (e *etcdLens) look(ctx context.Context, item int64) (v View, err error) {
	if e.client == nil {
		if e.client, err = e.server.Open(); err != nil {
			return v, err
		}
	}
	answer, err := e.client.Get(ctx, "stockd/etcd/"+url.PathEscape(lockName(item))+"/", clientv3.WithPrefix(), clientv3.WithLimit(mostRows),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return v, err
	}
	table := Table{Title: "keys", Head: []string{"in line", "key", "create_revision", "lease", "ttl_s"}, Rows: [][]string{}}
	left := make(map[int64]string)
	for _, kv := range answer.Kvs {
		if _, known := left[kv.Lease]; !known && kv.Lease != 0 {
			life, err := e.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
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
