package failpoint

import (
	"runtime"

	"golang.org/x/sys/unix"
)

const canStop = true

// stop stops this process until SIGCONT. The signal is sent to this
// very thread: it is then stopped, and all others with it, before it returns.
func stop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP) // SIGSTOP cannot be blocked
}
