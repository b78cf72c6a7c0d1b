//go:build !linux

package failpoint

import (
	"syscall"
	"time"
)

// stopsWithin is how long another thread may take to receive the signal.
const stopsWithin = 50 * time.Millisecond

// stop stops this process until somebody continues it.
func stop() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // nobody can refuse it
	time.Sleep(stopsWithin)
}
