package replica

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/config"
)

// openAdmin opens the listener of the admin API and the tokens that it asks for.
func openAdmin(ctx context.Context, c config.Admin) (net.Listener, *admintoken.Files, error) {
	tokens, err := admintoken.Open(c.Tokens())
	if err != nil {
		return nil, nil, fmt.Errorf("open the admin tokens: %w", err)
	}
	encryption, err := c.TLS.ServerConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("admin.tls.%w", err)
	}
	listener, err := openListener(ctx, "admin.listen", c.Listen)
	if err != nil {
		return nil, nil, err
	}
	if encryption != nil {
		listener = tls.NewListener(listener, encryption)
	}
	return listener, tokens, nil
}

// warn logs what of the configuration is a risk, and what buyers may not do.
func warn(ctx context.Context, c config.Config, log *slog.Logger) {
	for _, w := range c.Warnings() {
		log.WarnContext(ctx, "insecure configuration", "key", w.Key, "problem", w.Problem)
	}
	if limit, needed, ok := openFiles(c); ok && limit < needed {
		allowed, _ := withinFiles(c)
		log.WarnContext(ctx, "too few open files allowed: raise the limit (ulimit -n, LimitNOFILE, nofile) or lower http.max_connections",
			"limit", limit, "needed", needed, "http.max_connections", c.HTTP.MaxConnections, "connections_allowed", allowed.MaxConnections)
	}
	if !c.MayChoose() {
		log.InfoContext(ctx, "requests may not choose a strategy", "deduct.choose", c.Deduct.Choose, "http.listen", c.HTTP.Listen)
	}
}

// verifiedBuyers are where buyers are verified; nil: the request says.
func verifiedBuyers(ctx context.Context, c config.Config, log *slog.Logger) (source buyer.Source, err error) {
	key := "buyer.secret"
	switch {
	case c.Buyer.From == config.BuyerFromHeader:
		key = "buyer.header"
		source = buyer.NewHeader(c.Buyer.Header, c.HTTP.Proxies())
	case c.Buyer.From != config.BuyerFromToken:
		return nil, nil //nolint:nilnil // nil is a source: the request
	case c.Buyer.JWKSFile != "":
		key = "buyer.jwks_file " + c.Buyer.JWKSFile
		source, err = buyer.NewKeys(ctx, c.Buyer.JWKSFile, c.Buyer.Audience, log)
	default:
		source, err = buyer.NewSecret([]byte(c.Buyer.Secret.Reveal()), c.Buyer.Audience)
	}
	if err != nil {
		return nil, UsageError{fmt.Errorf("%s: %w", key, err)}
	}
	return source, nil
}
