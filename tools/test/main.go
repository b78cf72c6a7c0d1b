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
	return []string{"./cmd/stockd", "./internal/lock", "./internal/service/strategy", "./internal/handler", "./..."}
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
	args := []string{"run", gotestsum, "--format", "pkgname-and-test-fails", "--format-icons", "text", "--", "-timeout", *timeout}
	if slices.Contains(missing, "gcc") {
		fmt.Println("without a C compiler the race detector cannot run: the tests run without it")
	} else {
		args = append(args, "-race")
	}
	if *tags != "" {
		args = append(args, "-tags", *tags)
	}
	if *pattern != "" {
		args = append(args, "-run", *pattern)
	}
	packages := flag.Args()
	if len(packages) == 0 {
		packages = everything()
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	if *required {
		cmd.Env = append(cmd.Env, "STOCKDTEST_REQUIRE="+strings.Join(names(needs()), ","))
	}
	return cmd.Run()
}
