// Command fuzz runs every fuzz target of stockd for a bounded time each, one after
// the other. What go test finds it leaves under testdata/fuzz, where every later
// go test tries it again.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	each := flag.Duration("each", 2*time.Minute, "time for each target")
	only := flag.String("only", ".", "targets that match, such as FuzzDeduct")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("read --only: %w", err)
	}
	targets, err := list(ctx)
	if err != nil {
		return err
	}
	if targets, err = matching(targets, pattern); err != nil {
		return err
	}
	failed := 0
	for _, t := range targets {
		fmt.Printf("%s %s\n", t.folder, t.name)
		if err := t.fuzz(ctx, *each); err != nil {
			failed++
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d targets failed", failed)
	}
	return nil
}

// target is one fuzz test.
type target struct{ folder, name string }

// matching are the targets that a pattern names: one that is misspelled would pass.
func matching(targets []target, pattern *regexp.Regexp) (named []target, err error) {
	for _, t := range targets {
		if pattern.MatchString(t.name) {
			named = append(named, t)
		}
	}
	if len(named) == 0 {
		err = fmt.Errorf("--only %s matches none of %d targets", pattern, len(targets))
	}
	return named, err
}

// list finds the targets in the files that git knows: to ask go test would build
// every test there is.
func list(ctx context.Context) (targets []target, err error) {
	found, err := exec.CommandContext(ctx, "git", "grep", "--extended-regexp", "^func Fuzz", "--", "*_test.go").Output()
	if err != nil {
		return nil, fmt.Errorf("look for fuzz targets: %w", err)
	}
	line := regexp.MustCompile(`^(.*)/[^/]*:func (Fuzz\w*)\(`)
	for text := range bytes.Lines(found) {
		if m := line.FindStringSubmatch(string(text)); m != nil {
			targets = append(targets, target{"./" + m[1], m[2]})
		}
	}
	return targets, nil
}

// fuzz runs one target, on one processor.
func (t target) fuzz(ctx context.Context, each time.Duration) error {
	cmd := exec.CommandContext(ctx, "go", strings.Fields(fmt.Sprintf("test -run ^$ -fuzz ^%s$ -fuzztime %s -fuzzminimizetime 5s -parallel 1 %s", t.name, each, t.folder))...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
