// Package sourcelock has locks as the sources first write them, with their known
// failures. Experiments contend for them; no strategy sells through them.
package sourcelock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// The locks.
const (
	// InsertOnce inserts the name once, and gets lock.ErrNotAcquired where it is taken.
	InsertOnce = "plain-insert"
	// InsertLoop inserts it repeatedly. It is not reentrant.
	InsertLoop = "plain-insert-loop"
)

// Registry lists them.
func Registry() []lock.Entry {
	return slices.Concat(inRedis(), readWriteLocks(), onMasters(), inEtcd(), []lock.Entry{
		inserting(InsertOnce, "INSERT of the name into a table with a unique key; a client that finds it taken gives up", false),
		inserting(InsertLoop, "the same in a loop, without an owner, an expiry and a depth", true),
		listening(NodeCache, "numbered ephemeral nodes; the end of the one before is taken for the grant", false),
		listening(NodeCacheTimeout, "the same, and the end of the waiting is taken for the grant", true),
	})
}

func inserting(name, summary string, loop bool) lock.Entry {
	return lock.Entry{
		Name: name, Family: lock.FamilySQL, Needs: []backend.Name{backend.MySQL}, Summary: summary,
		New: func(d lock.Deps) lock.Locker { return &insert{Deps: d, loop: loop} },
	}
}

type insert struct {
	lock.Deps

	loop bool
}

// The table has what the source gives it: a unique name, and the client
// that inserted it, so that no client deletes the row of another.
const (
	createTable = `CREATE TABLE IF NOT EXISTS lab_record_lock (lock_name VARCHAR(255) NOT NULL PRIMARY KEY, uuid VARCHAR(64) NOT NULL)`
	insertName  = `INSERT INTO lab_record_lock (lock_name, uuid) VALUES (?, ?)`
	deleteName  = `DELETE FROM lab_record_lock WHERE lock_name = ? AND uuid = ?`
	dropTable   = `DROP TABLE IF EXISTS lab_record_lock`
)

// Acquire inserts the name.
func (l *insert) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	if _, err := l.DB.ExecContext(ctx, createTable); err != nil {
		return nil, fmt.Errorf("insert %s: %w", name, err)
	}
	uuid := rand.Text()
	for {
		_, err := l.DB.ExecContext(ctx, insertName, name, uuid)
		switch {
		case err == nil:
			return lock.NewHeld(0, func(ctx context.Context) error {
				_, err := l.DB.ExecContext(ctx, deleteName, name, uuid)
				return err
			}), nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", lock.ErrNotAcquired, context.Cause(ctx))
		case !isDuplicate(err):
			return nil, fmt.Errorf("insert %s: %w", name, err)
		case !l.loop:
			return nil, fmt.Errorf("%w: %w", lock.ErrNotAcquired, err)
		}
		time.Sleep(l.Retry)
	}
}

// Close removes the table: its locks end with the experiment.
func (l *insert) Close() error {
	_, err := l.DB.ExecContext(context.Background(), dropTable)
	return err
}

func isDuplicate(err error) bool {
	const duplicateEntry = 1062
	return backend.IsMySQL(err, duplicateEntry)
}

// The names of the lock below, and of its form whose waiting ends after a time and is then
// taken for a grant.
const (
	NodeCache        = "node-cache"
	NodeCacheTimeout = "node-cache-timeout"
)

func listening(kind, summary string, timed bool) lock.Entry {
	return lock.Entry{
		Name: kind, Family: lock.FamilyZooKeeper, Needs: []backend.Name{backend.ZooKeeper}, Summary: summary,
		New: func(d lock.Deps) lock.Locker { return &nodeCache{session: d.ZooKeeper, timed: timed} },
	}
}

// nodeCacheWait is how long the one waits whose waiting ends.
const nodeCacheWait = 300 * time.Millisecond

// nodeCache is a lock as one of the documents first has it: numbered ephemeral
// nodes, and a listener on the one before. It does not check that this node still
// existed when it began to listen, nor who is ahead when it has been deleted.
type nodeCache struct {
	session *backend.ZooKeeperClient
	timed   bool
}

// Acquire queues, and waits for the node before its own to go.
func (l *nodeCache) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	link, err := l.session.Connected(ctx)
	if err != nil {
		return nil, err
	}
	folder := "/node-cache-" + strings.ReplaceAll(name, "/", "-")
	if _, err := create(ctx, link, folder, 0); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return nil, err
	}
	path, err := create(ctx, link, folder+"/number-", zk.FlagEphemeral|zk.FlagSequence)
	if err != nil {
		return nil, err
	}
	remove := func(ctx context.Context) error {
		return backend.ZKDo(ctx, link, func(conn *zk.Conn) error { return conn.Delete(path, -1) })
	}
	names, err := link.List(ctx, folder)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	ahead := slices.Index(names, strings.TrimPrefix(path, folder+"/")) - 1
	if ahead >= 0 {
		// Whether it was there is not asked, and that is the mistake: a node that is
		// gone is never deleted again.
		changed, err := backend.ZKCall(ctx, link, func(conn *zk.Conn) (<-chan zk.Event, error) {
			_, _, changed, err := conn.ExistsW(folder + "/" + names[ahead])
			return changed, err
		}, nil)
		if err != nil {
			return nil, err
		}
		var over <-chan time.Time
		if l.timed {
			over = time.After(nodeCacheWait)
		}
		select {
		case <-changed:
		case <-over: // that it was not the deletion is not looked at, as little as who is ahead
		case <-ctx.Done():
			return nil, errors.Join(lock.ErrNotAcquired, context.Cause(ctx), remove(context.WithoutCancel(ctx)))
		}
	}
	// The document has no token, and reports no loss.
	return lock.NewHeld(0, remove), nil
}

func create(ctx context.Context, link *backend.ZKLink, path string, flags int32) (string, error) {
	return backend.ZKCall(ctx, link, func(conn *zk.Conn) (string, error) { return conn.Create(path, nil, flags, zk.WorldACL(zk.PermAll)) }, nil)
}
