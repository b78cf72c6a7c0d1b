package servers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/pause"
)

// FlushScripts has a Redis forget its scripts (SCRIPT FLUSH).
func FlushScripts(ctx context.Context, r redis.Cmdable) error {
	if err := r.ScriptFlush(ctx).Err(); err != nil {
		return fmt.Errorf("flush the scripts: %w", err)
	}
	return nil
}

// FlushAll has a Redis forget its keys (FLUSHALL).
func FlushAll(ctx context.Context, r redis.Cmdable) error {
	if err := r.FlushAll(ctx).Err(); err != nil {
		return fmt.Errorf("flush all keys: %w", err)
	}
	return nil
}

// Promote makes a replica a primary (REPLICAOF NO ONE), with what it has heard up
// to now, and returns when it is one.
func Promote(ctx context.Context, replica *redis.Client) error {
	if err := replica.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		return fmt.Errorf("promote the replica: %w", err)
	}
	for {
		said, err := replica.Info(ctx, "replication").Result()
		if err != nil {
			return fmt.Errorf("promote the replica: %w", err)
		}
		if strings.Contains(said, "role:master") {
			return nil
		}
		if err := pause.For(ctx, time.Millisecond); err != nil {
			return fmt.Errorf("promote the replica: %w", err)
		}
	}
}
