package redisstock

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// source is the one script; its parts are in the order of their names.
func source() string {
	var text strings.Builder
	names, err := fs.Glob(luaFiles, "lua/*.lua")
	if err != nil {
		panic(err) // the pattern is part of the program
	}
	for _, name := range names {
		content, err := luaFiles.ReadFile(name)
		if err != nil {
			panic(err) // it is part of the program
		}
		text.Write(content)
	}
	return text.String()
}

// partition is a number of items whose keys are all in one slot of a cluster,
// with one stream for their orders.
type partition struct {
	base string // begins every key
}

// The keys of a partition.
func (p *partition) orders() string { return p.base + "orders" }
func (p *partition) dead() string   { return p.base + "dead" }

// The keys of an item, and of a request.
func (p *partition) counter(goodsID int64) string { return p.item("goods:", goodsID) }
func (p *partition) users(goodsID int64) string   { return p.item("users:", goodsID) }

// staged is where the users of an item are gathered for the next epoch.
func (p *partition) staged(goodsID int64) string { return p.item("staged:", goodsID) }

// marker names the owner of the rebuild of an item's counter.
func (p *partition) marker(goodsID int64) string { return p.item("filling:", goodsID) }

func (p *partition) request(id string) string { return p.base + "request:" + id }

// buried tells for a while that an order was dead-lettered.
func (p *partition) buried(number string) string { return p.base + "buried:" + number }

func (p *partition) item(kind string, goodsID int64) string {
	return p.base + kind + strconv.FormatInt(goodsID, 10)
}

// absent is what the script answers where a counter has first to be rebuilt.
const absent = "ABSENT"

// call runs an operation of the script.
func (s *Stock) call(ctx context.Context, operation string, keys []string, args ...any) (any, error) {
	return s.script.Run(ctx, s.redis, keys, append([]any{operation}, args...)...).Result()
}

const (
	// answerWithin bounds one answer of Redis to a background job, also while the
	// replica stops: the client does not notice that a context was cancelled.
	answerWithin = time.Second
	// stepWithin bounds one step in the database.
	stepWithin = 5 * time.Second
)

// ask is call for background jobs.
func (s *Stock) ask(ctx context.Context, operation string, keys []string, args ...any) (any, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return s.call(ctx, operation, keys, args...)
}

// isAnswer tells an error that the server sent from one of the way to it.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
