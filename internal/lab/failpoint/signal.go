package failpoint

import "syscall"

// kill ends this process. It does not return: nothing may happen behind it.
func kill() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) // SIGKILL cannot be blocked
	select {}
}
