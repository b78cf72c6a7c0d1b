//go:build !linux

package servers

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a child a process group, so that all of it can be ended.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// reap waits for a child. What it started and left behind is not found here.
func reap(cmd *exec.Cmd) error { return cmd.Wait() }
