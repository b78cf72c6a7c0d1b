package service_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// hostile are values of the settings that connections set or check, as SET GLOBAL takes them. The limits of time are longer
// than a busy machine needs to get from a login to the statement that sets them.
func hostile() map[string]string {
	return map[string]string{
		"character_set_client": "gbk", "character_set_connection": "gbk", "character_set_results": "gbk", "collation_connection": "gbk_bin",
		"sql_mode": "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO'", "old_mode": "'ZERO_DATE_TIME_CAST'",
		"time_zone": "'-07:00'", "lc_messages": "'de_DE'", "autocommit": "0", "completion_type": "2",
		"transaction_isolation": "'SERIALIZABLE'", "tx_isolation": "'READ-UNCOMMITTED'", "innodb_snapshot_isolation": "1",
		"transaction_read_only": "1", "tx_read_only": "1", "innodb_lock_wait_timeout": "9999", "wait_timeout": "20",
		"idle_transaction_timeout": "20", "idle_readonly_transaction_timeout": "20", "idle_write_transaction_timeout": "20",
		"net_read_timeout": "20", "net_write_timeout": "20", "wsrep_dirty_reads": "1", "wsrep_osu_method": "'RSU'",
		"unique_checks": "0", "foreign_key_checks": "0", "check_constraint_checks": "0", "sql_safe_updates": "1", "sql_auto_is_null": "1",
		"sql_big_selects": "0", "sql_select_limit": "0", "max_sort_length": "8", "max_statement_time": "20", "max_execution_time": "1",
		"query_cache_type": "1", "default_storage_engine": "MyISAM",
		"binlog_format": "'STATEMENT'", "wsrep_forced_binlog_format": "'STATEMENT'", "max_allowed_packet": "1048576",
		"innodb_default_row_format": "'compact'", "enforce_storage_engine": "'Aria'", "init_connect": "'SET insert_id = 7'", "system_versioning_asof": "'2020-01-01 00:00:00'",
	}
}

// given are settings that only the start of a server can change, or that a start gives a value that others depend on.
func given(kind string) string {
	options := "--lower-case-table-names=1 --innodb-rollback-on-timeout=ON --innodb-autoinc-lock-mode=0 --log-bin=log --server-id=1 --binlog-format=ROW" +
		" --character-set-server=gbk --performance-schema=OFF"
	if kind == servers.MariaDB {
		return options + " --skip-character-set-client-handshake --secure-timestamp=YES --innodb-deadlock-detect=OFF --query-cache-type=ON --query-cache-size=1048576"
	}
	return options
}

// Whatever a session inherits from its server, a sale is exact, or the server is rejected by the name of its setting before
// anything is made.
func TestASaleIsExactWhateverASessionInherits(t *testing.T) {
	for _, kind := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(kind, func(t *testing.T) {
			admin, d := inherited(t, lab.OwnDatabase(t, kind, given(kind)))
			fixed := map[string]bool{"sql_log_bin": true, "innodb_page_size": true, "disabled_storage_engines": true}
			labtest.Open(t, d, "first") // migrates
			var set []string
			for _, name := range variables(t, admin) {
				s, ok := backend.SettingOf(name)
				if !ok && isOfSession(t, admin, name) {
					t.Errorf("what a session makes of %s is not in the table", name)
				}
				value, known := hostile()[name]
				if is := s.Kind == backend.SettingSet || s.Kind == backend.SettingChecked; is != known && !fixed[name] {
					t.Errorf("%s is %s, and has a hostile value: %t", name, s.Kind, known)
				}
				if !known {
					continue
				}
				t.Run(name, func(t *testing.T) {
					change(t, admin, name, value)
					if s.Kind == backend.SettingChecked {
						rejects(t, d, name)
						return
					}
					isSet(t, d, name, s.Value)
					sellsExactly(t, admin, d, "sql-conditional")
				})
				if s.Kind == backend.SettingSet {
					set = append(set, name)
				}
			}
			t.Run("all", func(t *testing.T) {
				change(t, admin, "init_connect", "'SET NAMES gbk; SET autocommit = 0; SET SESSION sql_mode = NO_BACKSLASH_ESCAPES'")
				for _, name := range set {
					change(t, admin, name, hostile()[name])
				}
				execute(t, admin, "CREATE DATABASE another")
				another := must.Get(d.With(func(c *mysql.Config) { c.DBName = "another" }))(t)
				sellsExactly(t, admin, another, open(t, another, 1).names()...)
			})
		})
	}
}

// inherited is the same database for a user who may do nothing but change it: what init_connect does is done to no other.
func inherited(t *testing.T, d *servers.Database) (admin *sql.DB, limited *servers.Database) {
	t.Helper()
	admin, _ = labtest.Connect(t, d)
	admin.SetMaxOpenConns(1)
	t.Cleanup(func() { admin.Close() }) //nolint:errcheck // nothing is lost with it
	execute(t, admin, fmt.Sprintf("CREATE USER shop@'127.0.0.1' IDENTIFIED BY '%s'", d.Password))
	execute(t, admin, "GRANT ALL ON `%`.* TO shop@'127.0.0.1'")
	return admin, must.Get(d.With(func(c *mysql.Config) { c.User = "shop" }))(t)
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func variables(t *testing.T, admin *sql.DB) (names []string) {
	t.Helper()
	_, rows, err := servers.Rows(t.Context(), admin, "SHOW SESSION VARIABLES")
	must.Do(t, err)
	for _, row := range rows {
		names = append(names, strings.ToLower(row[0]))
	}
	return names
}

// isOfSession reports that sessions have a variable of their own.
func isOfSession(t *testing.T, admin *sql.DB, name string) bool {
	t.Helper()
	var value sql.NullString
	return admin.QueryRowContext(t.Context(), "SELECT @@SESSION."+name).Scan(&value) == nil
}

// change has new sessions inherit a value, until the test ends.
func change(t *testing.T, admin *sql.DB, name, value string) {
	t.Helper()
	execute(t, admin, "SET GLOBAL "+name+" = "+value)
	t.Cleanup(func() {
		if _, err := admin.Exec("SET GLOBAL " + name + " = DEFAULT"); err != nil {
			t.Error(err)
		}
	})
}

// rejects fails where a server is not rejected by the name of a setting, before a table is made.
func rejects(t *testing.T, d *servers.Database, name string) {
	t.Helper()
	store, err := d.Open(t.Context(), "late", 1)
	if wrong, ok := errors.AsType[*backend.SettingsError](err); !ok || len(wrong.Wrong) != 1 || wrong.Wrong[0].Names != name {
		t.Errorf("%s: %v, want a rejection by its name", name, err)
	}
	if err == nil {
		_ = store.Close() // it should not be there
	}
}

// isSet fails where a session has another value than the table says, or none of its own.
func isSet(t *testing.T, d *servers.Database, name, want string) {
	t.Helper()
	pool, _, err := d.Pool(1, copiesWait)
	must.Do(t, err)
	defer pool.Close() //nolint:errcheck // nothing is lost with it
	for name, want := range map[string]string{name: want, "innodb_lock_wait_timeout": "1", "wait_timeout": "10"} {
		var got string
		if err := pool.QueryRowContext(t.Context(), "SHOW SESSION VARIABLES LIKE '"+name+"'").Scan(&name, &got); err != nil || got != want && want != backend.OfCaller {
			t.Errorf("%s of a session is %q (%v), want %q", name, got, err, want)
		}
	}
}

// foreign closes its literal where gbk is read: see the same in the tests of connections.
const foreign = `你'), (2, 0x6d696e65)-- `

// sellsExactly sells an item out, through each of these strategies.
func sellsExactly(t *testing.T, admin *sql.DB, d *servers.Database, strategies ...string) {
	t.Helper()
	s := open(t, d, 1)
	c := must.Get(mysql.ParseDSN(d.DSN))(t)
	for _, name := range slices.Concat(strategies, []string{"sql-conditional" + grouped}) {
		goods := time.Now().UnixMicro() // as no other
		s.create(t, goods, 3)
		for i, want := range []error{nil, nil, stock.ErrInsufficientStock} {
			key := fmt.Sprintf("%d-%d", goods, i)
			outcome := must.Get(s.strategy(t, 0, name).Deduct(t.Context(), goods, stock.Purchase{RequestID: key, Keyed: true, Quantity: int64(i + 1), UserID: foreign}))(t)
			should.Fail(t, outcome.Rejected, want, name, "purchase", i, "is answered with")
		}
		assertSold(t, s, goods, 3)
		var rows int
		must.Do(t, admin.QueryRowContext(t.Context(), fmt.Sprintf("SELECT COUNT(*) FROM %s.tb_stock_ledger WHERE goods_id = %d AND HEX(user_id) = '%X'", c.DBName, goods, foreign)).Scan(&rows))
		should.Be(t, rows, 2, name, "the orders of the buyer")
	}
}
