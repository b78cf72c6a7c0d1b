//go:build unix && !linux

package failpoint

import (
	"syscall"
	"time"
)

const canStop = true

// stopsWithin is how long another thread may take to receive the signal.
const stopsWithin = 50 * time.Millisecond

// stop stops this process until SIGCONT.
func stop() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // SIGSTOP cannot be blocked
	time.Sleep(stopsWithin)
}
