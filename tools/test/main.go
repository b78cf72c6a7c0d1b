// Command test runs the tests of stockd against real servers. It installs the
// servers that are missing where it can, and at the end counts what was skipped.
package main

import (
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

// options are what the command line asks for.
type options struct {
	required, race, verbose bool
	outside                 bool // packages that are looked at from outside, without the race detector
	tags, pattern, timeout  string
	packages                []string
}

func main() {
	var o options
	flag.BoolVar(&o.required, "required", false, "count a missing server as a failure")
	flag.BoolVar(&o.race, "race", false, "with the race detector, which takes twice as long")
	flag.BoolVar(&o.verbose, "v", false, "print each test that is skipped")
	flag.StringVar(&o.tags, "tags", "", "build tags, such as prove")
	flag.StringVar(&o.pattern, "run", "", "run only tests that match, and fail where an alternative matches none")
	flag.StringVar(&o.timeout, "timeout", "40m", "bound on one package")
	flag.Parse()
	o.packages = flag.Args()
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
	missing := provide(ctx, wanted)
	if slices.Contains(missing, compiler().name) {
		return errors.New("the race detector needs a C compiler")
	}
	// By default a program with the race detector waits for a second when it exits, and so does
	// each replica that a test stops.
	env := append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if o.required {
		env = append(env, "STOCKDTEST_REQUIRE="+strings.Join(names(wanted), ","))
	}
	parts, err := o.parts(ctx)
	if err != nil {
		return err
	}
	var ran []string
	skipped := make(map[string]int)
	err = run(ctx, parts, env, &ran, skipped)
	printSkipped(os.Stdout, skipped)
	if err != nil {
		return err
	}
	return mustMatch(o.pattern, ran)
}

// parts are the runs of the go command that test all packages, where none is named. Those that take
// minutes come first: none is then left to run alone at the end. Beside those that need the processors
// are those that wait for leases to end: where all of the former come at once, servers answer too late.
func (o options) parts(ctx context.Context) ([]options, error) {
	if len(o.packages) > 0 {
		return []options{o}, nil
	}
	out, err := exec.CommandContext(ctx, "go", "list", "./cmd/stocklab", "./internal/service/strategy", "./internal/lock/...",
		"./cmd/stockd", "./internal/service/...", "./internal/repo", "./internal/lab/servers", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	with, without := o, o
	without.outside = true
	for pkg := range strings.FieldsSeq(string(out)) {
		if o.race && o.pattern == "" && fromOutside(pkg) {
			without.packages = append(without.packages, pkg)
		} else {
			with.packages = append(with.packages, pkg)
		}
	}
	if len(without.packages) == 0 {
		return []options{with}, nil
	}
	return []options{with, without}, nil
}

// fromOutside reports whether the tests of a package read files, or start programs and look at them
// from outside, of which the race detector sees little: it is used there by make prove alone.
func fromOutside(pkg string) bool {
	return slices.ContainsFunc([]string{"/cmd/stocklab", "/deploy", "/docs", "/lab/compose", "/lab/servers", "/planted", "/nginx", "/tools/test"},
		func(end string) bool { return strings.HasSuffix(pkg, end) })
}

// run tests one part after the other: side by side they leave so little of two processors to each server that it seems to be one
// that does not answer. It adds what ran and what was skipped for which reason.
func run(ctx context.Context, parts []options, env []string, ran *[]string, skipped map[string]int) (err error) {
	folder, err := os.MkdirTemp("", "stockd-test-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	var failed error
	for i, part := range parts {
		events := filepath.Join(folder, fmt.Sprintf("events-%d.json", i))
		failed = errors.Join(failed, part.test(ctx, env, events), readFile(events, ran, skipped))
	}
	return failed
}

func (o options) test(ctx context.Context, env []string, events string) error {
	cmd := exec.CommandContext(ctx, "go", o.arguments(events)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdout, os.Stdout, env
	return cmd.Run()
}

// arguments are those of the go command.
func (o options) arguments(events string) []string {
	args := []string{"run", gotestsum, "--format", "pkgname-and-test-fails", "--format-icons", "text", "--jsonfile", events}
	if !o.verbose {
		args = append(args, "--hide-summary", "skipped")
	}
	// Packages wait for leases to end, and for servers that do not answer: with fewer of them at once,
	// and fewer tests of each, two cores are idle for a fifth of the time. With more of them, or with the
	// race detector, a server seems to be one that does not answer.
	processors := runtime.GOMAXPROCS(0)
	atOnce, ofEach := max(4, processors), max(3, processors)
	if o.race {
		atOnce, ofEach = max(2, processors), max(2, processors)
	}
	// The linter vets, and nothing debugs a test binary, which is linked sooner without DWARF.
	args = append(args, "--", "-timeout", o.timeout, "-vet=off", "-ldflags=-w",
		fmt.Sprintf("-p=%d", atOnce), fmt.Sprintf("-parallel=%d", ofEach))
	if o.race && !o.outside {
		// SQLite and its libc are C in Go: the race detector and the checks of pointers find nothing of
		// ours there, nor in regexp, and take three quarters of the time.
		args = append(args, "-race", "-gcflags=modernc.org/...=-race=false -d=checkptr=0", "-gcflags=regexp=-race=false")
	}
	if o.tags != "" {
		args = append(args, "-tags", o.tags)
	}
	if o.pattern != "" {
		args = append(args, "-run", o.pattern)
	}
	return append(args, o.packages...)
}
