package servers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

// Pid is that of the supervisor process.
func (k *Supervisor) Pid() int { return k.cmd.Process.Pid }

// AsksFor asks a Redis whether it is a process.
func (r *Redis) AsksFor(ctx context.Context, pid int) error { return r.readVersion(ctx, pid) }

// AsksFor asks an etcd whether it is a member.
func (e *Etcd) AsksFor(ctx context.Context, member string) error {
	other := *e
	other.name = member
	return other.readVersion(ctx, 0)
}

// AsksFor asks a ZooKeeper whether its data is in a folder.
func (z *ZooKeeper) AsksFor(ctx context.Context, folder string) error {
	other, server := *z, *z.server
	server.spec.Folder, other.server = folder, &server
	return other.readVersion(ctx, 0)
}

// stub is a server that ends with an error, and notices that it was closed.
type stub struct {
	runner

	closed *atomic.Int64
	err    error
}

func (s *stub) Close(ctx context.Context) error {
	s.closed.Add(1)
	return errors.Join(ctx.Err(), s.err)
}

// Where one of several servers does not start, those that did are closed, also where that is no longer waited for.
func TestOfServersThatDoNotAllStartNoneIsLeft(t *testing.T) {
	var closed, starts atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	broken := errors.New("broken")
	all, err := startRedlock(ctx, func(context.Context) (*Redis, error) {
		if starts.Add(1) == 2 {
			cancel()
			return nil, broken
		}
		return &Redis{runner: &stub{closed: &closed}}, nil
	})
	if !errors.Is(err, broken) || errors.Is(err, context.Canceled) || all != nil || closed.Load() != redlockNodes-1 {
		t.Errorf("%v, %d were closed of %d that started: %v", all, closed.Load(), redlockNodes-1, err)
	}
}

func TestAllServersAreClosedThoughOneDoesNotClose(t *testing.T) {
	var closed atomic.Int64
	err := closeAll(t.Context(), []*stub{{closed: &closed, err: errors.New("first")}, {closed: &closed}, {closed: &closed, err: errors.New("third")}})
	if closed.Load() != 3 || err == nil || !strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "third") {
		t.Errorf("%d were closed: %v", closed.Load(), err)
	}
}
