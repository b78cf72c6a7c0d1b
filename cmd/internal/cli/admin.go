package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/reload"
	"github.com/stockd/stockd/pkg/client"
)

// LongestCall ends a call that is not answered, such as by a server that is stopped. A full audit
// takes up to audit.timeout.
const LongestCall = 2 * time.Minute

// connectWithin ends a try of a connection, so that an address that does not answer fails soon.
const connectWithin = 5 * time.Second

// Admin is the admin API of a running stockd, as flags give it.
type Admin struct{ URL, TokenFile, caFile string }

// AddFlags adds the flags of the admin API.
func (a *Admin) AddFlags(flags *pflag.FlagSet, url string) {
	flags.StringVar(&a.URL, "admin-url", url, "admin API of a stockd, or of a balancer before several")
	flags.StringVar(&a.TokenFile, "token-file", os.Getenv("STOCKD_ADMIN_TOKEN_FILE"), "file with a token of the admin API")
	flags.StringVar(&a.caFile, "ca-file", "", "PEM file of the authorities that are trusted for an https:// --admin-url; those of the system where it is empty")
}

// Client opens the admin API. It reads items and audits there, too, where nothing is
// concealed from it.
func (a *Admin) Client() (client.Client, error) {
	if a.TokenFile == "" {
		return client.Client{}, errors.New("--token-file must name a file with a token of the admin API")
	}
	content, err := reload.ReadText(a.TokenFile)
	if err != nil {
		return client.Client{}, fmt.Errorf("--token-file: %w", err)
	}
	at, token := strings.TrimSuffix(a.URL, "/"), strings.TrimSpace(string(content))
	if token == "" {
		return client.Client{}, fmt.Errorf("--token-file: %s is empty", a.TokenFile)
	}
	server, err := url.Parse(at)
	if err != nil {
		return client.Client{}, fmt.Errorf("--admin-url: %w", err)
	}
	transport := &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: connectWithin}).DialContext, TLSHandshakeTimeout: connectWithin,
	}
	if a.caFile != "" {
		if transport.TLSClientConfig, err = (config.TLS{Enabled: true, CAFile: a.caFile}).ClientConfig(); err != nil {
			return client.Client{}, fmt.Errorf("--ca-file: %w", err)
		}
	}
	sender := &http.Client{Transport: bearer{transport, server, token}, Timeout: LongestCall}
	return client.Client{URL: at, AdminURL: at, Token: token, HTTP: sender}, nil
}

// Command has a command call the admin API.
func (a *Admin) Command(cmd *cobra.Command, do func(cmd *cobra.Command, c client.Client, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.Client()
		if err != nil {
			return UsageError{Err: err}
		}
		return do(cmd, c, args)
	}
	return cmd
}

// Print prints what a command has done.
func Print(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	return err
}

// bearer sends the token with every request to the server, and to no other: not to the public API
// of a shop, nor where a redirect leads.
type bearer struct {
	http.RoundTripper

	server *url.URL
	token  string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == b.server.Scheme && r.URL.Host == b.server.Host {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.RoundTripper.RoundTrip(r)
}
