// Command test runs the tests of stockd against real servers. It installs the
// servers that are missing where it can, says what it does, and says what is
// skipped where it cannot.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// gotestsum prints one line a package, and at the end every failure and every
// test that was skipped, with the reason.
const gotestsum = "gotest.tools/gotestsum@v1.13.0"

// everything names all packages, those first that take minutes: none is then left to run
// alone at the end.
func everything() []string {
	return []string{"./cmd/stocklab", "./internal/service/strategy", "./cmd/stockd", "./internal/service/...", "./internal/lock/...", "./internal/repo", "./internal/lab/servers", "./internal/handler", "./..."}
}

// withoutRace keeps the race detector and the checks of pointers out of SQLite and its libc,
// which are C in Go, and out of regexp: they find nothing of ours there, and take three
// quarters of the time.
func withoutRace() []string {
	return []string{"-gcflags=modernc.org/...=-race=false -d=checkptr=0", "-gcflags=regexp=-race=false"}
}

// packagesAtOnce is how many packages are tested at once, with three tests of each: they wait
// for leases to end, and for servers that do not answer, and with fewer of them two cores are
// idle for a fifth of the time. With more of them a server seems to be one that does not answer.
func packagesAtOnce(race bool) int {
	if race {
		return 2
	}
	return 4
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	required := flag.Bool("required", false, "count a missing server as a failure")
	race := flag.Bool("race", false, "with the race detector, which takes twice as long")
	tags := flag.String("tags", "", "build tags, such as prove")
	pattern := flag.String("run", "", "run only tests that match")
	timeout := flag.String("timeout", "40m", "bound on one package")
	install := flag.Bool("install", true, "install what is missing")
	flag.Parse()
	wanted := needs()
	if *race {
		wanted = append(wanted, compiler())
	}
	missing := provide(ctx, wanted, *install)
	if slices.Contains(missing, compiler().name) {
		return errors.New("the race detector needs a C compiler")
	}
	build := []string{"-ldflags=-w"} // nothing debugs them, and they are linked sooner
	if *race {
		build = append(append(build, "-race"), withoutRace()...)
	}
	if *tags != "" {
		build = append(build, "-tags", *tags)
	}
	packages := flag.Args()
	if len(packages) == 0 {
		packages = everything()
	}
	args := []string{
		"run", gotestsum, "--format", "pkgname-and-test-fails", "--format-icons", "text", "--", "-timeout", *timeout,
		fmt.Sprintf("-p=%d", max(packagesAtOnce(*race), runtime.GOMAXPROCS(0))), fmt.Sprintf("-parallel=%d", max(3, runtime.GOMAXPROCS(0))),
	}
	args = append(args, build...)
	if *pattern != "" {
		if err := matches(ctx, *pattern, build, packages); err != nil {
			return err
		}
		args = append(args, "-run", *pattern)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// By default a program with the race detector waits for a second when it exits, and so does
	// each replica that a test stops.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if *required {
		cmd.Env = append(cmd.Env, "STOCKDTEST_REQUIRE="+strings.Join(names(wanted), ","))
	}
	return cmd.Run()
}

// matches makes sure that a pattern names a test: one that is misspelled would pass.
func matches(ctx context.Context, pattern string, build, packages []string) error {
	top, _, _ := strings.Cut(pattern, "/")
	args := slices.Concat([]string{"test", "-list", top}, build, packages)
	list, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return nil // what does not build is reported by the run itself
	}
	isTest := regexp.MustCompile(`^(Test|Fuzz|Example)`)
	for line := range strings.Lines(string(list)) {
		if isTest.MatchString(line) {
			return nil
		}
	}
	return fmt.Errorf("-run %s matches no test of %s", pattern, strings.Join(packages, " "))
}
