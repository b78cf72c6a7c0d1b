// Package redis has the locks in Redis: on one server, and on five masters.
package redis

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// server is how Redis is called in errors.
const server = string(backend.Redis)

//go:embed lua/*.lua
var luaFiles embed.FS

// script makes one script of files; what comes first is what the others call.
// It is sent once and called by its hash from then on, also after the server
// has forgotten it.
func script(names ...string) *redis.Script {
	var source strings.Builder
	for _, name := range names {
		content, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // it is part of the program
		}
		source.Write(content)
	}
	return redis.NewScript(source.String())
}

// base is what the locks on Redis share.
type base struct {
	deps  lock.Deps // not embedded: their Close would be the lock's, and end the clients that all share
	kind  string    // the lock's name: locks of different kinds do not meet
	polls *lock.Polling
	raise *redis.Script
}

func newBase(kind string, d lock.Deps) base {
	return base{deps: d, kind: kind, polls: lock.NewPolling(d.Retry, d.TriedInVain), raise: script("token", "raise")}
}

// key is what Redis keeps of a name. The braces put all keys of one name into
// one slot of a cluster, where one script can reach them.
func (r base) key(name string) string {
	return r.deps.KeyPrefix() + ":{" + url.PathEscape(name) + "}:" + r.kind
}

func (r base) counter(name string) string { return r.key(name) + ":token" }

// tokenLife is how long a counter outlives its last use, far longer than any holder; see
// lua/token.lua.
const tokenLife = 30 * 24 * time.Hour

// outcome is what an acquiring script answers.
type outcome struct {
	status int64
	token  uint64
	asked  time.Time // when it was asked for: the TTL runs from then, at the latest
}

// The status of a grant; see lua/token.lua.
const (
	taken   = 1
	noFloor = -1
)

func (o outcome) won() bool { return o.status == taken }

// take runs an acquiring script, whose third argument is the floor of the
// tokens. It is asked for only where Redis has no counter of the name.
func (r base) take(ctx context.Context, s *redis.Script, name string, keys []string, owner string, more ...any) (outcome, error) {
	ctx, answered := backend.Uncut(ctx)
	defer answered()
	floor := ""
	for {
		asked := time.Now()
		args := append([]any{owner, r.deps.TTL.Milliseconds(), floor}, more...)
		g, err := readGrant(s.Run(ctx, r.deps.Redis, keys, args...).Slice())
		if err != nil || g.status != noFloor {
			g.asked = asked
			return g, err
		}
		lowest, err := r.askFloor(ctx, name)
		if err != nil {
			return outcome{}, err
		}
		floor = strconv.FormatUint(lowest, 10)
	}
}

// readGrant reads what an acquiring script answers: a status, and the token as
// a string, because it may be larger than what Lua passes on as a number.
func readGrant(answer []any, failed error) (outcome, error) {
	if failed != nil {
		return outcome{}, failed
	}
	if len(answer) == 2 {
		status, isNumber := answer[0].(int64)
		digits, isText := answer[1].(string)
		if token, err := strconv.ParseUint(digits, 10, 64); isNumber && isText && err == nil {
			return outcome{status: status, token: token}, nil
		}
	}
	return outcome{}, fmt.Errorf("script answered %v, not a status and a token", answer)
}

func (r base) askFloor(ctx context.Context, name string) (uint64, error) {
	if r.deps.Floor == nil {
		return 0, nil
	}
	floor, err := r.deps.Floor(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("ask for the floor of tokens: %w", err)
	}
	return floor, nil
}

// Reseed lifts the tokens of a name above those that its store has seen. It is
// called when the store rejected a token: Redis has lost some that it gave.
func (r base) Reseed(ctx context.Context, name string) error {
	floor, err := r.askFloor(ctx, name)
	if err == nil {
		err = r.raise.Run(ctx, r.deps.Redis, []string{r.counter(name)}, floor).Err()
	}
	if err != nil {
		return fmt.Errorf("reseed tokens of %s: %w", name, err)
	}
	return nil
}

// still runs a script that prolongs what is ours, or gives it back, and tells
// whether it was.
func still(ctx context.Context, c redis.Scripter, s *redis.Script, keys []string, args ...any) (bool, error) {
	n, err := s.Run(ctx, c, keys, args...).Int()
	return n == 1, err
}

// giveBack runs a releasing script; the name may be lost already.
func giveBack(ctx context.Context, c redis.Scripter, s *redis.Script, keys []string, args ...any) error {
	ours, err := still(ctx, c, s, keys, args...)
	return lock.Released(server, ours, err)
}

// abandon takes back what an Acquire may have left that failed, in the background: its caller need not wait for an
// unresponsive server. Where there was no connection, it has left nothing.
func abandon(ctx context.Context, failed error, takeBack func(context.Context) error) {
	if !errors.Is(failed, backend.ErrNotConnected) {
		go lock.TakeBack(ctx, takeBack)
	}
}

// isNil tells an empty answer of Redis from a failure.
func isNil(err error) bool { return errors.Is(err, redis.Nil) }
