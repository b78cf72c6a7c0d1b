package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/testlog"
)

// A release that fails is repeated until it is answered, and no longer than the TTL; the log has the one that never was.
func TestAReleaseIsRepeatedUntilItIsAnswered(t *testing.T) {
	failed, fails := errors.New("connection reset"), 1<<20
	for name, c := range map[string]struct {
		fails int   // so many times
		ends  error // and then with this
		tried int
		logs  string
	}{
		"answered at once":                {0, nil, 1, ""},
		"another's at once":               {0, lock.ErrLost, 1, ""},
		"answered at the third":           {2, nil, 3, ""},
		"lost meanwhile":                  {2, lock.ErrLost, 3, ""},
		"not answered within its TTL":     {fails, nil, 0, "given up"},
		"not answered before the closing": {fails, nil, 0, "given up"},
	} {
		synctest.Test(t, func(t *testing.T) {
			const ttl = 30 * time.Second
			var lines testlog.Lines
			d := lock.Deps{
				Clients: new(backend.Clients), TTL: ttl, Releases: lock.NewReleases(), Log: slog.New(slog.NewTextHandler(&lines, nil)),
			}
			tried, last, start := 0, time.Now(), time.Now()
			err := d.Repeated(func(ctx context.Context) error {
				tried, last = tried+1, time.Now()
				if _, limited := ctx.Deadline(); !limited && tried > 1 {
					t.Errorf("%s: a repetition has no limit", name)
				}
				if tried <= c.fails {
					return failed
				}
				return c.ends
			})(t.Context())
			should.Fail(t, err, map[bool]error{true: failed, false: c.ends}[c.fails > 0], name, "the release is answered with")
			if !strings.Contains(name, "closing") {
				time.Sleep(2 * ttl)
			}
			must.Do(t, d.Close())
			if c.tried > 0 && tried != c.tried || c.tried == 0 && (tried > 50 || last.Sub(start) > ttl) {
				t.Errorf("%s: tried %d times in %s, want %d", name, tried, last.Sub(start), c.tried)
			}
			if said := lines.String(); (said != "") != (c.logs != "") || !strings.Contains(said, c.logs) {
				t.Errorf("%s: the log is %q, want %q", name, said, c.logs)
			}
		})
	}
}

// However many releases fail, a bounded number is repeated; the log has the others. A server that hangs holds up the end
// of a replica for a moment only.
func TestRepeatedReleasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines testlog.Lines
		d := lock.Deps{
			Clients: new(backend.Clients), TTL: time.Minute, Releases: lock.NewReleases(), Log: slog.New(slog.NewTextHandler(&lines, nil)),
		}
		for range 1003 {
			tries := new(int)
			_ = d.Repeated(func(context.Context) error {
				if *tries++; *tries > 1 {
					time.Sleep(time.Hour) // it does not look at its context
				}
				return errors.New("no answer")
			})(t.Context())
		}
		synctest.Wait()
		should.Be(t, strings.Count(lines.String(), "not repeated"), 3, "of 1003 are not repeated")
		start := time.Now()
		if err := d.Close(); err != nil || time.Since(start) > time.Second {
			t.Errorf("closed after %s: %v", time.Since(start), err)
		}
		_ = d.Repeated(func(context.Context) error { return errors.New("no answer") })(t.Context())
		should.Be(t, strings.Count(lines.String(), "not repeated"), 4, "after the end a release is repeated")
		time.Sleep(2 * time.Hour)
	})
}
