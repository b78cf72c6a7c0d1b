package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/reload"
)

// longestToken bounds --ttl.
const longestToken = 30 * 24 * time.Hour

func buyerTokenCommand() *cobra.Command {
	var (
		b       buyer.Buyer
		ttl     time.Duration
		keyFile string
	)
	cmd := &cobra.Command{
		Use:   "buyer-token",
		Short: "Sign a token of a buyer, to try a shop whose own server does not sign yet",
		Long: "Print a token that replicas with the same configuration accept for a buyer: signed by the private key of\n" +
			"--key-file where buyer.jwks_file is set, by buyer.secret where that is, and for buyer.audience. A client that\n" +
			"has the token buys as this buyer until it expires: no replica can take it back.",
		Example: "  stockd buyer-token --buyer 7 --ttl 1h --config configs/production.yaml\n" +
			"  stockd buyer-token --buyer 7 --buyer-from token --buyer-jwks-file keys.json > buyer.jwt",
	}
	cmd = cli.Located(cmd, func(_ context.Context, c *config.Loaded) error {
		id, err := buyer.Canonical(b.ID)
		switch {
		case err != nil:
			return cli.UsageError{Err: fmt.Errorf("--buyer %w", err)}
		case ttl < time.Second || ttl > longestToken:
			return cli.UsageError{Err: fmt.Errorf("--ttl must be 1s to %v, not %v", longestToken, ttl)}
		case b.GoodsID < 0:
			return cli.UsageError{Err: fmt.Errorf("--goods must be at least 1, or 0 for any item, not %d", b.GoodsID)}
		}
		key, err := signingKey(c, keyFile)
		if err != nil {
			return cli.UsageError{Err: err}
		}
		token, err := key.Sign(buyer.Buyer{ID: id, GoodsID: b.GoodsID}, c.Buyer.Audience, ttl)
		if err != nil {
			return err
		}
		return cli.Print(cmd, "%s", token)
	})
	cmd.Flags().StringVar(&b.ID, "buyer", "", "buyer that the token is of: its sub")
	cmd.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token is valid, up to 30 days")
	cmd.Flags().Int64Var(&b.GoodsID, "goods", 0, "only item that may be bought with it; 0 is any")
	cmd.Flags().StringVar(&keyFile, "key-file", defaultKeyFile, "file with the private key whose public key is in buyer.jwks_file, as stockd secrets --jwks writes it")
	return cmd
}

// signingKey is the key whose tokens the replicas of a configuration accept.
func signingKey(c *config.Loaded, keyFile string) (key buyer.SigningKey, err error) {
	if err := c.ReadBuyer(); err != nil {
		return key, err
	}
	switch {
	case c.Buyer.From != config.BuyerFromToken:
		return key, fmt.Errorf("buyer.from is %s: a replica reads no tokens; set token, and buyer.jwks_file or buyer.secret_file", c.Buyer.From)
	case c.Buyer.JWKSFile == "":
		return buyer.NewSigningSecret([]byte(c.Buyer.Secret.Reveal())), nil
	}
	private, err := reload.ReadText(keyFile)
	if err != nil {
		return key, fmt.Errorf("--key-file: %w", err)
	}
	jwks, err := reload.ReadText(c.Buyer.JWKSFile)
	if err != nil {
		return key, fmt.Errorf("buyer.jwks_file: %w", err)
	}
	if key, err = buyer.NewSigningKey(private, jwks); err != nil {
		err = fmt.Errorf("--key-file %s, buyer.jwks_file %s: %w", keyFile, c.Buyer.JWKSFile, err)
	}
	return key, err
}
