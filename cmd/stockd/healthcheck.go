package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/config"
)

func healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the replica on this machine whether it is ready to sell",
		Long: "Ask the replica on this machine whether it is ready to sell: at admin.listen of the same configuration, which\n" +
			"no crowd fills, where that is open without TLS, and else at http.listen. The exit status is 0 only where it\n" +
			"is ready: an image without a shell checks itself so.",
		Example: "  stockd healthcheck\n" +
			"  stockd healthcheck --http-listen :9090",
	}
	return cli.Located(cmd, func(ctx context.Context, c *config.Loaded) error {
		ctx, cancel := context.WithTimeout(ctx, readyWithin)
		defer cancel()
		if c.Admin.Tokens().Any() && c.Admin.TLS.CertFile == "" && askReady(ctx, "http://"+nearby(c.Admin.Listen)+"/readyz") == nil {
			return nil
		}
		return askReady(ctx, "http://"+nearby(c.HTTP.Listen)+"/readyz")
	})
}

// readyWithin is longer than a replica takes to ping its backends, and shorter than the timeout of
// a container's check.
const readyWithin = 2 * time.Second

func askReady(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	client := http.Client{Transport: new(http.Transport)} // past any proxy: it would answer for us, or not reach us
	response, err := client.Do(request)
	if err != nil {
		return err // it names method and URL
	}
	defer response.Body.Close() //nolint:errcheck // only its status was wanted
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}

// configured is the URL of the replica on this machine, where variable says that it listens.
func configured(variable, otherwise string) string {
	return "http://" + nearby(cmp.Or(os.Getenv(variable), otherwise))
}

// nearby is where a listener is reached from its own machine: one on every address is on the
// loopback, too.
func nearby(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
