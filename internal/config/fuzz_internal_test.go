package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/must"
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

// Whatever stands in a file is rejected, or in force, and then stockd config prints
// it so that it means the same again.
func FuzzFile(f *testing.F) {
	example := must.Get(os.ReadFile("../../configs/stockd.yaml"))(f)
	for _, seed := range []string{
		string(example), "replica: \"a\\tb\"\n", "replica: 'null'\n", "replica: \"\\\"\"\n", "replica: '~'\n", "replica: 0x10\n", "replica: '# x'\n",
		"lock:\n  wait: 1500ms\n", "lock: {wait: 1.5s, ttl: 1m}\n", "http:\n  trusted_proxies: 10.0.0.0/8, ::1\n", "limit:\n  user_rate: 1e3\n",
		"database:\n  driver: mysql\n  dsn: a@tcp(b:1)/c\n", "replica: &a b\nlog: *a\n", "? [a]\n: b\n", "a: b: c\n", "---\n--- \n", "- a\n",
		"audit:\n  every: 2562047h47m16.854775807s\n", "replica: |\n  a\n  b\n", "replica: !!binary aGk=\n", "<<: {replica: a}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if bytes.Contains(content, []byte("file")) {
			t.Skip("it may name any file of this machine")
		}
		path := filepath.Join(t.TempDir(), "stockd.yaml")
		must.Do(t, os.WriteFile(path, content, 0o600))
		c, err := Load(path, nil)
		if err != nil {
			return
		}
		var printed bytes.Buffer
		must.Do(t, c.Print(&printed))
		if strings.Contains(printed.String(), "[not shown]") {
			return // a secret is not read back
		}
		must.Do(t, os.WriteFile(path, printed.Bytes(), 0o600))
		again, err := Load(path, nil)
		if err != nil {
			t.Fatalf("%s\nwas printed and cannot be read: %v", &printed, err)
		}
		if !reflect.DeepEqual(again.Config, c.Config) {
			t.Errorf("printed\n%s\nread back as %+v, want %+v", &printed, again.Config, c.Config)
		}
	})
}
