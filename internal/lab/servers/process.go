package servers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Pause stops a process where it stands, and returns when it does: its connections
// stay, and nothing is answered on them.
func (p *Process) Pause(ctx context.Context) error {
	if err := p.Signal(ctx, syscall.SIGSTOP); err != nil {
		return err
	}
	// A thread that another processor runs goes on for a moment.
	for range 100 {
		if stopped(p.Pid()) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("pause process %d: it goes on after SIGSTOP", p.Pid())
}

// stopped reports whether every thread of a process has stopped, as far as this
// system tells.
func stopped(pid int) bool {
	states, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(states) == 0 {
		return true
	}
	for _, path := range states {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		// The state stands after the name, which is in parentheses.
		if _, after, _ := strings.Cut(string(content), ") "); !strings.HasPrefix(after, "T") {
			return false
		}
	}
	return true
}

// Resume lets a process go on that was paused.
func (p *Process) Resume(ctx context.Context) error { return p.Signal(ctx, syscall.SIGCONT) }

// Kill ends a process without a warning, and returns when it has ended.
func (p *Process) Kill(ctx context.Context) error {
	if err := p.Signal(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-p.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill process %d: %w", p.Pid(), context.Cause(ctx))
	}
}
