package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/pause"
)

// onDiskWithin is longer than Redis leaves a write in memory.
const onDiskWithin = 5 * time.Second

// AwaitOnDisk writes a key of its own at the beginning of a second, and returns when the file of
// the Redis is on its disk as a whole, and no sync runs: while one does, Redis answers before
// it writes. Where it syncs once a second, the next sync is then most of a second away.
func (r *Redis) AwaitOnDisk(ctx context.Context) error {
	file, err := r.appended()
	if err != nil {
		return err
	}
	if err := pause.For(ctx, time.Until(time.Now().Truncate(time.Second).Add(time.Second))); err != nil {
		return err
	}
	return r.use(func(client *redis.Client) error {
		if err := client.Set(ctx, "stockd:lab:neighbor", "", 0).Err(); err != nil {
			return fmt.Errorf("write a key: %w", err)
		}
		for began := time.Now(); time.Since(began) < onDiskWithin; {
			rests, err := restingAOF(ctx, client)
			if err != nil {
				return err
			}
			size, synced, err := syncedSize(file)
			if err != nil {
				return err
			}
			if rests && synced {
				r.onDisk = size
				return nil
			}
			if err := pause.For(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		return &MissingError{
			What: fmt.Sprintf("a disk that a file is written to: within %s %s was not", onDiskWithin, file),
			How:  "TMPDIR names a folder on another file system",
		}
	})
}

// restingAOF tells whether Redis has written all that it has answered, and has no sync that
// is to come or runs.
func restingAOF(ctx context.Context, client *redis.Client) (bool, error) {
	said, err := client.Info(ctx, "persistence").Result()
	if err != nil {
		return false, fmt.Errorf("ask for syncs: %w", err)
	}
	return strings.Contains(said, "aof_pending_bio_fsync:0\r\n") && strings.Contains(said, "aof_buffer_length:0\r\n"), nil
}

// CutPower ends the Redis as a power cut does: what the kernel has not written to the disk
// is lost. It returns how many bytes that are.
//
// A kill alone loses nothing that Redis has written: the kernel has it, and says whether some of
// it is in memory only. Where it is, the file is cut to what was on the disk at AwaitOnDisk.
func (r *Redis) CutPower(ctx context.Context) (lost int64, err error) {
	if err := r.Kill(ctx); err != nil {
		return 0, err
	}
	file, err := r.appended()
	if err != nil {
		return 0, err
	}
	size, synced, err := syncedSize(file)
	if err != nil || synced {
		return 0, err
	}
	return size - r.onDisk, os.Truncate(file, r.onDisk)
}

// appended is the file that the Redis appends its commands to.
func (r *Redis) appended() (string, error) {
	for _, pattern := range []string{"appendonlydir/*.incr.aof", "appendonly.aof"} { // since 7.0, and before
		found, err := filepath.Glob(filepath.Join(r.server.spec.Folder, pattern))
		if err != nil {
			return "", err
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return "", errors.New("the Redis has no file that it appends to")
}

// syncedSize is how long a file is, and whether it was on its disk as a whole. It is only
// appended to: what follows later does not change what was there.
func syncedSize(path string) (size int64, synced bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, false, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err != nil {
		return 0, false, err
	}
	unwritten, err := unwrittenPages(file)
	return info.Size(), unwritten == 0, err
}
