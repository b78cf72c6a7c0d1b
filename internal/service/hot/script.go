package hot

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lock"
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

// partition is a number of goods whose keys are all in one slot of a cluster,
// with one stream for their orders.
type partition struct {
	base   string // begins every key
	script *redis.Script

	// renewing is held by the one of this replica who begins a new run.
	renewing sync.Mutex
}

func newPartition(prefix string, n int) *partition {
	base := prefix + ":{stock-" + strconv.Itoa(n) + "}:"
	// The name in the script keeps partitions apart that share a server: each
	// recognizes for itself that the server has lost its memory.
	return &partition{base: base, script: redis.NewScript("-- " + base + "\n" + source())}
}

// The keys of a partition.
func (p *partition) orders() string { return p.base + "orders" }
func (p *partition) dead() string   { return p.base + "dead" }
func (p *partition) run() string    { return p.base + "run" }

// The keys of a goods, and of a request.
func (p *partition) counter(goodsID int64) string {
	return p.base + "goods:" + strconv.FormatInt(goodsID, 10)
}

func (p *partition) users(goodsID int64) string {
	return p.base + "users:" + strconv.FormatInt(goodsID, 10)
}

// beside is where the users of a goods are put together for an epoch.
func (p *partition) beside(goodsID, epoch int64) string {
	return p.users(goodsID) + ":" + strconv.FormatInt(epoch, 10)
}

func (p *partition) filling(goodsID int64) string {
	return p.base + "filling:" + strconv.FormatInt(goodsID, 10)
}

func (p *partition) request(id string) string { return p.base + "request:" + id }

// absent is what the script answers where a counter has first to be installed.
const absent = "ABSENT"

// call runs an operation of the script by its hash. A server that does not know
// the script is a new one, or one that has lost its memory: no counter on it is
// believed any more.
func (p *partition) call(ctx context.Context, client redis.UniversalClient, operation string, keys []string, args ...any) (any, error) {
	args = append([]any{operation}, args...)
	answer, err := p.script.EvalSha(ctx, client, keys, args...).Result()
	for try := 0; try < renewals && redis.HasErrorPrefix(err, "NOSCRIPT"); try++ {
		if err := p.renew(ctx, client); err != nil {
			return nil, err
		}
		answer, err = p.script.EvalSha(ctx, client, keys, args...).Result()
	}
	return answer, err
}

// renewals bounds how often one call may find that the server forgets.
const renewals = 3

// renew makes the script known, and begins a new run in the same step: there is no
// moment at which the script is known and an old counter is believed.
func (p *partition) renew(ctx context.Context, client redis.UniversalClient) error {
	p.renewing.Lock()
	defer p.renewing.Unlock()
	// Somebody else of this replica may have done it while we waited.
	_, err := p.script.EvalSha(ctx, client, []string{p.base, p.run()}, "look").Result()
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return ignoreNil(err)
	}
	return p.script.Eval(ctx, client, []string{p.run()}, "renew").Err()
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// isAnswer tells an error that the server sent from one of the way to it.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// isDial tells that no connection was made.
func isDial(err error) bool { return errors.Is(err, lock.ErrNotConnected) }
