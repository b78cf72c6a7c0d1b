package repo

import (
	"context"
	"database/sql"

	"gorm.io/gorm"
)

// dialect is everything that differs between the databases.
type dialect struct {
	name string
	// version asks the server for its version, describe makes it readable.
	version  string
	describe func(version string) string
	gorm     func(*sql.DB) gorm.Dialector
	// noTable reports that there is no table of a name.
	noTable func(error) bool
	// writes are statements that change nothing, and are rejected where nothing can be sold; nil: none is as cheap.
	writes []string
	// returns reports whether that version supports INSERT … RETURNING.
	returns func(version string) bool
	// tooOld reports that a version of the server cannot have the schema.
	tooOld func(version string) bool
	// oneWriter reports that transactions poll for the lock of the whole database.
	oneWriter bool
	// readForUpdate locks and reads the row until the transaction ends.
	readForUpdate string
	// forUpdate ends a SELECT whose rows are kept from every other writer.
	forUpdate string
	// byItem has a statement look up rows by their ids: one that read the whole of a small table
	// would lock all of it.
	byItem string
	// skipLocked ends one that leaves out the rows that another writer keeps.
	skipLocked string
	// subtractIfEnough subtracts units from the row if it has that many.
	subtractIfEnough string
	// readSettled reads how far the totals are, and keeps every other settler out.
	// It takes microseconds, and reports whether what was seen is older.
	readSettled string
	// onUser adds to what a user has already, and has it allowed where that is asked
	// for; userBytes is the user of a row of the ledger as tb_stock_user has it.
	onUser, userBytes string
	// columnTime is how a column of times is written whose clock is the server's.
	columnTime string
	// now is the server's time, until the one so many microseconds later; byID and lockRead have a statement read in the order
	// of the primary key, and wait for rows that are not committed; onTotal adds to a total that
	// is there already.
	now, until, byID, lockRead, onTotal string
	// change runs subtractIfEnough and returns how many rows it wrote and the stock that is left.
	change func(ctx context.Context, conn gorm.ConnPool, statement string, args ...any) (left, rows int64, err error)
	// clusters asks which kinds of cluster the server is a node of that take writes on several
	// nodes; empty: there are none.
	clusters string
	// keyspace, sharded and shards ask a vtgate for the keyspace of the connection, of each whether it is sharded, and for all shards.
	keyspace, sharded, shards string
	// engines asks which tables of the schema, of those with these names, have no transactions; empty: all have.
	engines string
	// conflicted reports that a group of servers has rolled a commit back, and member has a row where the
	// server is in the group still; nil and empty where there are no groups.
	conflicted func(error) bool
	member     string
}

// The statements that every dialect shares. Each write of the row lifts its
// version, so that optimistic writers notice every other one.
const (
	goodsColumns = `g.version, g.fence, g.per_user, g.writer, g.writer_epoch, g.withheld`

	// allocated is what an item has outside of its row. A locking read of the row locks
	// none of it.
	allocated = `COALESCE((SELECT SUM(p.units) FROM tb_stock_place AS p WHERE p.goods_id = g.goods_id), 0)`

	rowColumns = `SELECT g.goods_id, g.stock, ` + allocated + `, ` + goodsColumns
	selectRows = rowColumns + ` FROM tb_goods_stock AS g`

	readRow = selectRows + ` WHERE g.goods_id = ?`

	writeStock = `UPDATE tb_goods_stock SET stock = ?, ` + bySale + ` WHERE goods_id = ? AND ` + unchanged

	writeStockIfVersion = `UPDATE tb_goods_stock SET stock = ?, ` + bySale + ` WHERE goods_id = ? AND version = ?`

	subtract = `UPDATE tb_goods_stock SET stock = stock - ?, ` + bySale + ` WHERE goods_id = ? AND ` + unchanged

	// addUnits takes the units twice: those of an item that is not on sale are withheld.
	addUnits = `UPDATE tb_goods_stock SET stock = stock + CASE WHEN withheld IS NULL THEN ? ELSE 0 END, withheld = withheld + ?, `
	addStock = addUnits + besideSales + ` WHERE goods_id = ?`
)
