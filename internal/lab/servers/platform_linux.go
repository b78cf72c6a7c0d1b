package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// unwrittenPages is how many pages of a file the kernel has in memory and not, or not yet
// wholly, on the disk. The caller must own the file.
func unwrittenPages(file *os.File) (uint64, error) {
	var all unix.CachestatRange // to the end
	var seen unix.Cachestat_t
	err := unix.Cachestat(uint(file.Fd()), &all, &seen, 0)
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, &MissingError{What: "a kernel that tells what is not on the disk yet", How: "Linux 6.5 does"}
	case err != nil:
		return 0, fmt.Errorf("ask what of %s is on the disk: %w", file.Name(), err)
	case seen.Cache == 0:
		return 0, &MissingError{
			What: "a file system that tells what is not on the disk yet", How: "TMPDIR names a folder on one that does, such as ext4",
		}
	}
	return seen.Dirty + seen.Writeback, nil
}

// ownGroup gives a child a process group, so that all of it can be ended, and
// has the kernel end it with this process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for a child and ends what it started. Between the two the child's
// id stays taken, so that its group cannot be that of another process.
func reap(cmd *exec.Cmd) error {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	killGroup(cmd.Process.Pid)
	return cmd.Wait()
}
