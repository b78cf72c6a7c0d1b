package servers

import (
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// detached gives a process a group of its own: the console's ^C does not reach it.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

func pausing() (stop, resume syscall.Signal, err error) {
	return 0, 0, &MissingError{What: "a process that can be paused", How: "Linux, macOS and WSL have it, and Windows does not"}
}

// send kills a process, or asks it to end by ^Break, which Go passes on as an interrupt. Where there is no
// console for that, it kills.
func send(p *os.Process, signal syscall.Signal) error {
	if signal == syscall.SIGKILL || windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.Pid)) != nil {
		return p.Kill()
	}
	return nil
}

// killGroup kills a child; a replica starts no others.
func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it may have ended
	}
}
