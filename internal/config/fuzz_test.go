package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/config"
)

// Whatever stands in a file is rejected, or in force, and then stockd config prints
// it so that it means the same again.
func FuzzFile(f *testing.F) {
	example, err := os.ReadFile("../../configs/stockd.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(example), "replica: \"a\\tb\"\n", "replica: 'null'\n", "replica: \"\\\"\"\n", "replica: '~'\n", "replica: 0x10\n", "replica: '# x'\n",
		"lock:\n  wait: 1500ms\n", "lock: {wait: 1.5s, ttl: 1m}\n", "http:\n  trusted_proxies: 10.0.0.0/8, ::1\n", "limit:\n  user_rate: 1e3\n",
		"database:\n  driver: mysql\n  dsn: a@tcp(b:1)/c\n", "replica: &a b\nlog: *a\n", "? [a]\n: b\n", "a: b: c\n", "---\n--- \n", "- a\n",
		"optimistic:\n  max: 2562047h47m16.854775807s\n", "replica: |\n  a\n  b\n", "replica: !!binary aGk=\n", "<<: {replica: a}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if bytes.Contains(content, []byte("file")) {
			t.Skip("it may name any file of this machine")
		}
		path := filepath.Join(t.TempDir(), "stockd.yaml")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(path, nil)
		if err != nil {
			return
		}
		var printed bytes.Buffer
		if err := c.Print(&printed); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(printed.String(), "[not shown]") {
			return // a secret is not read back
		}
		if err := os.WriteFile(path, printed.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := config.Load(path, nil)
		if err != nil {
			t.Fatalf("%s\nwas printed and cannot be read: %v", &printed, err)
		}
		if !reflect.DeepEqual(again.Config, c.Config) {
			t.Errorf("printed\n%s\nread back as %+v, want %+v", &printed, again.Config, c.Config)
		}
	})
}
