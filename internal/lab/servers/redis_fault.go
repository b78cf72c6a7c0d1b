package servers

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
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
