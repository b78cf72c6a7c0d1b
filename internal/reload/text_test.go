package reload_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/reload"
)

// Editors and shells begin a file with a byte order mark, or write it in UTF-16: that is no part of a secret.
func TestATextIsReadInAnyUnicodeUpToItsBound(t *testing.T) {
	most := strings.Repeat("x", reload.Largest)
	for name, c := range map[string]struct{ content, want, fails string }{
		"plain":                       {content: "a\xe4\r\n", want: "a\xe4\r\n"},
		"empty":                       {},
		"a mark":                      {content: "\xef\xbb\xbfa\n", want: "a\n"},
		"a mark alone":                {content: "\xef\xbb\xbf"},
		"a mark that is not first":    {content: "a\xef\xbb\xbf", want: "a\xef\xbb\xbf"},
		"UTF-16 of Windows":           {content: "\xff\xfea\x00\xe4\x00", want: "aä"},
		"UTF-16, big end first":       {content: "\xfe\xff\x00a\x00\xe4", want: "aä"},
		"bytes that are no text":      {content: "\xff\xfe\x01", want: "\xff\xfe\x01"},
		"as large as it may be":       {content: most, want: most},
		"one byte more than it may":   {content: most + "x", fails: "has more than 1048576 bytes"},
		"a file that is not there":    {fails: "no such file"},
		"a folder in place of a file": {fails: "is a directory"},
	} {
		path := filepath.Join(t.TempDir(), "text")
		switch {
		case strings.Contains(c.fails, "directory"):
			path = t.TempDir()
		case !strings.Contains(c.fails, "no such"):
			must.Do(t, os.WriteFile(path, []byte(c.content), 0o600))
		}
		got, err := reload.ReadText(path)
		if string(got) != c.want || (err != nil) != (c.fails != "") || err != nil && (!strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: it is read as %.20q, %v", name, got, err)
		}
	}
}

// A file without an end is not read to it.
func TestAFileWithoutAnEndIsRejected(t *testing.T) {
	if _, err := reload.ReadText("/dev/zero"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("it is read: %v", err)
	}
}
