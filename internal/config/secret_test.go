package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// secrets are the keys whose values are secrets: whatever has the type, also a key of tomorrow.
func secrets(t *testing.T) (keys []string) {
	t.Helper()
	for key := range new(config.Config).Secrets() {
		keys = append(keys, key)
	}
	if len(keys) < 8 {
		t.Fatalf("only %v are secrets", keys)
	}
	return keys
}

// needs are what else has to be set for a key to have an effect.
func needs(key string) []string {
	return map[string][]string{
		"database.password":       {"--database-driver=mysql", "--database-dsn=shop@tcp(db:3306)/shop"},
		"redis.sentinel_password": {"--redis-master=shop"},
		"buyer.secret":            {"--buyer-from=token"},
	}[key]
}

// Whatever is done with a secret, and whatever is wrong with it or beside it, it is never shown.
func TestNoSecretIsShown(t *testing.T) {
	const hidden = "h1dden"
	long := "shop:" + hidden + strings.Repeat("0123456789abcdef", 3)
	for _, key := range secrets(t) {
		env, flag := "STOCKD_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_")), "--"+config.FlagOf(key)
		var said strings.Builder
		try := func(path string, args ...string) {
			c, err := config.Load(path, flags(t, append(needs(key), args...)...))
			if err != nil {
				fmt.Fprintf(&said, "%v %+v %#v\n", err, err, err)
				return
			}
			if got := c.Secrets()[key].Reveal(); !strings.Contains(got, hidden) {
				t.Errorf("%s with %v is %q", key, args, got)
			}
			show(t, &said, c)
		}
		for _, value := range []string{long, hidden, "\xff" + hidden, hidden + "\n" + hidden} {
			file := write(t, "secret", value)
			try("", flag+"="+value)
			try("", flag+"-file="+file)
			try("", flag+"-file="+file, flag+"="+value)
			try("", flag+"="+value, "--log-level=wrong", "--lock-wait=20s") // a mistake beside it
			t.Setenv(env, value)
			try(write(t, "stockd.yaml", "databse:\n  dsn: x\n"))
			os.Unsetenv(env) //nolint:errcheck // it was set; the test restores it
		}
		try("", flag+"-file="+filepath.Join(t.TempDir(), "none"))
		try("", flag+"-file="+t.TempDir())
		section, name, _ := strings.Cut(key, ".")
		for _, value := range []string{
			hidden, "*" + hidden, "&" + hidden + " x", "!" + hidden + " x", "[" + hidden + "]", "{" + hidden + ": x}", "{" + hidden + "}", "{a: x, " + hidden + ": y}",
			"\"" + hidden, "'" + hidden, "@" + hidden, "%" + hidden, "`" + hidden, "| " + hidden, "> " + hidden, hidden + ": x", "- " + hidden, "? " + hidden, "\t" + hidden,
			hidden + "\n  " + name + ": " + hidden, hidden + "\n- x", "\"\\q" + hidden + "\"", "!!binary " + hidden, "!!int " + hidden, "\xff" + hidden,
		} {
			path := write(t, "stockd.yaml", section+":\n  "+name+": "+value+"\n")
			if c, err := config.Load(path, flags(t, needs(key)...)); err != nil {
				fmt.Fprintf(&said, "%v %+v %#v\n", err, err, err)
			} else {
				show(t, &said, c)
			}
		}
		if text := said.String(); strings.Contains(text, hidden) || strings.Contains(text, hidden[:len(hidden)-1]) {
			i := strings.Index(text, hidden[:len(hidden)-1])
			t.Errorf("%s is shown: …%s…", key, text[max(0, i-200):min(len(text), i+50)])
		}
	}
}

// show writes a configuration in every way that there is.
func show(t *testing.T, w *strings.Builder, c *config.Loaded) {
	t.Helper()
	must.Do(t, c.Print(w))
	encoded := must.Get(json.Marshal(c))(t) //nolint:musttag // whatever a reader makes of it
	fmt.Fprintf(w, "%s %v %v\n", encoded, c.Warnings(), c.Admin.HostNames())
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&log, nil), slog.NewTextHandler(&log, nil)} {
		slog.New(handler).Info("configuration", "all", c.Config, "pointer", c, "secrets", c.Secrets(), "admin", c.Admin, "token", c.Admin.Token)
	}
	w.Write(log.Bytes())
	for verb := range strings.FieldsSeq("%v %+v %#v %s %q %d %x %X %t") {
		fmt.Fprintf(w, verb+verb+verb, c.Config, c, c.Secrets())
	}
	func() {
		defer func() { fmt.Fprint(w, recover()) }()
		panic(fmt.Sprint(c.Config, c.Admin.Token))
	}()
}

// A DSN may hold a password, and addresses as other programs have them a login: the error names the key
// to use instead.
func TestNoPasswordInAnAddressIsShown(t *testing.T) {
	for _, c := range []struct{ arg, want string }{
		{"--redis-addresses=redis://:hidden@cache:6379", "redis.password"},
		{"--redis-addresses=shop@cache:6379", "redis.username"},
		{"--redlock-addresses=redis://shop:hidden,hidden@a:1", "redlock.password"},
		{"--zookeeper-addresses=shop:hidden@z:2181", "zookeeper.auth"},
		{"--etcd-endpoints=https://shop:hidden@a", "etcd.password"},
		{"--etcd-endpoints=https://shop:hidden%zz@a:1", "etcd.password"},
		{"--trace-endpoint=http://shop:hidden@a:4318", "without a user"},
		{"--database-dsn=shop:hidden@tcp(db:3306)/shop", "database.driver is sqlite (default)"},
		{"--database-driver=mysql --database-dsn=shop:hidden@nowhere", "user@tcp(host:port)/database"},
		{"--database-driver=mysql --database-dsn=shop:hidden@tcp(db:3306)/shop?tls=none", "user@tcp(host:port)/database"},
		{"--database-driver=mysql --database-dsn=shop:hidden@tcp(db:3306)/shop?tls=skip-verify", "database.tls"},
		{"--database-driver=mysql --database-dsn=shop:hidden@tcp(db:3306)/shop --database-max-open=0", "database.max_open"},
	} {
		_, err := config.Load("", flags(t, strings.Fields(c.arg)...))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s is answered with %v, want %s in it and no password", c.arg, err, c.want)
		}
	}
	for _, flag := range []string{
		"redis-addresses", "redlock-addresses", "zookeeper-addresses", "etcd-endpoints", "trace-endpoint", "http-trusted-proxies", "admin-hosts", "http-listen", "admin-listen",
		"database-driver", "database-dsn", "prefix", "buyer-from", "deduct-choose", "deduct-timeout", "database-max-open", "log-level", "etcd-tls-server-name",
	} {
		for _, form := range []string{
			"redis://:hidden@cache:6379", "mysql://shop:hidden@db:3306/shop", "mysql://shop:hidden@tcp(db:3306)/shop", "shop:hidden@db/shop", "shop:hidden@", "https://shop:hidden%zz@a:1",
			"jdbc:mysql://db/shop?user=shop&password=hidden", "cache:6379?password=hidden", "http://cache:6379/?password=hidden", "cache:6380,password=hidden,ssl=True",
			"host=db password=hidden", "Server=db;Uid=shop;Pwd=hidden", "tcp(db:3306)/shop?user=shop&password=hidden", "digest:shop:hidden", "a:1,https://shop:hidden", "a:1 hidden", "a:1\thidden",
		} {
			var said strings.Builder
			c, err := config.Load("", flags(t, "--database-driver=mysql", "--database-dsn=shop@tcp(db:3306)/shop", "--"+flag+"="+form))
			if err == nil {
				err = c.Print(&said)
			}
			if text := fmt.Sprint(&said, err); strings.Contains(text, "dden") {
				t.Errorf("--%s=%s is answered with\n%s", flag, form, text)
			}
			if flag != "database-dsn" {
				continue
			}
			if _, err := config.Load("", flags(t, "--database-dsn="+form)); err == nil && strings.ContainsAny(form, "@=/") || err != nil && strings.Contains(err.Error(), "dden") {
				t.Errorf("a file may have the name %s, or it is answered with %v", form, err)
			}
		}
	}
	var printed bytes.Buffer
	c := load(t, "", "--database-driver=mysql", "--database-dsn=shop:hidden@tcp(db:3306)/shop")
	if err := c.Print(&printed); err != nil || strings.Contains(printed.String(), "hidden") || !strings.Contains(printed.String(), "shop:[not shown]@tcp(db:3306)/shop") {
		t.Errorf("it is printed (%v) as\n%s", err, &printed)
	}
}

func TestTheHelpShowsTheDocumentedKeysAlone(t *testing.T) {
	set := flags(t)
	all, shown := 0, 0
	set.VisitAll(func(f *pflag.Flag) {
		all++
		if !f.Hidden {
			shown++
		}
	})
	if usage := set.FlagUsages(); shown > 98 || all <= shown || strings.Count(usage, "--database-password-file") != 1 || strings.Contains(usage, "--redis-tls-ca-file") {
		t.Errorf("%d of %d flags are described:\n%s", shown, all, usage)
	}
}

// Every secret has a key for a file, which may begin with a byte order mark and end its line; nothing else is taken off.
func TestASecretCanComeFromAFile(t *testing.T) {
	for _, key := range secrets(t) {
		text := " shop:twenty-four characters and more "
		if key == "admin.token" { // a header cannot carry the spaces
			text = strings.TrimSpace(text)
		}
		flag, file := "--"+config.FlagOf(key), write(t, "secret", "\ufeff"+text+"\r\n") // as an editor of Windows writes it
		c := load(t, "", append(needs(key), flag+"-file="+file)...)
		// A Secret of Kubernetes often ends its line.
		should.Be(t, load(t, "", append(needs(key), flag+"="+text+"\n")...).Secrets()[key].Reveal(), text, flag)
		for other, secret := range c.Secrets() {
			should.Be(t, secret.Reveal(), map[bool]string{true: text}[other == key], "with …-file the secret …", flag, other)
		}
		should.Be(t, c.Source(key), file, key)
		for _, wrong := range []struct {
			args []string
			says string
		}{
			{[]string{flag + "-file=" + file, flag + "=" + text}, flag + ": " + key + " and " + key + "_file are both set (" + flag + "-file)"},
			{[]string{flag + "-file=" + write(t, "empty", "\n")}, key + "_file names an empty file"},
			{[]string{flag + "-file=/nonexistent"}, flag + "-file: " + key + "_file cannot be read: open /nonexistent"},
		} {
			if _, err := config.Load("", flags(t, append(needs(key), wrong.args...)...)); err == nil || !strings.Contains(err.Error(), wrong.says) {
				t.Errorf("%v: %v, want %q", wrong.args, err, wrong.says)
			}
		}
	}
	if _, err := config.Load("", flags(t, "--buyer-from=token", "--buyer-secret-file="+write(t, "short", strings.Repeat("x", 31)))); err == nil || !strings.Contains(err.Error(), "at least 32 bytes, not 31") {
		t.Errorf("a short secret of a file is taken: %v", err)
	}
}
