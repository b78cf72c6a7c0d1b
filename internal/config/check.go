package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// minToken is the least length of a token that is not to be guessed.
const minToken = 16

// check looks at every value and at those that must fit together.
func (l *Loaded) check() error {
	return errors.Join(
		l.address("http.listen", l.HTTP.Listen),
		between(l, "http.max_body", l.HTTP.MaxBody, 1<<10, 1<<20),
		atLeast(l, "http.read_timeout", l.HTTP.ReadTimeout, 100*time.Millisecond),
		atLeast(l, "http.idle_timeout", l.HTTP.IdleTimeout, time.Second),
		atLeast(l, "http.drain", l.HTTP.Drain, 0),
		l.address("admin.listen", l.Admin.Listen),
		l.token(),
		l.oneOf("database.driver", l.Database.Driver, "sqlite", "mysql"),
		l.dsn(),
		between(l, "database.max_open", l.Database.MaxOpen, 1, 10_000),
		atLeast(l, "database.lock_wait", l.Database.LockWait, time.Second),
		atLeast(l, "database.connect_timeout", l.Database.ConnectTimeout, 10*time.Millisecond),
		atLeast(l, "lock.wait", l.Lock.Wait, time.Millisecond),
		l.reachable("lock.wait", l.Lock.Wait),
		l.reachable("database.lock_wait", l.Database.LockWait),
		between(l, "optimistic.tries", l.Optimistic.Tries, 1, 10_000),
		atLeast(l, "optimistic.step", l.Optimistic.Step, 0),
		atLeast(l, "optimistic.max", l.Optimistic.Max, l.Optimistic.Step),
		l.oneOf("log.level", l.Log.Level, "debug", "info", "warn", "error"),
		l.oneOf("log.format", l.Log.Format, "text", "json"),
	)
}

func between(l *Loaded, key string, n, least, most int) error {
	if n < least || n > most {
		return l.wrong(key, "must be %d to %d, not %d", least, most, n)
	}
	return nil
}

func atLeast(l *Loaded, key string, d, least time.Duration) error {
	if d < least {
		return l.wrong(key, "must be at least %s, not %s", least, d)
	}
	return nil
}

// reachable refuses a wait limit that the end of the request always cuts off:
// "busy" could then never be answered.
func (l *Loaded) reachable(key string, wait time.Duration) error {
	if wait >= l.Deduct.Timeout {
		return l.wrong(key, "is %s and can never be reached: deduct.timeout ends a purchase after %s (%s)",
			wait, l.Deduct.Timeout, l.Source("deduct.timeout"))
	}
	return nil
}

func (l *Loaded) oneOf(key, text string, allowed ...string) error {
	if !slices.Contains(allowed, text) {
		return l.wrong(key, "must be %s, not %q", strings.Join(allowed, " or "), text)
	}
	return nil
}

func (l *Loaded) address(key, text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		var n int
		if n, err = strconv.Atoi(port); err == nil && (n < 0 || n > 65535) {
			err = errors.New("port out of range")
		}
	}
	if err != nil {
		return l.wrong(key, "must be an address such as 127.0.0.1:8080, not %q", text)
	}
	return nil
}

func (l *Loaded) token() error {
	if n := len(l.Admin.Token); n > 0 && n < minToken {
		return l.wrong("admin.token", "must have at least %d characters, not %d", minToken, n)
	}
	return nil
}

func (l *Loaded) dsn() error {
	if l.Database.DSN == "" {
		return l.wrong("database.dsn", "must not be empty")
	}
	if l.Database.Driver != "mysql" {
		return nil
	}
	if _, err := mysql.ParseDSN(l.Database.DSN); err != nil {
		// The driver's error may quote the DSN, and that may hold a password.
		return l.wrong("database.dsn", "must look like user@tcp(host:port)/database")
	}
	return nil
}

// maskDSN hides the password of a MySQL DSN.
func maskDSN(driver, dsn string) string {
	if driver != "mysql" {
		return dsn
	}
	c, err := mysql.ParseDSN(dsn)
	if err != nil || c.Passwd == "" {
		return dsn
	}
	c.Passwd = shown
	return fmt.Sprint(c.FormatDSN())
}
