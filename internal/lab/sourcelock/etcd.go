package sourcelock

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// The lock in etcd: a key under a lease of its own, and a watch of the key that was created
// before it.
const (
	// PreKeyOnce is that of the source: it takes the end of that key for the grant.
	PreKeyOnce = "etcd-pre-key-once"
	// PreKey looks again who is first.
	PreKey = "etcd-pre-key"
)

func inEtcd() []lock.Entry {
	return []lock.Entry{
		watching(PreKeyOnce, "a key under a lease for each request, which waits for the end of the key before it", true),
		watching(PreKey, "the same, and looks again who is first", false),
	}
}

func watching(kind, summary string, once bool) lock.Entry {
	return lock.Entry{
		Name: kind, Family: lock.FamilyEtcd, Needs: []backend.Name{backend.Etcd}, Summary: summary,
		New: func(d lock.Deps) lock.Locker { return &preKey{deps: d, kind: kind, once: once} },
	}
}

// preKey does not embed what it needs: its Close would end the clients.
type preKey struct {
	deps lock.Deps
	kind string
	once bool
}

// Acquire puts a key, and waits until no other of the name is older.
func (l *preKey) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	granted, err := l.deps.Etcd.Grant(ctx, int64((l.deps.TTL+time.Second-1)/time.Second))
	if err != nil {
		return nil, lock.NotAcquired(ctx, string(backend.Etcd), err)
	}
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	release := func(ctx context.Context) error {
		end()
		_, err := l.deps.Etcd.Revoke(ctx, granted.ID) // its key goes with it
		return err
	}
	if err := l.wait(ctx, alive, l.deps.KeyPrefix()+"/"+l.kind+"/"+url.PathEscape(name)+"/", granted.ID); err != nil {
		lock.TakeBack(ctx, release)
		return nil, lock.NotAcquired(ctx, string(backend.Etcd), err)
	}
	return lock.Granted(ctx, lock.NewHeld(0, release))
}

func (l *preKey) wait(ctx, alive context.Context, line string, id clientv3.LeaseID) error {
	renewals, err := l.deps.Etcd.KeepAlive(alive, id)
	if err != nil {
		return err
	}
	go func() {
		for range renewals { // the client wants them read
		}
	}()
	own := fmt.Sprintf("%s%x", line, id)
	if _, err := l.deps.Etcd.Put(ctx, own, "", clientv3.WithLease(id)); err != nil {
		return err
	}
	for {
		before, rev, err := l.before(ctx, line, own)
		if before == "" || err != nil {
			return err
		}
		if err := l.gone(ctx, before, rev+1); err != nil || l.once {
			return err
		}
	}
}

// before is the key that was created before another one, at a revision, or empty where that
// is the first.
func (l *preKey) before(ctx context.Context, line, own string) (key string, rev int64, err error) {
	found, err := l.deps.Etcd.Get(ctx, line, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return "", 0, err
	}
	keys := make([]string, len(found.Kvs))
	for i, kv := range found.Kvs {
		keys[i] = string(kv.Key)
	}
	switch at := slices.Index(keys, own); at {
	case -1:
		return "", 0, fmt.Errorf("%s: %w", own, lock.ErrLost)
	case 0:
		return "", 0, nil
	default:
		return keys[at-1], found.Header.Revision, nil
	}
}

// gone watches a key from a revision on until it is deleted.
func (l *preKey) gone(ctx context.Context, key string, from int64) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	for changes := range l.deps.Etcd.Watch(ctx, key, clientv3.WithRev(from), clientv3.WithFilterPut()) {
		if err := changes.Err(); err != nil {
			return err
		}
		if len(changes.Events) > 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
