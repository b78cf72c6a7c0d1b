package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"

	_ "github.com/glebarez/go-sqlite" // the driver
)

func openSQLite(o SQLOptions) (*SQL, error) {
	if o.DSN == "" {
		return nil, errors.New("the path of the file is empty")
	}
	if err := createPrivate(o.DSN); err != nil {
		return nil, err
	}
	settings := url.Values{
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", o.LockWait.Milliseconds()),
			"journal_mode(WAL)", // readers go on while one writes
			"synchronous(FULL)", // an answered sale survives a power cut
		},
		"_txlock": {"immediate"},
	}
	connector, err := sqliteConnector(sqliteURL(o.DSN, settings))
	if err != nil {
		return nil, err
	}
	lock := func(ctx context.Context) (unlock func() error, err error) { return lockSchemaOf(ctx, o.DSN) }
	none := func(context.Context) ([]SettingState, error) { return nil, nil }
	return &SQL{DB: o.openDB(connector), Dialect: SQLite, lockSchema: lock, settings: none}, nil
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
