// Command test runs the tests of stockd against real servers. It installs the
// servers that are missing where it can, and at the end counts what was skipped.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// gotestsum prints one line a package, and every failure whole.
const gotestsum = "gotest.tools/gotestsum@v1.13.0"

// everything names all packages, those first that take minutes: none is then left to run
// alone at the end.
func everything() []string {
	return []string{
		"./cmd/stocklab", "./internal/service/strategy", "./cmd/stockd", "./internal/service/...", "./internal/lock/...", "./internal/repo",
		"./internal/lab/servers", "./internal/handler", "./...",
	}
}

// withoutRace keeps the race detector and the checks of pointers out of SQLite and its libc,
// which are C in Go, and out of regexp: they find nothing of ours there, and take three
// quarters of the time.
func withoutRace() []string {
	return []string{"-gcflags=modernc.org/...=-race=false -d=checkptr=0", "-gcflags=regexp=-race=false"}
}

// packagesAtOnce is how many packages are tested at once, with three tests of each: they wait for leases to end, and for
// servers that do not answer, and with fewer of them two cores are idle for a fifth of the time.
// With more of them a server seems to be one that does not answer.
func packagesAtOnce(race bool) int {
	if race {
		return 2
	}
	return 4
}

// options are what the command line asks for.
type options struct {
	required, race, verbose, install bool
	tags, pattern, timeout           string
	packages                         []string
}

func main() {
	var o options
	flag.BoolVar(&o.required, "required", false, "count a missing server as a failure")
	flag.BoolVar(&o.race, "race", false, "with the race detector, which takes twice as long")
	flag.BoolVar(&o.verbose, "v", false, "print each test that is skipped")
	flag.BoolVar(&o.install, "install", true, "install what is missing")
	flag.StringVar(&o.tags, "tags", "", "build tags, such as prove")
	flag.StringVar(&o.pattern, "run", "", "run only tests that match, and fail where an alternative matches none")
	flag.StringVar(&o.timeout, "timeout", "40m", "bound on one package")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = everything()
	}
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
}

func (o options) run() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	wanted := needs()
	if o.race {
		wanted = append(wanted, compiler())
	}
	missing := provide(ctx, wanted, o.install)
	if slices.Contains(missing, compiler().name) {
		return errors.New("the race detector needs a C compiler")
	}
	folder, err := os.MkdirTemp("", "stockd-test-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	events := filepath.Join(folder, "events.json")
	cmd := exec.CommandContext(ctx, "go", o.arguments(events)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// By default a program with the race detector waits for a second when it exits, and so does
	// each replica that a test stops.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if o.required {
		cmd.Env = append(cmd.Env, "STOCKDTEST_REQUIRE="+strings.Join(names(wanted), ","))
	}
	failed := cmd.Run()
	ran, err := summarize(events)
	if failed != nil || err != nil {
		return cmp.Or(failed, err)
	}
	return mustMatch(o.pattern, ran)
}

// arguments are those of the go command.
func (o options) arguments(events string) []string {
	args := []string{"run", gotestsum, "--format", "pkgname-and-test-fails", "--format-icons", "text", "--jsonfile", events}
	if !o.verbose {
		args = append(args, "--hide-summary", "skipped")
	}
	// The linter vets, and nothing debugs a test binary, which is linked sooner without DWARF.
	args = append(args, "--", "-timeout", o.timeout, "-vet=off", "-ldflags=-w",
		fmt.Sprintf("-p=%d", max(packagesAtOnce(o.race), runtime.GOMAXPROCS(0))), fmt.Sprintf("-parallel=%d", max(3, runtime.GOMAXPROCS(0))))
	if o.race {
		args = append(append(args, "-race"), withoutRace()...)
	}
	if o.tags != "" {
		args = append(args, "-tags", o.tags)
	}
	if o.pattern != "" {
		args = append(args, "-run", o.pattern)
	}
	return append(args, o.packages...)
}

// summarize prints how many tests were skipped for each reason, and returns the names of those that ran.
func summarize(events string) (ran []string, err error) {
	file, err := os.Open(events)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	ran, skipped, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("read what the tests printed: %w", err)
	}
	printSkipped(os.Stdout, skipped)
	return ran, nil
}
