package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/migrations"
)

// Migration is one step of the schema.
type Migration struct {
	Version int64
	File    string
	// AppliedAt is zero where the step is pending.
	AppliedAt time.Time
}

// MigrateUp applies every pending migration and returns those it applied. Any
// number of replicas may call it at once: one applies, the others wait.
func (s *Store) MigrateUp(ctx context.Context) ([]Migration, error) {
	var applied []*goose.MigrationResult
	err := s.changeSchema(ctx, "migrate up", func(schema *goose.Provider) (err error) {
		applied, err = schema.Up(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return migrationsOf(applied), nil
}

// changeSchema does something to the schema that nobody else may do meanwhile.
func (s *Store) changeSchema(ctx context.Context, doing string, change func(*goose.Provider) error) (err error) {
	schema, err := s.schema()
	if err != nil {
		return err
	}
	if s.dialect.lockSchema != nil {
		unlock, err := s.dialect.lockSchema(ctx)
		if err != nil {
			return s.schemaFault("lock the schema", err)
		}
		defer unlock() //nolint:errcheck // the change is made or not, whatever becomes of the lock
	}
	if err := change(schema); err != nil {
		return s.schemaFault(doing, err)
	}
	return nil
}

// MigrateDown takes back the newest migration; it drops tables and what is in
// them. There may be none to take back: then it returns nothing.
func (s *Store) MigrateDown(ctx context.Context) ([]Migration, error) {
	var undone *goose.MigrationResult
	err := s.changeSchema(ctx, "migrate down", func(schema *goose.Provider) (err error) {
		undone, err = schema.Down(ctx)
		return err
	})
	if errors.Is(err, goose.ErrNoNextVersion) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return migrationsOf([]*goose.MigrationResult{undone}), nil
}

// Migrations lists every migration, oldest first, applied or pending.
func (s *Store) Migrations(ctx context.Context) ([]Migration, error) {
	schema, err := s.schema()
	if err != nil {
		return nil, err
	}
	states, err := schema.Status(ctx)
	if err != nil {
		return nil, s.schemaFault("read the schema's state", err)
	}
	list := make([]Migration, len(states))
	for i, state := range states {
		list[i] = Migration{Version: state.Source.Version, File: state.Source.Path, AppliedAt: state.AppliedAt}
	}
	return list, nil
}

// schema is made anew for each use: it is used once in the life of a process.
func (s *Store) schema() (*goose.Provider, error) {
	files, err := fs.Sub(migrations.Files, s.dialect.name)
	if err != nil {
		return nil, fmt.Errorf("read embedded migrations: %w", err)
	}
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	dialect := goose.DialectSQLite3
	if s.dialect.name == MySQL {
		dialect = goose.DialectMySQL
		options = append(options, goose.WithSessionLocker(schemaLock{}))
	}
	provider, err := goose.NewProvider(dialect, s.pool, files, options...)
	if err != nil {
		return nil, fmt.Errorf("read embedded migrations: %w", err)
	}
	return provider, nil
}

// schemaLock lets one replica change the schema while the others wait. MySQL
// gives the lock back by itself when the connection ends.
type schemaLock struct{}

const (
	lockSchema   = `SELECT COALESCE(GET_LOCK('stockd-schema', 60), 0)`
	unlockSchema = `SELECT COALESCE(RELEASE_LOCK('stockd-schema'), 0)`
)

// SessionLock waits up to a minute for whoever is changing the schema.
func (schemaLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
	var got bool
	if err := conn.QueryRowContext(ctx, lockSchema).Scan(&got); err != nil {
		return fmt.Errorf("lock the schema: %w", err)
	}
	if !got {
		return fmt.Errorf("lock the schema: %w: another process has been changing it for a minute", stock.ErrBusy)
	}
	return nil
}

// SessionUnlock lets the next one in.
func (schemaLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var was bool
	if err := conn.QueryRowContext(ctx, unlockSchema).Scan(&was); err != nil {
		return fmt.Errorf("unlock the schema: %w", err)
	}
	return nil
}

func (s *Store) schemaFault(doing string, err error) error {
	return &stock.BackendError{Backend: s.dialect.name, Err: fmt.Errorf("%s: %w", doing, err)}
}

func migrationsOf(results []*goose.MigrationResult) []Migration {
	list := make([]Migration, len(results))
	for i, r := range results {
		list[i] = Migration{Version: r.Source.Version, File: r.Source.Path, AppliedAt: time.Now()}
	}
	return list
}
