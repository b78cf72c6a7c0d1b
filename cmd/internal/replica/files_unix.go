//go:build unix

package replica

import "golang.org/x/sys/unix"

// fileLimit is how many files this process may have open; Go has raised it as far as it may.
func fileLimit() (limit uint64, ok bool) {
	var most unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &most)
	return uint64(most.Cur), err == nil //nolint:unconvert // it is signed on some systems
}
