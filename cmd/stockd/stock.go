package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/stock"
)

func stockCommand() *cobra.Command {
	var (
		yours yours
		goods int64
		units int64
		limit int64
		own   stock.Choice
		group bool
		fence bool
	)
	cmd := &cobra.Command{
		Use:   "stock",
		Short: "Put a goods on sale where it is not on sale yet",
		Long: "Put a goods on sale, as its owner, where it is not on sale yet. Where it is, it keeps the stock, the\n" +
			"limit and the strategy that it has, so that this may be run at every start.",
		Args: noArgs,
	}
	flags := cmd.Flags()
	yours.addOwner(flags, "http://127.0.0.1:8081")
	flags.Int64Var(&goods, "goods", 1, "goods to put on sale")
	flags.Int64Var(&units, "units", 5000, "units that there are to sell")
	flags.Int64Var(&limit, "per-user", 0, "most units that one user_id may buy; 0 sets no limit")
	flags.StringVar(&own.Strategy, "strategy", "", "strategy that sells it where a purchase does not say (default: deduct.strategy)")
	flags.BoolVar(&group, "group", false, "commit all waiting purchases of it in one transaction where a purchase does not say (default: deduct.group)")
	flags.BoolVar(&fence, "fence", false, "check the token of its lock where a purchase does not say (default: deduct.fence)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if goods < 1 || units < 0 || units > stock.MaxStock {
			return usageError{fmt.Errorf("--goods must be at least 1 and --units 0 to %d", int64(stock.MaxStock))}
		}
		if limit < 0 || limit > stock.MaxPerUser {
			return usageError{fmt.Errorf("--per-user must be 0 to %d", stock.MaxPerUser)}
		}
		owner, err := yours.client()
		if err != nil {
			return usageError{err}
		}
		owner.URL = owner.AdminURL
		if flags.Changed("group") {
			own.Group = &group
		}
		if flags.Changed("fence") {
			own.Fence = &fence
		}
		said, err := putOnSale(cmd.Context(), owner, goods, units, limit, own)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
		return err
	}
	return cmd
}

// putOnSale creates first and looks afterwards: of two that do so at the same
// time, one creates and the other finds.
func putOnSale(ctx context.Context, owner client.Client, goods, units, perUser int64, own stock.Choice) (said string, err error) {
	created := owner.CreateChosen(ctx, goods, units, perUser, own)
	if created == nil {
		return fmt.Sprintf("goods %d is on sale with %d units", goods, units), nil
	}
	found, err := owner.Goods(ctx, goods)
	if err != nil {
		return "", errors.Join(created, err)
	}
	return fmt.Sprintf("goods %d was on sale already, and has %d units left", goods, found.Stock), nil
}

// yours is where servers are that run already.
type yours struct{ url, adminURL, tokenFile, caFile string }

// addOwner adds the flags that an owner needs.
func (y *yours) addOwner(flags *pflag.FlagSet, adminURL string) {
	flags.StringVar(&y.adminURL, "admin-url", adminURL, "the owner's listener of a stockd, or of a balancer before several")
	flags.StringVar(&y.tokenFile, "token-file", "", "file that holds the owner's token")
	flags.StringVar(&y.caFile, "ca-file", "", "PEM file of the authorities that are believed of an https:// --admin-url; those of the system where it is empty")
}

// client speaks to them.
func (y *yours) client() (client.Client, error) {
	if y.tokenFile == "" {
		return client.Client{}, errors.New("--token-file must name the file that holds the owner's token")
	}
	token, err := os.ReadFile(y.tokenFile)
	if err != nil {
		return client.Client{}, fmt.Errorf("--token-file: %w", err)
	}
	c := client.Client{
		URL: strings.TrimSuffix(y.url, "/"), AdminURL: strings.TrimSuffix(y.adminURL, "/"), Token: strings.TrimSpace(string(token)),
	}
	if y.caFile == "" {
		return c, nil
	}
	encryption, err := config.TLS{Enabled: true, CAFile: y.caFile}.ClientConfig()
	if err != nil {
		return client.Client{}, fmt.Errorf("--ca-file: %w", err)
	}
	c.HTTP = &http.Client{Transport: &http.Transport{TLSClientConfig: encryption, Proxy: http.ProxyFromEnvironment}}
	return c, nil
}
