package repo_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/repo"
)

// The orders of a shop are for no other user of its machine.
func TestTheFilesOfSQLiteArePrivate(t *testing.T) {
	private, shared := filepath.Join(t.TempDir(), "private.db"), filepath.Join(t.TempDir(), "shared.db")
	must(t, os.WriteFile(shared, nil, 0o600))
	must(t, os.Chmod(shared, 0o640))
	for path, want := range map[string]os.FileMode{private: 0o600, shared: 0o640} {
		s, err := repo.Open(t.Context(), backend.SQLOptions{Driver: repo.SQLite, DSN: path, MaxOpen: 2, LockWait: time.Second, ConnectTimeout: time.Second}, repo.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() //nolint:errcheck // the test is over
		if _, err := s.MigrateUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{path, path + "-wal", path + "-shm"} {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s has the mode %o, want %o", filepath.Base(file), got, want)
			}
		}
		if info, err := os.Stat(path + "-schema"); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file that locks the schema is %v, %v", info, err)
		}
	}
}
