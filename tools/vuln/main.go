// Command vuln looks for known vulnerabilities in what stockd calls, where the
// database of them can be reached. Where it cannot, it says so and ends well: a
// machine without the internet builds stockd all the same.
package main

import (
	"cmp"
	"context"
	"fmt"
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
)

func main() {
	if err := run(cmp.Or(os.Getenv("GOVULNDB"), public)); err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

func run(database string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := reach(ctx, database); err != nil {
		fmt.Printf("skipped: the database of vulnerabilities cannot be reached: %v\n", err)
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "run", govulncheck, "-db", database, "./...") //nolint:gosec // who runs this names the database
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
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
