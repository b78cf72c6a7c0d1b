// Command test runs the tests of stockd against real servers. It installs the
// servers that are missing where it can, says what it does, and says what is
// skipped where it cannot.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

// gotestsum prints one line a package, and at the end every failure and every
// test that was skipped, with the reason.
const gotestsum = "gotest.tools/gotestsum@v1.13.0"

// everything names all packages, those first that take minutes: of two that run at a
// time none is then left to run alone at the end.
func everything() []string {
	return []string{"./cmd/stocklab", "./cmd/stockd", "./internal/lock/sql", "./internal/lock/redis", "./internal/lock/zk", "./internal/service/strategy", "./internal/handler", "./..."}
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
	tags := flag.String("tags", "", "build tags, such as prove")
	pattern := flag.String("run", "", "run only tests that match")
	timeout := flag.String("timeout", "25m", "bound on one package")
	install := flag.Bool("install", true, "install what is missing")
	flag.Parse()
	missing := provide(ctx, needs(), *install)
	var build []string
	if slices.Contains(missing, "gcc") {
		fmt.Println("without a C compiler the race detector cannot run: the tests run without it")
	} else {
		build = append(build, "-race")
	}
	if *tags != "" {
		build = append(build, "-tags", *tags)
	}
	packages := flag.Args()
	if len(packages) == 0 {
		packages = everything()
	}
	args := append([]string{"run", gotestsum, "--format", "pkgname-and-test-fails", "--format-icons", "text", "--", "-timeout", *timeout}, build...)
	if *pattern != "" {
		if err := matches(ctx, *pattern, build, packages); err != nil {
			return err
		}
		args = append(args, "-run", *pattern)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	if *required {
		cmd.Env = append(cmd.Env, "STOCKDTEST_REQUIRE="+strings.Join(names(needs()), ","))
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
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "Test") {
			return nil
		}
	}
	return fmt.Errorf("-run %s matches no test of %s", pattern, strings.Join(packages, " "))
}
