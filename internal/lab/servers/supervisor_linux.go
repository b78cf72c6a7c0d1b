package servers

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup gives a child a process group, so that all of it can be ended, and
// has the kernel end it with the supervisor.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for a child and ends what it started. Between the two the child's
// id stays taken, so that its group cannot be that of another process.
func reap(cmd *exec.Cmd) error {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	killGroup(cmd)
	return cmd.Wait()
}
