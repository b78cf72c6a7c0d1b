package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
)

// listen serves both APIs until ctx ends. It opens both listeners before it serves on
// one: a replica that fails at its start would cut clients off.
func listen(ctx context.Context, c config.Config, log *slog.Logger, o handler.Options, listening func(public, admin string), rejected func(listener, by string)) error {
	if listening == nil {
		listening = func(string, string) {}
	}
	public, err := openListener(ctx, "http.listen", c.HTTP.Listen)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if !c.Admin.Tokens().Any() {
		log.WarnContext(ctx, "admin API off: no items can be created", "missing", "admin.token, admin.token_file or admin.tokens_file")
		serveOn(ctx, group, c, log, "public", public, handler.Public(o), rejected)
		listening("http://"+public.Addr().String(), "")
		return group.Wait()
	}
	admin, tokens, err := openAdmin(ctx, c.Admin)
	if err != nil {
		return errors.Join(err, public.Close())
	}
	defer inBackground(context.WithoutCancel(ctx), func(ctx context.Context) { tokens.Keep(ctx, log) })()
	serveOn(ctx, group, c, log, "public", public, handler.Public(o), rejected)
	serveOn(ctx, group, c, log, "admin", admin, handler.Admin(o, tokens), rejected)
	scheme := "http://"
	if c.Admin.TLS.CertFile != "" {
		scheme = "https://"
	}
	listening("http://"+public.Addr().String(), scheme+admin.Addr().String())
	return group.Wait()
}

func openListener(ctx context.Context, key, address string) (net.Listener, error) {
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // no client of a replica has two paths, and such a socket takes no filter
	listener, err := plain.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return newLastCall(listener), nil
}

// serveOn serves one listener in the group. When ctx ends it is drained.
func serveOn(ctx context.Context, group *errgroup.Group, c config.Config, log *slog.Logger, name string, listener net.Listener, h http.Handler,
	rejected func(listener, by string),
) {
	requests, cancelRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	server := newServer(c, log, h)
	server.BaseContext = func(net.Listener) context.Context { return requests }
	stopped := newDrainer(c.HTTP, server, listener, cancelRequests)
	limits, answered := withinFiles(c)
	capped := newCappedListener(listener, limits, answered, stopped.open.Load, func(by string) { rejected(name, by) })
	capped.noFile = warnOfFiles(ctx, log, name)
	stopped.listener = capped
	log.InfoContext(ctx, "listening", "for", name, "address", listener.Addr().String(), "replica", c.Replica)
	group.Go(func() error {
		if err := stopped.serve(); err != nil {
			return fmt.Errorf("serve %s: %w", name, err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		if err := stopped.drain(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("drain %s: %w", name, err)
		}
		return nil
	})
}

// warnOfFiles logs once in a while that connections wait.
func warnOfFiles(ctx context.Context, log *slog.Logger, name string) func(error) {
	sometimes := rate.Sometimes{Interval: 10 * time.Second}
	return func(err error) {
		sometimes.Do(func() { log.WarnContext(ctx, "connections wait: no more files may be open", "for", name, "error", err) })
	}
}

// answerTime is how long a client may take to receive an answer: even a slow client that goes on reading
// has its few kilobytes by then, and one that stopped reading is not kept.
const answerTime = 5 * time.Second

// newServer bounds what a client may take of a listener.
func newServer(c config.Config, log *slog.Logger, h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: c.HTTP.ReadTimeout,
		ReadTimeout:       c.HTTP.ReadTimeout,
		// It is counted from the end of the header: until then nothing is written.
		WriteTimeout:   c.HTTP.ReadTimeout + c.Deduct.Timeout + answerTime,
		IdleTimeout:    c.HTTP.IdleTimeout,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// OPTIONS * would be answered without a token and unseen.
		DisableGeneralOptionsHandler: true,
	}
}
