package replica

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/config"
)

// verifiedBuyers are where buyers are verified; nil: the request says.
func verifiedBuyers(ctx context.Context, c config.Config, log *slog.Logger) (source buyer.Source, err error) {
	key := "buyer.secret"
	switch {
	case c.Buyer.From == config.BuyerFromHeader:
		key = "buyer.header"
		source, err = buyer.NewHeader(c.Buyer.Header, c.HTTP.TrustedProxies)
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
