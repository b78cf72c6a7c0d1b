//go:build !linux

package servers

import (
	"os"
	"os/exec"
	"syscall"
)

func unwrittenPages(*os.File) (uint64, error) {
	return 0, &MissingError{What: "a kernel that tells what is not on the disk yet", How: "Linux 6.5 does"}
}

// ownGroup gives a child a process group, so that all of it can be ended.
func ownGroup() *syscall.SysProcAttr { return detached() }

// reap waits for a child. What it started and left behind is not found here.
func reap(cmd *exec.Cmd) error { return cmd.Wait() }
