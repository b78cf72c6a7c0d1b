package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// subject is a package with mutants, and what its tests pass.
type subject struct {
	folder, binary, work string
	mutants              []mutant
	tests                int
	passing              map[int][]quick // by mutant, the quickest first
}

// quick is a test that succeeds within the limit.
type quick struct {
	name  string
	takes time.Duration
}

// Outcomes of a mutant.
const (
	uncovered = "uncovered"
	killed    = "killed"
	hung      = "timed out" // which a test notices as well
	lived     = "lived"
)

// trace runs every test alone, to know how long it takes and which mutants it passes.
// What fails or takes longer than the limit is not used.
func (s *subject) trace(ctx context.Context, limit time.Duration) (notRun []string, err error) {
	out, err := exec.CommandContext(ctx, s.binary, "-test.list", "^(Test|Example|Fuzz)").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w", s.folder, err)
	}
	s.passing = make(map[int][]quick)
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		file := filepath.Join(s.work, name)
		began := time.Now()
		if err := s.run(ctx, 0, []string{name}, limit, file); err != nil {
			notRun = append(notRun, name)
			continue
		}
		s.tests++
		q := quick{name, time.Since(began)}
		passed, err := numbersIn(file)
		if err != nil {
			return nil, fmt.Errorf("read the trace of %s: %w", name, err)
		}
		for id := range passed {
			s.passing[id] = append(s.passing[id], q)
		}
	}
	for _, tests := range s.passing {
		slices.SortFunc(tests, func(a, b quick) int { return int(a.takes - b.takes) })
	}
	return notRun, ctx.Err()
}

// numbersIn reads the mutants of a trace, which a child process may have written again.
func numbersIn(file string) (map[int]bool, error) {
	passed := make(map[int]bool)
	numbers, _ := os.ReadFile(file) // a test that passes none writes none
	for n := range strings.FieldsSeq(string(numbers)) {
		id, err := strconv.Atoi(n)
		if err != nil {
			return nil, err
		}
		passed[id] = true
	}
	return passed, nil
}

// judge runs the tests that pass a mutant, the quickest first and more of them each time.
func (s *subject) judge(ctx context.Context, m mutant) string {
	outcome, least := uncovered, time.Second
	var batch []string
	var takes time.Duration
	for i, t := range s.passing[m.id] {
		batch, takes = append(batch, t.name), takes+t.takes
		if takes <= least && i < len(s.passing[m.id])-1 {
			continue
		}
		if outcome = s.try(ctx, m.id, batch, takes); outcome != lived {
			return outcome
		}
		batch, takes, least = nil, 0, 4*least
	}
	return outcome
}

// try runs tests that take so long together with a mutant.
func (s *subject) try(ctx context.Context, id int, tests []string, takes time.Duration) string {
	switch err := s.run(ctx, id, tests, 5*time.Second+10*takes, ""); {
	case errors.Is(err, errHung):
		return hung
	case err != nil:
		return killed
	default:
		return lived
	}
}

var errHung = errors.New("the tests did not end in time")

// run runs tests with a mutant, or with none where it is 0. No server is found: the PATH is
// empty, and databases, which are also looked for in /usr/sbin, are skipped.
func (s *subject) run(ctx context.Context, id int, tests []string, limit time.Duration, trace string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errHung)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, "-test.failfast", "-test.run", "^("+strings.Join(tests, "|")+")$", "-test.skip", "/^(mariadb|mysql)$")
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), "PATH="+s.work, fmt.Sprintf("%s=%d", chosen, id), traced+"="+trace)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		return fmt.Errorf("run %s: %w", strings.Join(tests, ", "), err)
	}
	return nil
}
