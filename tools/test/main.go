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

// matches makes sure that each alternative of a pattern names a test: one that is misspelled, or whose test
// has been renamed, would pass. What is behind a slash is not looked at.
func matches(ctx context.Context, pattern string, build, packages []string) error {
	all := alternatives(pattern)
	tops := make([]string, 0, len(all))
	for _, one := range all {
		top, _, _ := strings.Cut(one, "/")
		tops = append(tops, top)
	}
	args := slices.Concat([]string{"test", "-list", strings.Join(tops, "|")}, build, packages)
	list, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return nil //nolint:nilerr // what does not build is reported by the run itself
	}
	tests := regexp.MustCompile(`(?m)^(Test|Fuzz|Example).*$`).FindAllString(string(list), -1)
	if top, err := unmatched(tops, tests); top != "" || err != nil {
		return errors.Join(fmt.Errorf("-run %s: %s matches no test of %s", pattern, top, strings.Join(packages, " ")), err)
	}
	return nil
}

// unmatched is the first pattern that matches no test, or nothing.
func unmatched(patterns, tests []string) (string, error) {
	for _, pattern := range patterns {
		name, err := regexp.Compile(pattern)
		if err != nil || !slices.ContainsFunc(tests, name.MatchString) {
			return pattern, err
		}
	}
	return "", nil
}

// alternatives takes a pattern apart: A|B into A and B, and A(B|C)D into A(B)D and A(C)D.
func alternatives(pattern string) (all []string) {
	bars, groups := outermost(pattern)
	if len(bars) > 0 {
		start := 0
		for _, bar := range append(bars, len(pattern)) {
			all = append(all, alternatives(pattern[start:bar])...)
			start = bar + 1
		}
		return all
	}
	for _, g := range groups {
		if parts := alternatives(pattern[g.start:g.end]); len(parts) > 1 {
			for _, part := range parts {
				all = append(all, alternatives(pattern[:g.start]+part+pattern[g.end:])...)
			}
			return all
		}
	}
	return []string{pattern}
}

// group is where the inside of a pair of parentheses starts and ends.
type group struct{ start, end int }

// outermost finds what is in no group: bars, and groups. In brackets and behind a backslash each of these
// is a character.
func outermost(pattern string) (bars []int, groups []group) {
	depth, start, inBrackets := 0, 0, false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case inBrackets || c == '[':
			inBrackets = c != ']'
		case c == '|' && depth == 0:
			bars = append(bars, i)
		case c == '(':
			if depth++; depth == 1 {
				start = i + 1
			}
		case c == ')':
			if depth--; depth == 0 {
				groups = append(groups, group{start, i})
			}
		}
	}
	return bars, groups
}
