package backend_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// BenchmarkInsert is what the insert of a batch costs the driver and a server together, as a text and prepared. One
// transaction has all of them, so that the disk is not waited for.
func BenchmarkInsert(b *testing.B) {
	backends, err := servers.StartBackends(b.Context(), labtest.StartSupervisor(b), servers.Choice{
		Mode: servers.Local, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None,
	}, func(string) {})
	if err != nil {
		b.Fatal(err)
	}
	d := backends.Database
	prepared, err := backend.OpenSQL(backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 1, LockWait: time.Second, ConnectTimeout: time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = prepared.Close() })
	config, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		b.Fatal(err)
	}
	config.Passwd, config.InterpolateParams = d.Password, true
	connector, err := mysql.NewConnector(config)
	if err != nil {
		b.Fatal(err)
	}
	text := sql.OpenDB(connector)
	b.Cleanup(func() { _ = text.Close() })
	if _, err := text.ExecContext(b.Context(), `CREATE TABLE batches (id BIGINT AUTO_INCREMENT PRIMARY KEY, goods BIGINT NOT NULL,
		kind VARCHAR(16) NOT NULL, quantity BIGINT NOT NULL, request VARCHAR(64) NOT NULL, at DATETIME(6) NOT NULL)`); err != nil {
		b.Fatal(err)
	}
	for _, rows := range []int{1, 8, 64} {
		for name, db := range map[string]*sql.DB{"text": text, "prepared": prepared.DB} {
			b.Run(fmt.Sprintf("%s/%d", name, rows), func(b *testing.B) { insertBatches(b, db, rows) })
		}
	}
}

func insertBatches(b *testing.B, db *sql.DB, rows int) {
	b.Helper()
	statement := `INSERT INTO batches (goods, kind, quantity, request, at) VALUES (?, ?, ?, ?, ?)` +
		strings.Repeat(`, (?, ?, ?, ?, ?)`, rows-1)
	args := make([]any, 0, 5*rows)
	for range rows {
		args = append(args, 1, "deduct", 1, "0191b2a4-7c1e-7d42-9f6a-3b1f0a5c8e77", time.Now().UTC())
	}
	tx, err := db.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback()
	for b.Loop() {
		if _, err := tx.ExecContext(b.Context(), statement, args...); err != nil {
			b.Fatal(err)
		}
	}
}
