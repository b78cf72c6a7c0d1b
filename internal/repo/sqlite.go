package repo

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/glebarez/go-sqlite"
	gormsqlite "github.com/glebarez/sqlite"
	"gorm.io/gorm"
)

func sqliteDialect() dialect {
	return dialect{
		name:     SQLite,
		version:  `SELECT sqlite_version()`,
		describe: func(version string) string { return "SQLite " + version },
		gorm: func(pool *sql.DB) gorm.Dialector {
			return gormsqlite.Dialector{Conn: pool}
		},
		returns:   func(string) bool { return true },
		oneWriter: true,
		// There are no row locks: every transaction takes the lock of the whole
		// database when it begins (_txlock=immediate).
		readForUpdate: readRow,
		subtractIfEnough: `UPDATE tb_goods_stock SET stock = stock - ?, ` + bySale + `
			WHERE goods_id = ? AND stock >= ? AND per_user = ? RETURNING stock`,
		// While a transaction runs there is no other: what it sees is all there is.
		readSettled: `SELECT upto, seen, ? >= 0 AS old FROM tb_ledger_settled WHERE id = 1`,
		onUser: ` ON CONFLICT (goods_id, user_id) DO UPDATE SET units = units + excluded.units,
			allowed = CASE WHEN excluded.allowed > 0 THEN MAX(allowed, units + excluded.units) ELSE allowed END`,
		userBytes: `user_id`,
		now:       `CURRENT_TIMESTAMP`,
		onTotal: ` ON CONFLICT (goods_id) DO UPDATE SET restocked = restocked + excluded.restocked,
			sold = sold + excluded.sold, orders = orders + excluded.orders`,
		change:   changeReturning,
		classify: classifySQLite,
	}
}

func changeReturning(ctx context.Context, conn gorm.ConnPool, statement string, args ...any) (left, rows int64, err error) {
	err = conn.QueryRowContext(ctx, statement, args...).Scan(&left)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	return left, 1, err
}

func openSQLite(o Options) (dialect, *sql.DB, error) {
	if o.DSN == "" {
		return dialect{}, nil, errors.New("the path of the file is empty")
	}
	if err := createPrivate(o.DSN); err != nil {
		return dialect{}, nil, err
	}
	settings := url.Values{
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", o.LockWait.Milliseconds()),
			"journal_mode(WAL)", // readers go on while one writes
			"synchronous(FULL)", // an answered sale survives a power cut
		},
		"_txlock": {"immediate"},
	}
	d := sqliteDialect()
	d.lockSchema = func(ctx context.Context) (unlock func() error, err error) { return lockSchemaOf(ctx, o.DSN) }
	connector, err := sqliteConnector(sqliteURL(o.DSN, settings))
	if err != nil {
		return dialect{}, nil, err
	}
	return d, o.openDB(connector), nil
}

// createPrivate makes a file that its owner alone may read. SQLite gives its -wal and -shm
// the same mode. A file that is there keeps its own.
func createPrivate(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return file.Close()
}

// fileConnector makes connections to a file.
type fileConnector struct {
	driver driver.Driver
	url    string
}

func sqliteConnector(url string) (driver.Connector, error) {
	// The driver is known to database/sql by its name alone. Nothing is opened.
	known, err := sql.Open("sqlite", url)
	if err != nil {
		return nil, err
	}
	return fileConnector{known.Driver(), url}, known.Close()
}

func (c fileConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.url) }
func (c fileConnector) Driver() driver.Driver                        { return c.driver }

func sqliteURL(path string, settings url.Values) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + settings.Encode()
}

// lockSchemaOf lets one process change the schema while the others wait, up to a
// minute. SQLite has no lock that spans transactions, but for the one on another
// file: it stays, and stays empty.
func lockSchemaOf(ctx context.Context, path string) (unlock func() error, err error) {
	if err := createPrivate(path + "-schema"); err != nil {
		return nil, err
	}
	beside, err := sql.Open("sqlite", sqliteURL(path+"-schema", url.Values{
		"_pragma": {"busy_timeout(60000)"}, "_txlock": {"immediate"},
	}))
	if err != nil {
		return nil, err
	}
	tx, err := beside.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(err, beside.Close())
	}
	return func() error { return errors.Join(tx.Rollback(), beside.Close()) }, nil
}

// Result codes of SQLite, see https://www.sqlite.org/rescode.html.
const (
	sqliteBusy             = 5
	sqliteLocked           = 6
	sqliteConstraintUnique = 2067
)

func classifySQLite(err error) faultKind {
	var answer *sqlite.Error
	if !errors.As(err, &answer) {
		return faultBackend
	}
	switch code := answer.Code(); {
	case code == sqliteConstraintUnique:
		return faultDuplicate
	case code&0xff == sqliteBusy, code&0xff == sqliteLocked:
		return faultBusy
	default:
		return faultBackend
	}
}
