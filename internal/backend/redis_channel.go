package backend

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/pause"
)

// RedisChannel hears one channel of Redis, and asks for it again with each connection. What is published
// meanwhile is lost: what waits for a message also looks by itself, in bounded time.
type RedisChannel struct {
	client redis.UniversalClient
	name   string
	hear   func(*redis.Message)
	log    *slog.Logger

	ctx context.Context //nolint:containedctx // it ends the subscription, which belongs to no request
	end context.CancelFunc

	mu     sync.Mutex
	sub    *redis.PubSub
	closed bool

	warned   bool        // the log has it that notifications are missing
	rejected atomic.Bool // Redis has answered that it does not send them
}

// NewRedisChannel hears nothing before Listen. hear gets each message, and nil where some may have been lost. Without
// a log, slog's default has what is missing.
func NewRedisChannel(client redis.UniversalClient, name string, log *slog.Logger, hear func(*redis.Message)) *RedisChannel {
	if log == nil {
		log = slog.Default()
	}
	c := &RedisChannel{client: client, name: name, hear: hear, log: log}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

const (
	// redisPing is how often the connection is tried, or asked again for what was rejected.
	redisPing = 3 * time.Second
	// redisAgain is the pause after a failure.
	redisAgain = 100 * time.Millisecond
)

// Listen begins to hear the channel, once. It does not wait for the server.
func (c *RedisChannel) Listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sub != nil || c.closed {
		return
	}
	c.sub = c.client.Subscribe(c.ctx) // to nothing yet
	go c.keep(c.sub)
	go c.listen(c.sub)
}

func (c *RedisChannel) keep(sub *redis.PubSub) {
	for pause.For(c.ctx, redisPing) == nil {
		if c.rejected.Load() {
			_ = sub.Subscribe(c.ctx, c.name) // its answer is received
		} else {
			_ = sub.Ping(c.ctx) // a connection that is broken is replaced
		}
	}
}

func (c *RedisChannel) listen(sub *redis.PubSub) {
	_ = sub.Subscribe(c.ctx, c.name) // where it fails, the next connection asks
	for c.ctx.Err() == nil {
		event, err := sub.Receive(c.ctx)
		switch e := event.(type) {
		case *redis.Message:
			c.hear(e)
		case *redis.Subscription:
			c.rejected.Store(false)
			c.hear(nil)
			err = c.client.Publish(c.ctx, c.name, "").Err()
			c.warned = c.warned && err != nil
		}
		if err != nil {
			c.warn(err)
			_ = pause.For(c.ctx, redisAgain)
		}
	}
}

// warn tells once that notifications are missing, and what it takes to have them.
func (c *RedisChannel) warn(err error) {
	if _, answered := errors.AsType[redis.Error](err); answered {
		c.rejected.Store(true)
	}
	if c.warned || c.ctx.Err() != nil {
		return
	}
	c.warned = true
	prefix, _, _ := strings.Cut(c.name, ":")
	c.log.WarnContext(c.ctx, "no notifications from redis", "channel", c.name, "error", err,
		"effect", "what waits for one looks about once a second", "rights_needed", RedisRights(prefix))
}

// Close ends the subscription. It does not wait for a connection that is being made: that has a limit of its own, and
// is closed then.
func (c *RedisChannel) Close() error {
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.sub == nil {
		c.closed = true
		return nil
	}
	c.closed = true
	hungUp := make(chan error, 1)
	go func() { hungUp <- HangUp(c.sub) }()
	select {
	case err := <-hungUp:
		return err
	case <-time.After(AnswerWithin):
		return nil
	}
}
