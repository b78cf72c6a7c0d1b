package config

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// FuzzDSN masks the passwords of DSNs, and nothing else of them.
func FuzzDSN(f *testing.F) {
	for _, seed := range []string{
		"stockd:secret@tcp(db:3306)/stockd", "stockd@tcp(db:3306)/stockd", "a:b@c:d@/e", "root:@/x", "u:p@unix(/tmp/s)/d?timeout=3s&parseTime=true", ":p@/", "/",
		"u:p@tcp([::1]:3306)/d%2Fe?a=b%20c", "u:p/w@/d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		l := &Loaded{}
		l.Database.Driver, l.Database.DSN = "mysql", dsn
		before, err := mysql.ParseDSN(dsn)
		ours := err == nil && (before.TLS != nil || before.AllowFallbackToPlaintext) // to say, and not the DSN's
		if checked := l.dsn(); (checked == nil) != (err == nil && dsn != "" && !ours) {
			t.Errorf("the check says %v, the driver %v", checked, err)
		} else if checked != nil && len(dsn) > 50 && strings.Contains(checked.Error(), dsn) {
			t.Errorf("the error shows the DSN: %v", checked)
		}
		if err != nil || before.Passwd == "" {
			return
		}
		after, err := mysql.ParseDSN(maskDSN(dsn))
		if err != nil {
			t.Fatalf("%q is masked as %q: %v", dsn, maskDSN(dsn), err)
		}
		if after.Passwd != shown && before.User != "" { // without a user it is left out
			t.Errorf("%q is masked as %q", dsn, maskDSN(dsn))
		}
		// The driver writes some addresses differently from how they were read: what it
		// makes of its own is to be the same.
		after.Passwd, before.Passwd = "", ""
		if again, err := mysql.ParseDSN(before.FormatDSN()); err == nil && after.FormatDSN() != again.FormatDSN() {
			t.Errorf("%q is masked as %q", dsn, maskDSN(dsn))
		}
	})
}
