//go:build unix

package servers

import (
	"os"
	"syscall"
)

// detached gives a process a session of its own.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// pausing are the signals that pause a process, and have it go on.
func pausing() (stop, resume syscall.Signal, err error) { return syscall.SIGSTOP, syscall.SIGCONT, nil }

func send(p *os.Process, signal syscall.Signal) error { return p.Signal(signal) }

// killGroup kills a child that has not been waited for, with everything that
// it started.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
