package locktest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// gate is what a lock protects here: a counter that loses updates when two holders overlap.
type gate struct {
	holders, count, passed atomic.Int64
	overlapped, disordered atomic.Bool
	last                   atomic.Uint64
}

// pass goes through the gate as a holder, with the token of the lease.
func (g *gate) pass(token uint64) {
	if last := g.last.Swap(token); token != 0 && token <= last {
		g.disordered.Store(true)
	}
	if g.holders.Add(1) > 1 {
		g.overlapped.Store(true)
	}
	before := g.count.Load()
	time.Sleep(100 * time.Microsecond)
	g.count.Store(before + 1)
	g.passed.Add(1)
	g.holders.Add(-1)
}

// damage describes what went wrong, or is empty.
func (g *gate) damage() string {
	lost := g.passed.Load() - g.count.Load()
	if lost == 0 && !g.overlapped.Load() {
		return ""
	}
	return fmt.Sprintf("of %d updates %d were lost; two holders overlapped: %v", g.passed.Load(), lost, g.overlapped.Load())
}

// count is the same between processes: a file with a number, and one with the last token.
func count(folder string, token uint64) error {
	file := countFile(folder)
	before, err := numberIn(file)
	if err != nil {
		return err
	}
	time.Sleep(100 * time.Microsecond)
	if err := os.WriteFile(file, strconv.AppendInt(nil, int64(before+1), 10), 0o600); err != nil || token == 0 {
		return err
	}
	file = filepath.Join(folder, "token")
	last, err := numberIn(file)
	if err != nil {
		return err
	}
	if token <= uint64(last) { //nolint:gosec // a token was written there
		return fmt.Errorf("token %d came after %d", token, last)
	}
	return os.WriteFile(file, strconv.AppendUint(nil, token, 10), 0o600)
}

func countFile(folder string) string { return filepath.Join(folder, "count") }

func numberIn(file string) (int, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(content))
}

func readCount(t *testing.T, folder string) int {
	t.Helper()
	n, err := numberIn(countFile(folder))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
