package replica

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/repo"
)

// OpenStore opens the database of the configuration, and waits for it.
func OpenStore(ctx context.Context, c config.Config) (*repo.Store, error) {
	database, err := sqlOptions(c)
	if err != nil {
		return nil, err
	}
	return openDatabase(ctx, database, repo.Options{Replica: c.Replica})
}

// openDatabase names the key in an error: a driver names neither it nor the file of SQLite.
func openDatabase(ctx context.Context, database backend.SQLOptions, o repo.Options) (*repo.Store, error) {
	store, err := repo.Open(ctx, database, o)
	if err != nil {
		return nil, fmt.Errorf("open database.dsn: %w", err)
	}
	return store, nil
}

// minTxTimeout bounds transactions that no single request waits for from below, such as
// a batch of redis-stock's orders.
const minTxTimeout = 10 * time.Second

// connectTimeout bounds the making of one connection: what a network that works takes, with one
// packet sent again. A purchase that waits for longer ends with deduct.timeout.
const connectTimeout = 3 * time.Second

// afterPurchase is added to the timeout of a purchase: after that the database closes a
// connection that is idle in a transaction.
const afterPurchase = 5 * time.Second

func sqlOptions(c config.Config) (backend.SQLOptions, error) {
	encryption, err := encryption("database", c.Database.TLS)
	return backend.SQLOptions{
		Driver: c.Database.Driver, DSN: c.Database.DSN, Password: c.Database.Password.Reveal(), TLS: encryption,
		MaxOpen: c.Database.MaxOpen, LockWait: c.Database.LockWait, ConnectTimeout: connectTimeout,
		TxTimeout: max(c.Deduct.Timeout, minTxTimeout), Silence: c.Deduct.Timeout + afterPurchase,
	}, err
}

// bringUpToDate migrates the schema, or fails on an old one.
func bringUpToDate(ctx context.Context, c config.Config, store *repo.Store, log *slog.Logger) error {
	if c.Database.Migrate {
		applied, err := store.MigrateUp(ctx)
		for _, m := range applied {
			log.InfoContext(ctx, "schema changed", "migration", m.File)
		}
		return err
	}
	lacks, err := pending(ctx, store)
	if err == nil && lacks != "" {
		err = fmt.Errorf("the schema lacks %s: run stockd migrate up, or set database.migrate", lacks)
	}
	return err
}

// pending is the first migration that is not applied, or empty.
func pending(ctx context.Context, store *repo.Store) (string, error) {
	list, err := store.Migrations(ctx)
	for _, m := range list {
		if m.AppliedAt.IsZero() {
			return m.File, err
		}
	}
	return "", err
}

// encryption reads the TLS of a section. Its files were checked with the configuration,
// and may have changed since.
func encryption(section string, t config.TLS) (*tls.Config, error) {
	c, err := t.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s.tls.%w", section, err)
	}
	return c, nil
}
