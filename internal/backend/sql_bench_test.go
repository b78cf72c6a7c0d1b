package backend_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

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
	db := openSQL(b, backends.Database, 1)
	if _, err := db.ExecContext(b.Context(), `CREATE TABLE batches (id BIGINT AUTO_INCREMENT PRIMARY KEY, goods BIGINT NOT NULL,
		kind VARCHAR(16) NOT NULL, quantity BIGINT NOT NULL, request VARCHAR(64) NOT NULL, at DATETIME(6) NOT NULL)`); err != nil {
		b.Fatal(err)
	}
	// What does not begin with a verb is not prepared.
	for name, insert := range map[string]string{"text": " INSERT", "prepared": "INSERT"} {
		for _, rows := range []int{1, 8, 64} {
			statement := insert + ` INTO batches (goods, kind, quantity, request, at) VALUES (?, ?, ?, ?, ?)` +
				strings.Repeat(`, (?, ?, ?, ?, ?)`, rows-1)
			b.Run(fmt.Sprintf("%s/%d", name, rows), func(b *testing.B) { insertBatches(b, db.DB, statement, rows) })
		}
	}
}

func insertBatches(b *testing.B, db *sql.DB, statement string, rows int) {
	b.Helper()
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
