package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/migrations"
)

// Migration is one step of the schema.
type Migration struct {
	Version int64
	File    string
	// AppliedAt is zero where the step is pending.
	AppliedAt time.Time
}

// MigrateUp applies every pending migration and returns those it applied, also where one failed. Any
// number of replicas may call it at once: one applies, the others wait.
func (s *Store) MigrateUp(ctx context.Context) ([]Migration, error) {
	var applied []*goose.MigrationResult
	err := s.withSchema(ctx, "migrate up", func(ctx context.Context, schema *goose.Provider) (err error) {
		applied, err = schema.Up(ctx)
		return err
	})
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		applied = partial.Applied
	}
	return migrationsOf(applied), err
}

// schemaWithin limits a change of the schema, including the wait for the lock. An ALTER of a large
// ledger copies every row.
const schemaWithin = time.Hour

// withSchema changes the schema exclusively. It does not use goose's lock: goose reads
// pending migrations before it takes its lock, and creates its table of versions there, so that
// replicas which start together on a new database collide.
//
// On Vitess it changes nothing, and fails unless all is applied: a vtgate would make each table on every shard of a keyspace.
func (s *Store) withSchema(ctx context.Context, doing string, do func(context.Context, *goose.Provider) error) (err error) {
	if s.sharded {
		return s.requireApplied(ctx)
	}
	schema, err := s.schema()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, schemaWithin)
	defer cancel()
	unlock, err := s.pool.LockSchema(ctx)
	if err != nil {
		return s.schemaFault("lock the schema", err)
	}
	defer unlock() //nolint:errcheck // the lock does not change the result
	err = s.beginVersions(ctx)
	if err == nil {
		err = do(ctx, schema)
	}
	if err != nil {
		return s.schemaFault(doing, err)
	}
	return nil
}

// errOfShards is that of a change of the schema on Vitess.
var errOfShards = errors.New("on Vitess the schema is changed on the primary of each shard: see deploy/vitess/README.md")

func (s *Store) requireApplied(ctx context.Context) error {
	list, err := s.Migrations(ctx)
	if err == nil && slices.ContainsFunc(list, func(m Migration) bool { return m.AppliedAt.IsZero() }) {
		err = errOfShards
	}
	return err
}

// beginVersions makes goose's table of versions with its first row. Goose itself does so in two steps, of which MySQL
// commits the first alone: without the second it never works again. And it tries both four times, and tells how
// the last one failed. An empty table is as good as none.
func (s *Store) beginVersions(ctx context.Context) error {
	versions, err := database.NewStore(s.gooseDialect(), goose.DefaultTablename)
	if err != nil {
		return err
	}
	rows, err := versions.ListMigrations(ctx, s.pool)
	if err != nil && !s.dialect.noTable(err) {
		return err
	}
	if err != nil {
		if err := versions.CreateVersionTable(ctx, s.pool); err != nil {
			return err
		}
	}
	if len(rows) > 0 {
		return nil
	}
	return versions.Insert(ctx, s.pool, database.InsertRequest{Version: 0})
}

// MigrateDown reverts the newest migration, which drops tables and their rows. Without a migration
// to revert it returns nothing.
func (s *Store) MigrateDown(ctx context.Context) ([]Migration, error) {
	var undone *goose.MigrationResult
	err := s.withSchema(ctx, "migrate down", func(ctx context.Context, schema *goose.Provider) (err error) {
		undone, err = schema.Down(ctx)
		return err
	})
	if s.sharded && err == nil {
		err = errOfShards
	}
	if errors.Is(err, goose.ErrNoNextVersion) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return migrationsOf([]*goose.MigrationResult{undone}), nil
}

// stateWithin limits a look at the schema, which does not wait for one who changes it.
const stateWithin = 30 * time.Second

const readVersions = `SELECT version_id, tstamp FROM goose_db_version WHERE is_applied`

// Migrations lists every migration, oldest first, applied or pending. Unlike goose's own list it
// only reads: replicas start while another process changes the schema, and as a user that may not.
func (s *Store) Migrations(ctx context.Context) ([]Migration, error) {
	schema, err := s.schema()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	applied, err := s.applied(ctx)
	if err != nil {
		return nil, s.schemaFault("read the schema's state", err)
	}
	var list []Migration
	for _, source := range schema.ListSources() {
		list = append(list, Migration{Version: source.Version, File: source.Path, AppliedAt: applied[source.Version]})
	}
	return list, nil
}

// applied has when each version was applied; a new database has no table of them.
func (s *Store) applied(ctx context.Context) (at map[int64]time.Time, err error) {
	var rows []struct {
		VersionID int64
		Tstamp    time.Time
	}
	if err := s.db.WithContext(ctx).Raw(readVersions).Scan(&rows).Error; err != nil && !s.dialect.noTable(err) {
		return nil, err
	}
	at = make(map[int64]time.Time, len(rows))
	for _, row := range rows {
		at[row.VersionID] = row.Tstamp
	}
	return at, nil
}

// schema is made anew for each use: it is used once in the life of a process.
func (s *Store) schema() (*goose.Provider, error) {
	files, err := fs.Sub(migrations.Files, s.dialect.name)
	if err != nil {
		return nil, fmt.Errorf("read embedded migrations: %w", err)
	}
	provider, err := goose.NewProvider(s.gooseDialect(), s.pool.DB, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read embedded migrations: %w", err)
	}
	return provider, nil
}

func (s *Store) gooseDialect() database.Dialect {
	if s.dialect.name == MySQL {
		return database.DialectMySQL
	}
	return database.DialectSQLite3
}

func (s *Store) schemaFault(doing string, err error) error {
	return backend.Failure(s.dialect.name, fmt.Errorf("%s: %w", doing, err))
}

func migrationsOf(results []*goose.MigrationResult) []Migration {
	list := make([]Migration, len(results))
	for i, r := range results {
		list[i] = Migration{Version: r.Source.Version, File: r.Source.Path, AppliedAt: time.Now()}
	}
	return list
}
