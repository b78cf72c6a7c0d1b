// Command mutate changes the code of stockd in small ways, one at a time, and counts
// the changes that the quick tests of the package notice: those that pass alone, within
// a limit, and without a server. It plants all mutants of a package into one build and
// chooses one by the environment, and runs only the tests that pass it.
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"golang.org/x/sync/errgroup"
)

// enough is the share of the covered mutants of a package that its tests must notice.
const enough = 0.85

func packages() []string {
	return []string{
		"internal/stock", "internal/config", "internal/buyer", "internal/admintoken", "internal/handler", "internal/service", "internal/service/strategy",
		"internal/service/background", "internal/lock", "internal/lock/process", "internal/pause", "internal/telemetry", "internal/telemetry/metrics",
		"internal/lab/history", "internal/lab/checker", "internal/lab/bench", "internal/lab/failpoint", "internal/load", "internal/load/verdict", "pkg/client",
	}
}

// survivors lists mutants that live, with their reason in the line after them, behind a tab: they
// are equivalent, so that no test can tell them from the code, or the reason begins with
// notWorthIt.
//
//go:embed survivors.txt
var survivors string

// notWorthIt begins the reason of a mutant that is not equivalent.
const notWorthIt = "not killed: "

// reasons reads the list.
func reasons() map[string]string {
	list := map[string]string{}
	var group []string
	for line := range strings.Lines(survivors) {
		line = strings.TrimRight(line, "\n")
		reason, ok := strings.CutPrefix(line, "\t")
		if !ok {
			group = append(group, line)
			continue
		}
		for _, m := range group {
			list[m] = reason
		}
		group = nil
	}
	return list
}

// result is what the tests of a package noticed.
type result struct {
	Package string   `json:"package"`
	Mutants int      `json:"mutants"`
	Covered int      `json:"covered"`
	Killed  int      `json:"killed"`
	Hung    int      `json:"timed_out"` // of the killed
	Lived   []mutant `json:"lived"`
	Same    int      `json:"equivalent"` // of the lived, as listed
	Left    int      `json:"not_killed"` // of the lived, as listed
	Unseen  []mutant `json:"uncovered"`
	NotRun  []string `json:"tests_not_run"`
	mended  []mutant // that are listed, and killed
}

func (r *result) efficacy() float64 {
	if r.Covered == 0 {
		return 0
	}
	return float64(r.Killed) / float64(r.Covered)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	limit := flag.Duration("limit", 5*time.Second, "time of a test that counts as quick")
	workers := flag.Int("workers", 2, "mutants tried at a time")
	report := flag.String("json", "", "file for the report")
	only := flag.String("only", "", "an expression for the mutants to try: internal/stock/stock.go Goods.Allot")
	flag.Parse()
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	folders := flag.Args()
	if len(folders) == 0 {
		folders = packages()
	}
	reasonOf := reasons()
	var results []result
	for _, folder := range folders {
		r, err := mutate(ctx, filepath.Clean(folder), *limit, *workers, wanted, reasonOf)
		results = append(results, r)
		if err != nil {
			show(results) // as far as it came
			return err
		}
	}
	show(results)
	if *report != "" {
		content, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if err := os.WriteFile(*report, append(content, '\n'), 0o600); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return verdict(results)
}

// mutate tries every mutant of a package.
func mutate(ctx context.Context, folder string, limit time.Duration, workers int, only *regexp.Regexp, reasonOf map[string]string) (r result, err error) {
	r.Package = folder
	work, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return r, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	s := &subject{folder: folder, work: work}
	if s.binary, s.mutants, err = build(ctx, folder, work); err != nil {
		return r, err
	}
	if r.NotRun, err = s.trace(ctx, limit); err != nil {
		return r, err
	}
	s.mutants = slices.DeleteFunc(s.mutants, func(m mutant) bool { return !only.MatchString(m.String()) })
	r.Mutants = len(s.mutants)
	fmt.Printf("%s: %d mutants, %d tests, and %d that are not used\n", folder, len(s.mutants), s.tests, len(r.NotRun))
	var mu sync.Mutex
	var tries errgroup.Group
	tries.SetLimit(workers)
	for i, m := range s.mutants {
		if ctx.Err() != nil {
			break
		}
		if i > 0 && i%100 == 0 {
			fmt.Printf("%s: %d of %d\n", folder, i, len(s.mutants))
		}
		m.Reason = reasonOf[m.String()]
		tries.Go(func() error {
			outcome := s.judge(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil { // else it was cut off
				r.count(m, outcome)
			}
			return nil
		})
	}
	_ = tries.Wait() // none fails
	for _, m := range r.mended {
		// The same change may be in a function twice, and one of both live.
		if !slices.ContainsFunc(r.Lived, func(other mutant) bool { return other.String() == m.String() }) {
			fmt.Printf("  killed, although it is listed: %s\n", m)
		}
	}
	return r, ctx.Err()
}

func (r *result) count(m mutant, outcome string) {
	if outcome == uncovered {
		r.Unseen = append(r.Unseen, m)
		return
	}
	r.Covered++
	switch outcome {
	case hung, killed:
		r.Killed++
		if outcome == hung {
			r.Hung++
		}
		if m.Reason != "" {
			r.mended = append(r.mended, m)
		}
	case lived:
		r.Lived = append(r.Lived, m)
		switch {
		case strings.HasPrefix(m.Reason, notWorthIt):
			r.Left++
		case m.Reason != "":
			r.Same++
		default:
			fmt.Printf("  lived: %s:%d %s: %s\n", m.File, m.Line, m.Func, m.Change)
		}
	}
}

func show(results []result) {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"package", "mutants", "covered", "killed", "timed out", "lived", "equivalent", "not worth a test", "killed of covered"})
	for _, r := range results {
		t.AppendRow(table.Row{r.Package, r.Mutants, r.Covered, r.Killed, r.Hung, len(r.Lived), r.Same, r.Left, fmt.Sprintf("%.1f %%", 100*r.efficacy())})
	}
	fmt.Println(t.Render())
}

func verdict(results []result) error {
	var failed []string
	for _, r := range results {
		if r.efficacy() < enough {
			failed = append(failed, r.Package)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("under %.0f %% of the covered mutants are killed in %s", 100*enough, strings.Join(failed, ", "))
	}
	return nil
}
