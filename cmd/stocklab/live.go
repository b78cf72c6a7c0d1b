package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/servers"
)

// liveOptions are the flags of stocklab live.
type liveOptions struct {
	from, address, listen, reachedAt, url string

	admin                      cli.Admin
	open, proxies, redisFaults bool
}

func liveCommand() *cobra.Command {
	var o liveOptions
	cmd := &cobra.Command{
		Use:   "live",
		Short: "Watch a sale, its locks and its faults on a page, as they happen",
		Long: "Start servers, three replicas and a balancer, and a page that sells on them and shows what happens:\n" +
			"the stock row and the ledger, who holds the lock, what the servers say. It runs until ^C. Nothing\n" +
			"is left behind.\n\n" +
			"The address has a token, without which the page shows everything and changes nothing. With\n" +
			"--listen a class can watch, and buy with its phones at /buy; replicas and servers stay on the loopback.\n\n" +
			"With --url nothing is started: the sales go to the replicas that run there, and what needs processes,\n" +
			"failpoints or the servers themselves is left out. The items that were sold stay in their database.",
		Example: "  stocklab live --open\n" +
			"  stocklab live --listen 0.0.0.0:8090              # a class watches, and buys at /buy",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.from, "servers", "auto", "auto, embedded or local, with exceptions after commas: "+servers.Exceptions)
	flags.StringVar(&o.address, "address", "127.0.0.1:0", "loopback address of the page; port 0 takes a free one")
	flags.StringVar(&o.listen, "listen", "", "address of the page that others can reach, such as 0.0.0.0:8090: they watch, and buy at /buy")
	flags.StringVar(&o.reachedAt, "reached-at", "", "host:port by which --listen is reached, where a container or a proxy is between")
	flags.StringVar(&o.url, "url", "", "stockd, or a balancer before several, that runs already")
	o.admin.AddFlags(flags, "")
	flags.BoolVar(&o.proxies, "proxies", false, "put a proxy before each server, so that answers can be delayed, lost or cut off by hand")
	flags.BoolVar(&o.redisFaults, "redis-faults", false, "give Redis a replica that can take over, and the masters of redlock clocks that can be moved")
	flags.BoolVar(&o.open, "open", false, "open the page in a browser")
	return cmd
}

func (o *liveOptions) run(cmd *cobra.Command) (err error) {
	choice, err := servers.ParseChoice(o.from)
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("--servers: %w", err)}
	}
	if err := o.check(cmd); err != nil {
		return cli.UsageError{Err: err}
	}
	external, err := externalOf(cmd, o.url, o.admin, "servers", "proxies", "redis-faults")
	if err != nil {
		return cli.UsageError{Err: err}
	}
	listener, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", cmp.Or(o.listen, o.address))
	if err != nil {
		return fmt.Errorf("open the page: %w", err)
	}
	hosts, outside, err := hostsOf(listener.Addr())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if o.reachedAt != "" {
		hosts, outside = append([]string{o.reachedAt}, hosts...), o.reachedAt
	}
	options := live.Options{Servers: choice, External: external, Proxies: o.proxies, RedisFaults: o.redisFaults, Experiments: experiments.All()}
	if o.listen != "" {
		options.Class = "http://" + outside + "/buy"
	}
	progress := cli.NewProgress(cmd.ErrOrStderr(), 0)
	options.Progress = progress.Say
	session, err := live.Begin(cmd.Context(), options)
	progress.End()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return o.serve(cmd, listener, session, hosts, outside)
}

// serve serves the page until the command is ended.
func (o *liveOptions) serve(cmd *cobra.Command, listener net.Listener, session *live.Session, hosts []string, outside string) error {
	token := rand.Text()
	server := &http.Server{
		Handler:           live.NewHandler(session, token, hosts...),
		ReadHeaderTimeout: 10 * time.Second,
	}
	// Behind the #, where a browser sends it to no server and into no log.
	url := "http://" + hosts[0] + "/#token=" + token
	lines := "stocklab live: " + url + "\n"
	if o.listen != "" {
		lines += "to watch:      http://" + outside + "/\nto buy:        http://" + outside + "/buy\n"
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), lines); err != nil {
		return err
	}
	if o.open {
		if err := openBrowser(url); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "stocklab live: no browser: %v\n", err) //nolint:errcheck // the address is printed
		}
	}
	defer context.AfterFunc(cmd.Context(), func() { _ = server.Close() })() // streams are open as long as their pages
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// hostsOf are the hosts by which a page at an address is reached, on this machine first, and
// the one for others. No name leads to it but localhost: a stranger's could lead here as well.
func hostsOf(address net.Addr) (hosts []string, outside string, err error) {
	host, port, err := net.SplitHostPort(address.String())
	if err != nil {
		return nil, "", err
	}
	local := net.JoinHostPort("localhost", port)
	if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
		return []string{address.String(), local}, address.String(), nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, "", fmt.Errorf("look for the addresses of this machine: %w", err)
	}
	hosts = []string{net.JoinHostPort("127.0.0.1", port), local}
	for _, one := range all {
		if ip, ok := one.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			hosts = append(hosts, net.JoinHostPort(ip.IP.String(), port))
			outside = cmp.Or(outside, hosts[len(hosts)-1])
		}
	}
	return hosts, cmp.Or(outside, hosts[0]), nil
}

// check checks where the page is to be.
func (o *liveOptions) check(cmd *cobra.Command) error {
	if at, err := netip.ParseAddrPort(o.address); err != nil || !at.Addr().IsLoopback() {
		return fmt.Errorf("--address: %q is not a loopback address such as 127.0.0.1:8090: the page controls processes of this machine", o.address)
	}
	if o.listen != "" && cmd.Flags().Changed("address") {
		return errors.New("--listen: it takes the place of --address")
	}
	if err := checkPort(o.listen); o.listen != "" && err != nil {
		return fmt.Errorf("--listen: %w; an address is such as 0.0.0.0:8090", err)
	}
	if err := o.checkReachedAt(); err != nil {
		return fmt.Errorf("--reached-at: %w", err)
	}
	return nil
}

func (o *liveOptions) checkReachedAt() error {
	if o.reachedAt == "" {
		return nil
	}
	if o.listen == "" {
		return errors.New("only --listen is reached by others")
	}
	host, port, err := net.SplitHostPort(o.reachedAt)
	if err != nil {
		return err
	}
	if number, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || number == 0 {
		return fmt.Errorf("%q is not a host and a port from 1 to 65535, such as 192.168.1.7:8090", o.reachedAt)
	}
	return nil
}

// checkPort rejects an address without a port that is a number.
func checkPort(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no port", port)
	}
	return nil
}

func openBrowser(url string) error {
	switch runtime.GOOS {
	case "windows":
		return exec.Command("rundll32", "url.dll,FileProtocolHandler", url).Start()
	case "darwin":
		return exec.Command("open", url).Start()
	default:
		return exec.Command("xdg-open", url).Start()
	}
}
