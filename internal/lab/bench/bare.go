package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// bare runs the statements of sql-conditional in a loop, with nothing around
// them: no service, no GORM, no HTTP. It is the limit that the service is held
// against.
type bare struct{ db *sql.DB }

const (
	bareInsert = `INSERT INTO tb_stock_ledger
		(goods_id, kind, quantity, request_id, user_id, strategy, replica, fence, remaining, created_at)
		VALUES (?, 'deduct', 1, ?, NULL, 'sql-conditional', 'bare', 0, NULL, ?)`
	bareUpdate = `UPDATE tb_goods_stock SET stock = LAST_INSERT_ID(stock - 1), version = version + 1
		WHERE goods_id = ? AND stock >= 1`
)

// errNeedsMySQL tells that a bare loop on SQLite would say nothing of a
// database that is a server.
var errNeedsMySQL = errors.New("the bare loop needs a MariaDB or MySQL on this machine (--servers=local)")

func openBare(d *servers.Database) (*bare, error) {
	if d.Driver != repo.MySQL {
		return nil, errNeedsMySQL
	}
	c, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		return nil, fmt.Errorf("open bare loop: %w", err)
	}
	c.Passwd, c.InterpolateParams, c.ClientFoundRows = d.Password, true, true
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("open bare loop: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return &bare{db: db}, nil
}

// connections are as many as a replica has: see database.max_open.
const connections = 16

func (b *bare) close() error {
	if b == nil {
		return nil
	}
	return b.db.Close()
}

// measure returns sales a second.
func (b *bare) measure(ctx context.Context, goods int64, clients int, each time.Duration) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var sold atomic.Int64
	var workers sync.WaitGroup
	start := time.Now()
	for range clients {
		workers.Go(func() {
			for time.Since(start) < each && ctx.Err() == nil {
				if err := b.sell(ctx, goods); err != nil {
					cancel(fmt.Errorf("bare loop: %w", err))
					return
				}
				sold.Add(1)
			}
		})
	}
	workers.Wait()
	return float64(sold.Load()) / time.Since(start).Seconds(), context.Cause(ctx)
}

func (b *bare) sell(ctx context.Context, goods int64) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // harmless after the commit
	if _, err := tx.ExecContext(ctx, bareInsert, goods, id.String(), time.Now().UTC()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, bareUpdate, goods); err != nil {
		return err
	}
	return tx.Commit()
}
