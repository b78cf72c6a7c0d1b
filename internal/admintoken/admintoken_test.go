package admintoken_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/testlog"
)

const (
	alices = "0123456789abcdef-alice"
	bobs   = "0123456789abcdef-bob"
)

func write(t *testing.T, path, content string) string {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestAWeakTokenIsRefusedWithItsRule(t *testing.T) {
	for token, rule := range map[string]string{
		"":                                 "at least 16 characters, not 0",
		"0123456789abcde":                  "at least 16 characters, not 15",
		"aaaaaaaaaaaaaaaa":                 "at least 8 different characters, not 1",
		"abcdefgabcdefgabcdefg":            "at least 8 different characters, not 7",
		"an-example-token-for-one-machine": "example",
		"please-change-this-token":         "example",
	} {
		if err := admintoken.Weak(token); err == nil || !strings.Contains(err.Error(), rule) || token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("%q is rejected with %v, want %q", token, err, rule)
		}
	}
	for _, example := range []string{ // of all versions
		"an-example-token-for-one-machine", "please-change-this-token", "an-example-for-etcd", "an-example-for-etcds-root", "an-example-password",
		"an-example-root-password", "an-example-for-redis", "stockd:an-example-for-zookeeper",
	} {
		if err := admintoken.Weak(example); !admintoken.Published(example) || err == nil || !strings.Contains(err.Error(), "example") {
			t.Errorf("%q is accepted, or rejected with %v", example, err)
		}
	}
	for _, token := range []string{alices, "4f1c0a9b7e2d4f1c", "the owner's own token"} {
		if err := admintoken.Weak(token); err != nil {
			t.Errorf("%q is rejected: %v", token, err)
		}
	}
}

// A token is one line of at least 16 characters, and where that is wanted no weak one.
func TestAUsableTokenCanBeSent(t *testing.T) {
	for token, usable := range map[string][2]bool{ // as it is, and strictly
		"0123456789abcde": {false, false}, "0123456789abcdef": {true, true}, "aaaaaaaaaaaaaaaa": {true, false}, "abcdefghabcdefgh": {true, true},
		" 0123456789abcdef": {false, false}, "0123456789abcdef ": {false, false}, "0123456789\nabcdef": {false, false}, "0123456789\rabcdef": {false, false},
		"please-change-this-token": {true, false}, "01234567 89abcdef": {true, true},
	} {
		for i, strict := range []bool{false, true} {
			if err := admintoken.Usable(token, strict); (err == nil) != usable[i] {
				t.Errorf("%q, strict %v: %v", token, strict, err)
			}
		}
	}
}

func TestANameHasPlainCharacters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for name, ok := range map[string]bool{
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "az09._-": true, "z": true, "0": true, "9": true,
		"A": false, "a/b": false, "a:b": false, "a{": false, "a`": false, "é": false,
	} {
		write(t, path, name+" "+alices)
		if _, err := admintoken.Open(admintoken.Options{TokensFile: path}); (err == nil) != ok {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}

// A file may begin and end its line as any system does.
func TestTheTokenOfAFileIsItsLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for content, ok := range map[string]bool{alices: true, alices + "\n": true, "\ufeff" + alices + "\r\n": true, alices + "\n\n": true, alices + " \n": false, alices + "\n" + bobs + "\n": false} {
		write(t, path, content)
		files, err := admintoken.Open(admintoken.Options{TokenFile: path})
		if (err == nil) != ok {
			t.Errorf("%q: %v", content, err)
		}
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
			continue
		}
		if name, known := files.Find(alices); !known || name != admintoken.Owner {
			t.Errorf("%q is the token of %q, %v", content, name, known)
		}
	}
}

func TestATokensFileNamesItsTokens(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "tokens"), "\ufeff# who\n\nalice "+alices+"\n\tbob\t"+bobs+"  \r\n")
	files := must.Get(admintoken.Open(admintoken.Options{Token: "0123456789abcdef-owner", TokensFile: path}))(t)
	for token, want := range map[string]string{
		alices: "alice", bobs: "bob", "0123456789abcdef-owner": admintoken.Owner,
		"": "", alices + "x": "", alices[1:]: "", "alice": "", "alice " + alices: "",
	} {
		if name, ok := files.Find(token); name != want || ok != (want != "") {
			t.Errorf("%q is the token of %q, %v; want %q", token, name, ok, want)
		}
	}
}

// Each mistake is named with its line, and no token is shown.
func TestAMistakeInATokensFileIsNamedByItsLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for content, want := range map[string]string{
		"":                                       path + ": has no token",
		"# no line\n":                            path + ": has no token",
		"\nalice\n":                              path + ":2: must be a name and a token",
		"alice " + alices + " " + bobs:           path + ":1: must be a name and a token",
		"Alice " + alices:                        path + ":1: the name must be",
		strings.Repeat("a", 65) + " " + alices:   path + ":1: the name must be",
		"alice " + alices + "\nbob " + alices:    path + ":2: alice and bob have the same token",
		"alice " + alices + "\nalice " + bobs:    path + ":2: the name alice is given twice",
		"owner " + alices:                        path + ":1: the name owner is given twice",
		"alice " + alices + "\nbob aaaaaaaaaaaa": path + ":2: the token must have",
		alices + " alice":                        path + ":1: the token must have", // the name is none
	} {
		write(t, path, content)
		_, err := admintoken.Open(admintoken.Options{Token: "0123456789abcdef-owner", TokensFile: path})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "0123") || strings.Contains(err.Error(), "aaaa") {
			t.Errorf("%q is answered with %v, want %q and no token", content, err, want)
		}
	}
}

func TestAnySourceOfTokensCounts(t *testing.T) {
	for o, want := range map[admintoken.Options]bool{
		{}: false, {Strict: true}: false, {Token: "t"}: true, {TokenFile: "f"}: true, {TokensFile: "f"}: true,
	} {
		should.Be(t, o.Any(), want, o)
	}
}

// Tokens change with their files, and a file that is broken changes nothing.
func TestTokensAreRotatedWithoutARestart(t *testing.T) {
	folder := t.TempDir()
	single, several := filepath.Join(folder, "token"), filepath.Join(folder, "tokens")
	write(t, single, "0123456789abcdef-first\n")
	write(t, several, "alice "+alices+"\n")
	synctest.Test(t, func(t *testing.T) { assertRotates(t, single, several) })
}

func assertRotates(t *testing.T, single, several string) {
	t.Helper()
	files := must.Get(admintoken.Open(admintoken.Options{TokenFile: single, TokensFile: several, Strict: true}))(t)
	log, seen := new(testlog.Lines), 0
	go files.Keep(t.Context(), slog.New(slog.NewTextHandler(log, nil)))
	for _, step := range []struct {
		name   string
		change func()
		known  []string
		log    string
	}{
		{"nothing", func() {}, []string{"0123456789abcdef-first", alices}, ""},
		{"a new token", func() { write(t, single, "0123456789abcdef-second\n") }, []string{"0123456789abcdef-second", alices}, "admin tokens reloaded"},
		{"another holder", func() { write(t, several, "bob "+bobs+"\n") }, []string{"0123456789abcdef-second", bobs}, "names=\"[bob owner]\""},
		{"half a line", func() { write(t, several, "bob "+bobs+"\nalice\n") }, []string{"0123456789abcdef-second", bobs}, several + ":2"},
		{"still half a line", func() {}, []string{"0123456789abcdef-second", bobs}, ""},
		{"a weak token", func() {
			write(t, several, "bob "+bobs+"\n")
			write(t, single, "aaaaaaaaaaaaaaaa\n")
		}, []string{"0123456789abcdef-second", bobs}, single},
		{"no file of tokens", func() {
			must.Do(t, os.Remove(several))
			write(t, single, "0123456789abcdef-third\n")
		}, []string{"0123456789abcdef-second", bobs}, "read the tokens"},
		{"no file", func() {
			write(t, several, "bob "+bobs+"\n")
			must.Do(t, os.Remove(single))
		}, []string{"0123456789abcdef-second", bobs}, "level=WARN"},
		{"all is well again", func() { write(t, single, "0123456789abcdef-third\n") }, []string{"0123456789abcdef-third", bobs}, "admin tokens reloaded"},
	} {
		step.change()
		time.Sleep(2 * time.Second) // they are looked at every second
		synctest.Wait()
		for _, token := range []string{"0123456789abcdef-first", "0123456789abcdef-second", "0123456789abcdef-third", alices, bobs, "aaaaaaaaaaaaaaaa"} {
			_, ok := files.Find(token)
			should.Be(t, ok, slices.Contains(step.known, token), step.name, token, "is known")
		}
		text := log.String()[seen:]
		if !strings.Contains(text, step.log) || step.log == "" && text != "" || strings.Contains(text, "0123") || strings.Contains(text, "aaaa") {
			t.Errorf("%s: the log is %q, want %q and no token", step.name, text, step.log)
		}
		seen += len(text)
	}
}
