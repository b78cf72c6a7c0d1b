package backend_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
)

// foreign closes its literal where the server takes the last byte of a letter and the backslash after it for one
// letter of its own, as gbk and Shift JIS do.
const foreign = `你'), (2, 0x6d696e65)-- `

// What a DSN says of text is utf8mb4, or rejected by its name: a server that reads the bytes of a literal in another way
// than the driver writes them executes what a buyer says.
func TestADSNDoesNotAlterWhatTextMeans(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		admin, _ := labtest.Connect(t, d)
		defer closePool(t, admin)
		must.Get(admin.ExecContext(t.Context(), `CREATE TABLE texts (id INT PRIMARY KEY, who VARCHAR(99) CHARACTER SET utf8mb4 NOT NULL)`))(t)
		for parameters, rejected := range map[string]string{
			"charset=gbk": "charset", "charset=big5": "charset", "charset=sjis": "charset", "charset=gb18030,utf8mb4": "charset", "charset=utf8": "charset",
			"collation=gbk_chinese_ci": "collation", "collation=latin1_bin&charset=utf8mb4": "collation",
			"charset=utf8mb4": "", "charset=utf8mb4,utf8&parseTime=false&loc=Local": "", "collation=utf8mb4_unicode_ci": "",
			"character_set_client=gbk": "", "sql_mode=NO_BACKSLASH_ESCAPES": "", "sql_mode=%27ANSI_QUOTES,PIPES_AS_CONCAT%27": "",
			"multiStatements=true&clientFoundRows=false&columnsWithAlias=true&maxAllowedPacket=100&timeTruncate=1h": "",
			"autocommit=0": "", "completion_type=2": "", "timestamp=1": "timestamp", "insert_id=7": "insert_id", "no_such_setting=1": "no_such_setting",
		} {
			s, err := backend.OpenSQL(backend.SQLOptions{
				Driver: d.Driver, DSN: d.DSN + "?" + parameters, Password: d.Password, MaxOpen: 1, ConnectTimeout: 5 * time.Second,
			})
			if rejected != "" {
				if err == nil || !strings.Contains(err.Error(), rejected) {
					t.Errorf("%s: %v, want it rejected by the name of %s", parameters, err, rejected)
				}
				continue
			}
			must.Do(t, err)
			if _, err = s.ExecContext(t.Context(), `INSERT INTO texts (id, who) VALUES (?, ?)`, 1, foreign); err != nil {
				t.Errorf("%s: %v", parameters, err)
			}
			closePool(t, s.DB)
			var rows int
			var who string
			if err := admin.QueryRowContext(t.Context(), `SELECT COUNT(*), MIN(who) FROM texts`).Scan(&rows, &who); err != nil || rows != 1 || who != foreign {
				t.Errorf("%s: %d rows and %q are there (%v), want 1 and %q", parameters, rows, who, err, foreign)
			}
			_, err = admin.ExecContext(t.Context(), `DELETE FROM texts`)
			must.Do(t, err)
		}
	})
}
