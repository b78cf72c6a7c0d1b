// Command vuln looks for known vulnerabilities in what stockd calls. Where their database
// cannot be reached, nothing is checked: it prints so and succeeds, because a machine
// without the internet builds stockd all the same. With -required it fails then.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

const (
	govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.8.0"
	// public is the database of the Go project. GOVULNDB names another one, such as
	// a copy in a folder: file:///path.
	public = "https://vuln.go.dev"
	// reachable is how long the database may take to answer.
	reachable = 10 * time.Second
	// notChecked begins the line that .ci/run repeats at its end.
	notChecked = "vuln: not checked"
)

var errNotChecked = errors.New("the database of vulnerabilities cannot be reached")

func main() {
	required := flag.Bool("required", os.Getenv("VULN_REQUIRED") != "", "fail where nothing could be checked (VULN_REQUIRED)")
	flag.Parse()
	if err := run(os.Stdout, cmp.Or(os.Getenv("GOVULNDB"), public), *required); err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, database string, required bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := reach(ctx, database); err != nil {
		err = fmt.Errorf("%w: %w", errNotChecked, err)
		fmt.Fprintf(out, "%s: %v\n", notChecked, err) //nolint:errcheck // the exit status tells where that matters
		if required {
			return err
		}
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "run", govulncheck, "-db", database, "./...") //nolint:gosec // who runs this names the database
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}

// reach asks for the smallest file of the database. A folder is there or is not:
// govulncheck says so itself.
func reach(ctx context.Context, database string) error {
	if strings.HasPrefix(database, "file://") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachable)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, database+"/index/db.json", http.NoBody) //nolint:gosec // the same
	if err != nil {
		return fmt.Errorf("GOVULNDB: %w", err)
	}
	response, err := http.DefaultClient.Do(request) //nolint:gosec // the same
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing of it is read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", request.URL, response.Status)
	}
	return nil
}
