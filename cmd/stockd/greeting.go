package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/config"
)

// greeting tells a person at a terminal what runs and what to try; elsewhere the log is enough.
func greeting(out io.Writer, c config.Config) func(public, admin string) {
	if !cli.IsTerminal(out) {
		return nil
	}
	return func(public, admin string) {
		fmt.Fprint(out, greet(reachable(public), reachable(admin), c)) //nolint:errcheck // the replica sells without it
	}
}

// reachable is an address that a listener on all interfaces has on this machine.
func reachable(address string) string {
	return strings.NewReplacer("[::]", "127.0.0.1", "0.0.0.0", "127.0.0.1").Replace(address)
}

func greet(public, admin string, c config.Config) string {
	sells := fmt.Sprintf("\nstockd sells at %s, through %s where neither an item nor a request names another strategy.\n", public, c.Deduct.Strategy)
	if admin == "" {
		return sells + "It has no admin API, so that no item can be created: set STOCKD_ADMIN_TOKEN, and start it again.\n\n"
	}
	return sells + fmt.Sprintf(`The admin API is at %[2]s. Next, put an item on sale, buy one, and audit:

  curl -H "Authorization: Bearer $STOCKD_ADMIN_TOKEN" -d goods_id=1 -d stock=100 %[2]s/goods
  curl -d goods_id=1 %[1]s/deduct
  curl %[1]s/goods/1/audit

^C stops it, after the requests in flight.

`, public, admin)
}
