package sourcelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/lock"
)

// NodeCache is the name of the lock below.
const NodeCache = "node-cache"

// nodeCache is a lock as one of the documents first has it: numbered ephemeral
// nodes, and a listener on the one before. It does not check that this node still
// existed when it began to listen.
type nodeCache struct {
	conn *zk.Conn
}

// NewNodeCache connects to a ZooKeeper, with a session that expires after that much
// silence. The lock is an io.Closer.
func NewNodeCache(address string, session time.Duration) (lock.Locker, error) {
	conn, _, err := zk.Connect([]string{address}, session, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("connect to ZooKeeper: %w", err)
	}
	return &nodeCache{conn}, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// Acquire queues, and waits for the node before its own to go.
func (l *nodeCache) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	folder := "/node-cache-" + strings.ReplaceAll(name, "/", "-")
	if _, err := l.conn.Create(folder, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return nil, err
	}
	path, err := l.conn.Create(folder+"/number-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return nil, err
	}
	names, _, err := l.conn.Children(folder)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	ahead := slices.Index(names, strings.TrimPrefix(path, folder+"/")) - 1
	if ahead >= 0 {
		// Whether it was there is not asked, and that is the mistake: a node that is
		// gone is never deleted again.
		_, _, changed, err := l.conn.ExistsW(folder + "/" + names[ahead])
		if err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, errors.Join(lock.ErrNotAcquired, context.Cause(ctx), l.conn.Delete(path, -1))
		}
	}
	held, end := context.WithCancel(context.Background())
	return &nodeLease{conn: l.conn, path: path, held: held, end: end}, nil
}

// Close ends the session.
func (l *nodeCache) Close() error {
	l.conn.Close()
	return nil
}

type nodeLease struct {
	conn *zk.Conn
	path string
	held context.Context //nolint:containedctx // it is the lease's own, which the contract asks for
	end  func()
}

// Token is 0: the document has none.
func (*nodeLease) Token() uint64 { return 0 }

// Context ends with the release. A loss is not reported.
func (l *nodeLease) Context() context.Context { return l.held }

// Release deletes the node.
func (l *nodeLease) Release(context.Context) error {
	defer l.end()
	return l.conn.Delete(l.path, -1)
}
