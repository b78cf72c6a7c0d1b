package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/live"
	"github.com/stockd/stockd/internal/lab/servers"
)

// liveOptions are the flags of stocklab live.
type liveOptions struct {
	from, address string
	open          bool
}

func liveCommand() *cobra.Command {
	var o liveOptions
	cmd := &cobra.Command{
		Use:   "live",
		Short: "Watch a sale, its locks and its faults on a page, as they happen",
		Long: "Start servers, three replicas and a balancer, and a page that sells on them and shows what happens:\n" +
			"the stock row and the ledger, who holds the lock, what the servers say. It runs until ^C. Nothing\n" +
			"is left behind.\n\n" +
			"The address has a token, without which the page shows everything and changes nothing.",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.from, "servers", "auto", "auto, embedded or local, with exceptions after commas: "+servers.Exceptions)
	flags.StringVar(&o.address, "address", "127.0.0.1:0", "loopback address of the page; port 0 takes a free one")
	flags.BoolVar(&o.open, "open", false, "open the page in a browser")
	return cmd
}

func (o *liveOptions) run(cmd *cobra.Command) (err error) {
	choice, err := servers.ParseChoice(o.from)
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("--servers: %w", err)}
	}
	if err := checkLoopback(o.address); err != nil {
		return cli.UsageError{Err: fmt.Errorf("--address: %w", err)}
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", o.address)
	if err != nil {
		return fmt.Errorf("open the page: %w", err)
	}
	progress := cli.NewProgress(cmd.ErrOrStderr(), 0)
	session, err := live.Begin(cmd.Context(), live.Options{Binary: binary, Servers: choice, Progress: progress.Say})
	progress.End()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return o.serve(cmd, listener, session)
}

// serve serves the page until the command is ended.
func (o *liveOptions) serve(cmd *cobra.Command, listener net.Listener, session *live.Session) error {
	address, token := listener.Addr().String(), rand.Text()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           live.NewHandler(session, token, address, net.JoinHostPort("localhost", port)),
		ReadHeaderTimeout: 10 * time.Second,
	}
	// Behind the #, where a browser sends it to no server and into no log.
	url := "http://" + address + "/#token=" + token
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "stocklab live: %s\n", url); err != nil {
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

// checkLoopback rejects an address that others can reach: the page controls processes.
func checkLoopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is no port", port)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%q is not a loopback address such as 127.0.0.1: the page controls processes of this machine", host)
	}
	return nil
}

func openBrowser(url string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	return exec.Command(program, url).Start()
}
